"""`wayside demo`: the kitchen story, told on real sockets by a gateway and a device of its own.

A gateway is started as a process of its own on free loopback ports, over a directory that goes away afterwards. The
camera is the simulator's device. What happens is printed as it happens; anything that goes otherwise than told fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import typer

from engine.errors import WaysideError
from gateway.cli import output
from gateway.cli.client import FINISHED, Client, connect
from gateway.cli.invocation import Invocation, current
from gateway.cli.main import finish

if TYPE_CHECKING:
    from devices.simulator import Answer, Device

WORKFLOW: Final = "front-door"
KEY: Final = "kitchen-verdict"
CAMERA: Final = "kitchen-camera"
START_SECONDS: Final = 20.0
STOP_SECONDS: Final = 15.0
# The kitchen's workflow with a short patience, so that the story takes seconds.
DEFINITION: Final = """\
name: front-door
description: Somebody is at the door
jobs:
  - name: main
    steps:
      - name: identify
        allowFailure: true
        task:
          type: wait_for_signal
          key: kitchen-verdict
          acceptEarly: 10
          timeout: 3
          schema:
            type: object
            required: [verdict]
            properties:
              verdict: { type: string, enum: [known, intruder] }
      - name: alarm
        dependsOn: [{ step: identify, condition: { type: completed } }]
        guard: ${{ steps.identify.status == "succeeded" && steps.identify.payload.verdict == "known" }}
        task: { type: publish, topic: sirens/hall/cmd, payload: { "on": true } }
"""


def register(parent: typer.Typer) -> None:
    parent.command("demo")(demo)


def demo() -> None:
    """Tell the kitchen story on real sockets, with a gateway of its own; exit status 1 if any of it goes otherwise."""
    finish(_demo())


@dataclass(slots=True)
class Scene:
    """One part of the story: what was expected, and what came of it."""

    title: str
    checks: list[tuple[str, bool]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return bool(self.checks) and all(held for _, held in self.checks)


@dataclass(slots=True)
class Story:
    """The stage: a gateway to ask, a camera that signals, and what has been seen so far."""

    client: Client
    camera: Device
    began: float = field(default_factory=monotonic)
    scenes: list[Scene] = field(default_factory=list)

    def tell(self, text: str) -> None:
        if not current().json:
            output.line(f"{output.styled(f'{monotonic() - self.began:6.2f} s', 'dim')}  {text}")

    def begin(self, title: str) -> None:
        self.scenes.append(Scene(title))
        if not current().json:
            output.line("\n" + output.styled(title, "bold"))

    def check(self, what: str, held: bool) -> None:
        self.scenes[-1].checks.append((what, held))
        mark = output.styled("ok", "green") if held else output.styled("NOT SO", "red")
        self.tell(f"{mark}: {what}")

    async def start_run(self) -> str:
        run = str((await self.client.post(f"/workflows/{WORKFLOW}/runs", {"inputs": {}}))["run"])
        self.tell(f"somebody is at the door: run {run} starts")
        return run

    async def until_waiting(self, run: str) -> None:
        """Return once the run is suspended: the wait is then open for everybody to see."""
        after = 0
        while True:
            page = await self.client.get(f"/runs/{run}/events", after=after, wait=10)
            for event in page["events"]:
                after = event["seq"]
                if event["event"] == "suspended":
                    self.tell(f"the run waits under the key {KEY}")
                    return
            if page["ended"] and not page["events"]:
                raise WaysideError(f"the run {run} ended without waiting")

    async def until_ended(self, run: str) -> dict[str, Any]:
        async for event in self.client.follow(run):
            step, status = event.get("step"), event.get("status")
            if event["event"] == "step_ended" and step:
                self.tell(f"step {step}: {output.status(str(status))}")
        found = await self.client.get(f"/runs/{run}")
        self.tell(f"the run has {output.status(found['status'])}")
        return found

    async def signal(self, verdict: str) -> Answer:
        answer = await self.camera.signal(WORKFLOW, KEY, {"verdict": verdict})
        code = f"{answer.code} {answer.error}".strip()
        said = f"receipt {answer.receipt}" if answer.ok else _refusal(answer)
        self.tell(f'the camera publishes {{"verdict": "{verdict}"}}  ->  {code} {said}'.rstrip())
        return answer


def _refusal(answer: Answer) -> str:
    problems = answer.fields.get("problems")
    if isinstance(problems, list) and problems and isinstance(problems[0], dict):
        return f"({problems[0].get('pointer', '')}: {problems[0].get('rule', '')})"
    return ""


def _steps(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {step["name"]: step for job in run["jobs"] for step in job["steps"]}


def _outputs(step: dict[str, Any]) -> dict[str, Any]:
    found = step.get("outputs")
    return found if isinstance(found, dict) else {}


# -- the scenes ----------------------------------------------------------------------------------------------------


async def in_time(story: Story) -> None:
    """A verdict comes while the run waits."""
    run = await story.start_run()
    await story.until_waiting(run)
    answer = await story.signal("known")
    steps = _steps(await story.until_ended(run))
    story.check("the verdict is accepted", answer.code == 202)
    taken = _outputs(steps["identify"])
    story.check("the run goes on with that very signal", taken.get("receipt") == answer.receipt != "")
    story.check("nobody is alarmed", steps["alarm"]["status"] == "skipped")


async def early(story: Story) -> None:
    """A verdict comes before its run, and a second one is refused."""
    first = await story.signal("intruder")
    story.check("the verdict is accepted although no run waits: it is held", first.code == 202)
    held = (await story.client.listed("/waits", "waits"))["pending"]
    story.check("`wayside waits` shows it", [it["receipt"] for it in held] == [first.receipt])
    second = await story.signal("known")
    story.check("a second early one is refused", (second.code, second.error) == (409, "early_signal_held"))
    run = await story.start_run()
    steps = _steps(await story.until_ended(run))
    events = (await story.client.get(f"/runs/{run}/events"))["events"]
    story.check("the run takes the held verdict", _outputs(steps["identify"]).get("receipt") == first.receipt)
    story.check("it never suspends", all(event["event"] != "suspended" for event in events))
    story.check("the alarm goes off", steps["alarm"]["status"] == "succeeded")


async def silence(story: Story) -> None:
    """Nobody sends a verdict."""
    run = await story.start_run()
    await story.until_waiting(run)
    story.tell("nobody says anything for three seconds")
    found = await story.until_ended(run)
    steps = _steps(found)
    error = steps["identify"]["error"] or {}
    story.check("the wait times out", error.get("code") == "wait_timeout")
    story.check("the alarm goes off", steps["alarm"]["status"] == "succeeded")
    late = await story.signal("known")
    story.check("a verdict that comes now is held for the next run", late.code == 202)
    run = await story.start_run()
    steps = _steps(await story.until_ended(run))
    story.check("which takes it", _outputs(steps["identify"]).get("receipt") == late.receipt)


async def refused(story: Story) -> None:
    """A verdict that the schema does not allow changes nothing."""
    run = await story.start_run()
    await story.until_waiting(run)
    wrong = await story.signal("stranger")
    story.check("the schema refuses it", (wrong.code, wrong.error) == (422, "invalid_payload"))
    story.check("the answer does not repeat it", "stranger" not in json.dumps(dict(wrong.fields)))
    waits = (await story.client.listed("/waits", "waits"))["waits"]
    story.check("the run still waits", [wait["run"] for wait in waits] == [run])
    right = await story.signal("known")
    steps = _steps(await story.until_ended(run))
    story.check("the right verdict is taken", _outputs(steps["identify"]).get("receipt") == right.receipt)


SCENES: Final[tuple[tuple[str, Callable[[Story], Awaitable[None]]], ...]] = (
    ("1. A verdict in time", in_time),
    ("2. A verdict that comes early, and a second one", early),
    ("3. Nobody says anything", silence),
    ("4. A verdict that the schema refuses", refused),
)


# -- the stage -----------------------------------------------------------------------------------------------------


async def _demo() -> int:
    with tempfile.TemporaryDirectory(prefix="wayside-demo-") as name:
        data = Path(name) / "data"
        data.mkdir(mode=0o700)
        (data / "workflows").mkdir()
        (data / "workflows" / "front-door.yaml").write_text(DEFINITION, encoding="utf-8")
        invocation = replace(Invocation(), data=str(data))
        async with _gateway(data) as doors, connect(invocation) as client:
            scenes = await _tell(client, doors)
            events = await _audit(client)
    return _summary(scenes, events)


async def _tell(client: Client, doors: dict[str, Any]) -> list[Scene]:
    from devices.simulator import Device, NotConnected

    if not current().json:
        output.line(f"A gateway listens for MQTT on {doors['mqtt']} and for HTTP on {doors['http']}.")
    grant = f"signal:{WORKFLOW}/{KEY}"
    issued = await client.post("/devices", {"device": CAMERA, "grants": [grant]})
    host, _, port = str(doors["mqtt"]).rpartition(":")
    try:
        async with Device(host, int(port), CAMERA, issued["token"]) as camera:
            story = Story(client, camera)
            story.tell(f"the device {CAMERA} connects; it may {grant} and nothing else")
            for title, scene in SCENES:
                story.begin(title)
                await scene(story)
    except NotConnected as fault:
        raise WaysideError(str(fault)) from None
    return story.scenes


async def _audit(client: Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get("/audit", action="signal"))["events"]
    return found


def _summary(scenes: list[Scene], events: list[dict[str, Any]]) -> int:
    failed = [scene for scene in scenes if not scene.ok]
    if current().json:
        told = [
            {"scene": s.title, "ok": s.ok, "checks": [{"check": what, "ok": held} for what, held in s.checks]}
            for s in scenes
        ]
        output.emit({"ok": not failed, "scenes": told})
        return 1 if failed else 0
    output.line("\n" + output.styled("What the audit log has of it", "bold"))
    output.table(
        ["time", "what", "result", "receipt"],
        [(output.when(e["time"]), e["action"], e["result"], e.get("receipt")) for e in events],
        empty="nothing",
    )
    output.line("\n" + output.styled("Summary", "bold"))
    for scene in scenes:
        held = sum(1 for _, ok in scene.checks if ok)
        mark = output.styled("as told", "green") if scene.ok else output.styled("otherwise", "red")
        output.line(f"  {scene.title}: {mark} ({held} of {len(scene.checks)})")
    for scene in failed:
        for what, ok in scene.checks:
            if not ok:
                output.note(f"not so: {scene.title}: {what}")
    return 1 if failed else 0


@contextlib.asynccontextmanager
async def _gateway(data: Path) -> AsyncIterator[dict[str, Any]]:
    """Run `wayside serve` as a process until the context ends; give the addresses of its doors."""
    doors = ("--mqtt", "127.0.0.1:0", "--http", "127.0.0.1:0")
    command = (
        sys.executable,
        "-m",
        "gateway.cli",
        "serve",
        "--data",
        str(data),
        *doors,
        "--json",
        "--log-level",
        "warning",
    )
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        try:
            line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
        except TimeoutError:
            line = b""
        if not line:
            raise WaysideError("the gateway did not start", hint="what it said is above")
        yield json.loads(line)
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
            except TimeoutError:
                process.kill()
                await process.wait()


assert {"succeeded", "failed"} <= FINISHED
