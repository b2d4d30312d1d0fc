// Node-RED with one flow: presses its inject nodes, one after the reply to the other, and prints what the debug node gets.
// Arguments: the directory where Node-RED is installed, and as JSON the flow and the credentials of its nodes.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [directory, flow, credentials] = process.argv.slice(2);
const RED = createRequire(directory + "/")("node-red");
const userDir = mkdtempSync(join(tmpdir(), "node-red-"));
const presses = ["wayside-wrong", "wayside-right"];
const press = () => RED.nodes.getNode(presses.shift()).receive({});

writeFileSync(join(userDir, "flows.json"), flow);
writeFileSync(join(userDir, "flows_cred.json"), credentials);
RED.init(createServer(), {
  userDir, flowFile: "flows.json", httpAdminRoot: false, httpNodeRoot: false, credentialSecret: false,
  logging: { console: { level: "off" } }, telemetry: { enabled: false },
});
RED.hooks.add("onReceive.shown", (event) => {
  if (event.destination.id !== "wayside-shown") return;
  process.stdout.write(`${event.msg.topic} ${JSON.stringify(event.msg.payload)}\n`);
  if (presses.length) return void setImmediate(press);
  RED.stop().then(() => {
    rmSync(userDir, { recursive: true, force: true });
    process.exit(0);
  });
});
RED.events.on("node-status", ({ id, status }) => {
  if (id === "wayside-replies" && status.text?.endsWith(".connected")) setImmediate(press);
});
await RED.start();
