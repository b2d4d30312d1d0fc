// A device on MQTT.js: commands as JSON lines on standard input, what happens as JSON lines on standard output.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";

const mqtt = createRequire(process.argv[2] + "/")("mqtt");
const say = (value) => process.stdout.write(JSON.stringify(value) + "\n");
let client;

const commands = {
  connect: ({ url, options }) => {
    client = mqtt.connect(url, { ...options, reconnectPeriod: 0, rejectUnauthorized: true });
    client.on("connect", (packet) => say({ event: "connected", present: packet.sessionPresent }));
    client.on("message", (topic, payload) => say({ event: "message", topic, payload: payload.toString() }));
    client.on("close", () => say({ event: "closed" }));
    client.on("error", (error) => say({ event: "error", code: error.code ?? String(error) }));
  },
  subscribe: ({ filter }) => client.subscribe(filter, { qos: 1 }, (error) => say({ event: "subscribed", ok: !error })),
  publish: ({ topic, payload, qos }) =>
    client.publish(topic, payload, { qos }, (error) => say({ event: "published", ok: !error })),
  disconnect: () => client.end(false, () => say({ event: "ended" })),
};

createInterface({ input: process.stdin }).on("line", (line) => {
  const { command, ...rest } = JSON.parse(line);
  commands[command](rest);
}).on("close", () => process.exit(0));
