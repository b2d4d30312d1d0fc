"""Lines that connect a device, to be pasted as they stand: beside a token that is shown once."""

from __future__ import annotations

import shlex


def how_to_connect(device: str, token: str, grants: list[str], doors: dict[str, str]) -> list[str]:
    """Write lines that work as they stand: subscribe to the replies first, then publish."""
    host, _, port = doors.get("mqtt", "127.0.0.1:1883").rpartition(":")
    host = host.strip("[]")
    workflow, _, key = next((g[7:] for g in grants if g.startswith("signal:")), "WORKFLOW/KEY").partition("/")
    workflow, key = ("WORKFLOW" if workflow == "*" else workflow), ("KEY" if key in {"", "*"} else key)
    client = f"-h {shlex.quote(host)} -p {port} -u {device} -P {token} -q 1"
    where = f"--host {shlex.quote(host)} --port {port}"
    url = f"http://{doors.get('http', '127.0.0.1:8080')}/api/v1/signals/{workflow}/{key}"
    payload = shlex.quote('{"verdict": "known"}')
    return [
        "",
        "Listen for the replies first: mosquitto_pub exits 0 also when the gateway refuses what was sent.",
        f"  mosquitto_sub {client} -v -t 'replies/#'",
        "Then signal, by MQTT or by HTTP:",
        f"  mosquitto_pub {client} -t signals/{workflow}/{key} -m {payload}",
        f"  curl -H 'Authorization: Bearer {token}' -d {payload} {url}",
        "Or have it played:",
        f"  WAYSIDE_TOKEN={token} wayside simulate kitchen {where} --device {device} --workflow {workflow} --key {key}",
    ]
