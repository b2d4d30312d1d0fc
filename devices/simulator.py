"""Play devices against a Wayside gateway: one file that needs Python 3.11 and aiomqtt, and nothing else.

    WAYSIDE_TOKEN=wsd_... python simulator.py kitchen --host gateway.local --device kitchen-camera

A device subscribes to `replies/#` before it publishes, and matches each reply to what it sent by the id that the reply
names: the signal id, or the first 16 hexadecimal digits of the payload's SHA-256. A program may use `Device` alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import csv
import hashlib
import json
import math
import os
import random
import secrets
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiomqtt

MAX_PAYLOAD_BYTES: Final = 16_384  # the gateway's limit, which the scenario `bad` goes over
SILENCE_SECONDS: Final = 2.0  # how long to listen for an answer that is sent at most once a minute
RESENDS: Final = 10  # how often a device of the fleet sends a signal again whose connection was lost
BACKOFF_SECONDS: Final = (0.2, 2.0)  # before the first of them, and the most that it doubles to
CONNECT_THREADS: Final = 64  # the library connects in threads; this many devices do so at the same moment

Address = tuple[str, str, str, str]  # of a reply: signals or runs, workflow, key, id
OFF_THE_MAP: Final[Address] = ("-", "-", "-", "")


class NotConnected(Exception):
    """The gateway refused the connection or the subscription, or could not be reached. The message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one publish. Code 0 is the device's own: `no_reply` or `connection_lost`."""

    ok: bool
    code: int
    error: str
    receipt: str
    at: str
    fields: Mapping[str, Any]  # the reply as it came
    acknowledged_ms: float | None  # from publish to PUBACK
    replied_ms: float | None  # from publish to the reply


class Device:
    """A device on one connection: `async with Device(...) as device: answer = await device.signal(...)`."""

    def __init__(self, host: str, port: int, device: str, token: str, *, timeout: float = 10.0) -> None:
        self._host, self._port, self._name, self._token, self._timeout = host, port, device, token, timeout
        self._waiting: dict[Address, deque[asyncio.Future[tuple[float, dict[str, Any]]]]] = {}

    async def __aenter__(self) -> Self:
        """Connect with a clean session and subscribe to the replies. Raises `NotConnected`."""
        self._client = aiomqtt.Client(
            self._host,
            self._port,
            username=self._name,
            password=self._token,
            identifier=f"sim-{secrets.token_hex(6)}",
            timeout=self._timeout,
        )
        self._client.pending_calls_threshold = sys.maxsize
        try:
            await self._client.__aenter__()
        except aiomqtt.MqttError as problem:
            raise NotConnected(f"{self._name} could not connect to {self._host}:{self._port}: {problem}") from None
        self._reader = asyncio.create_task(self._read(), name=f"replies to {self._name}")
        try:
            codes: Sequence[Any] = await self._client.subscribe("replies/#", qos=1)
        except aiomqtt.MqttError as problem:
            await self._leave()
            raise NotConnected(f"{self._name} could not subscribe to replies/#: {problem}") from None
        if any(int(getattr(code, "value", code)) >= 0x80 for code in codes):
            await self._leave()
            raise NotConnected(f"{self._name} was refused the subscription to replies/#")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._leave()

    async def _leave(self) -> None:
        self._reader.cancel()
        await asyncio.wait({self._reader})
        with contextlib.suppress(aiomqtt.MqttError):
            await self._client.__aexit__(None, None, None)

    @property
    def lost(self) -> bool:
        """Tell whether the connection is gone; a new `Device` makes a new one."""
        return self._reader.done()

    async def signal(
        self,
        workflow: str,
        key: str,
        payload: Mapping[str, Any] | bytes,
        *,
        signal_id: str | None = None,
        retain: bool = False,
    ) -> Answer:
        """Publish a signal at QoS 1 and wait for its reply and its PUBACK, at most the time-out for each."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload, separators=(",", ":")).encode()
        topic = f"signals/{workflow}/{key}" + (f"/{signal_id}" if signal_id else "")
        address = ("signals", workflow, key, signal_id or hashlib.sha256(body).hexdigest()[:16])
        return await self.ask(topic, body, address, retain=retain)

    async def start_run(self, workflow: str, inputs: Mapping[str, Any] | None = None) -> Answer:
        """Start a run of a workflow, which takes the grant `run` and a workflow that has a topic trigger."""
        run_id = secrets.token_hex(8)
        body = json.dumps(inputs or {}).encode()
        return await self.ask(f"runs/{workflow}/{run_id}", body, ("runs", workflow, "-", run_id))

    async def ask(
        self, topic: str, body: bytes, address: Address, *, retain: bool = False, patience: float | None = None
    ) -> Answer:
        """Publish `body` and wait, at most `patience` seconds, for the reply that bears `address`."""
        reply: asyncio.Future[tuple[float, dict[str, Any]]] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(reply)
        start = time.perf_counter()
        publishing = asyncio.create_task(self._publish(topic, body, retain=retain))
        patience = self._timeout if patience is None else patience
        first: set[asyncio.Future[Any]] = {reply, self._reader}
        await asyncio.wait(first, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        lost = self.lost
        if not lost:
            await asyncio.wait({publishing}, timeout=self._timeout)
        publishing.cancel()
        (acknowledged,) = await asyncio.gather(publishing, return_exceptions=True)
        if not reply.done():
            self._waiting[address].remove(reply)
        at, fields = reply.result() if reply.done() else (start, {})
        return Answer(
            ok=fields.get("ok") is True,
            code=int(fields.get("code", 0)),
            error=str(fields.get("error", "" if fields else "connection_lost" if lost else "no_reply")),
            receipt=str(fields.get("receipt", "")),
            at=str(fields.get("at", "")),
            fields=fields,
            acknowledged_ms=(acknowledged - start) * 1000 if isinstance(acknowledged, float) else None,
            replied_ms=(at - start) * 1000 if fields else None,
        )

    async def _publish(self, topic: str, body: bytes, *, retain: bool) -> float:
        await self._client.publish(topic, body, qos=1, retain=retain)
        return time.perf_counter()

    async def _read(self) -> None:
        with contextlib.suppress(aiomqtt.MqttError):  # lost: the end of this task says so
            async for message in self._client.messages:
                self._take(message.topic.value, message.payload)

    def _take(self, topic: str, payload: object) -> None:
        at = time.perf_counter()
        try:
            fields = json.loads(payload) if isinstance(payload, bytes) else None
        except ValueError:
            fields = None
        levels = topic.split("/")
        if not isinstance(fields, dict) or len(levels) != 5:
            return
        kind, workflow, key = levels[1:4]
        address = OFF_THE_MAP if kind == "-" else (kind, workflow, key, str(fields.get("id", "")))
        if futures := self._waiting.get(address):  # else it answers another connection of the same device
            futures.popleft().set_result((at, fields))


class CuttingProxy:
    """A TCP proxy on a loopback port that cuts a connection where a network might."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._bytes_left: int | None = None
        self._deaf = False
        self._serving: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # In a task of our own: one of asyncio's that is cancelled prints a traceback (Python 3.11).
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    def cut_after(self, byte_count: int) -> None:
        """Let the device send this many bytes more, then cut: in the middle of a packet, or right behind it."""
        self._bytes_left = byte_count

    def cut_at_answer(self) -> None:
        """Let everything through to the gateway, and cut when it answers: the answer never arrives."""
        self._deaf = True

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._bytes_left, self._deaf = None, False
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
            up, down = self._up(reader, far_writer), self._down(far_reader, writer)
            ways = {asyncio.create_task(up), asyncio.create_task(down)}
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                far_writer.close()
        except OSError:
            pass
        finally:
            writer.close()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            passed = data[: self._bytes_left]
            if self._bytes_left is not None:
                self._bytes_left -= len(passed)
            writer.write(passed)
            await writer.drain()
            if self._bytes_left == 0:
                return

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            if self._deaf:
                return
            writer.write(data)
            await writer.drain()


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One device of the cast, and the workflow and key that it signals."""

    device: str
    token: str = field(repr=False)
    workflow: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to play: `seed` decides payloads, order and cuts; signal ids are fresh in every play."""

    scenario: str
    host: str
    port: int
    cast: tuple[Member, ...]
    payloads: tuple[Mapping[str, Any], ...] = ({"verdict": "known"}, {"verdict": "intruder"})
    refused: Mapping[str, Any] = field(default_factory=lambda: {"verdict": 7})
    rate: float = 10.0  # signals a second, all devices together
    count: int = 0  # signals in all; 0: the scenario's own number
    after: float = 0.0  # seconds to wait before the first signal
    seed: int = 1
    timeout: float = 10.0
    identified: bool = True
    start: bool = False  # start a run before each signal that is to be taken
    expect: frozenset[int] | None = None  # instead of the codes that the scenario expects of its signals
    progress: Callable[[int, int], None] = lambda _done, _total: None


@dataclass(slots=True)
class Tally:
    """What was answered, how fast, and what was otherwise than the scenario expects."""

    answers: Counter[tuple[int, str]] = field(default_factory=Counter)
    latencies: dict[str, list[float]] = field(default_factory=lambda: {"connect": [], "PUBACK": [], "reply": []})
    problems: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, answer: Answer, codes: frozenset[int], error: str = "") -> Answer:
        """Count an answer, and note a problem unless it bears one of `codes` and, if given, this `error`."""
        self.answers[answer.code, answer.error] += 1
        for name, value in (("PUBACK", answer.acknowledged_ms), ("reply", answer.replied_ms)):
            if value is not None:
                self.latencies[name].append(value)
        if answer.code not in codes or (error and answer.error != error):
            wanted = " or ".join(map(str, sorted(codes))) + (f" {error}" if error else "")
            self.problems[f"{what}: expected {wanted}, got {answer.code} {answer.error}".rstrip()] += 1
        return answer

    def same_receipt(self, what: str, first: Answer, again: Answer) -> None:
        """Note a problem unless both answers bear the same receipt."""
        if first.receipt != again.receipt or not first.receipt:
            self.problems[f"{what}: the receipts differ: {first.receipt or 'none'}, {again.receipt or 'none'}"] += 1

    def summary(self) -> dict[str, Any]:
        """Put everything in a form for JSON; latencies in milliseconds."""
        return {
            "ok": not self.problems,
            "answers": [
                {"code": code, "error": error or None, "count": count}
                for (code, error), count in sorted(self.answers.items())
            ],
            "latency_ms": {name: _spread(values) for name, values in self.latencies.items() if values},
            "problems": [
                problem + (f" ({count} times)" if count > 1 else "") for problem, count in self.problems.items()
            ],
        }


def _spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    ranks = {f"p{share}": ordered[math.ceil(len(ordered) * share / 100) - 1] for share in (50, 90, 99)}
    return {"count": len(ordered)} | {name: round(value, 2) for name, value in (ranks | {"max": ordered[-1]}).items()}


class Line:
    """A member's connection, made anew when it is lost, as a device does."""

    def __init__(self, connect: Callable[[], AbstractAsyncContextManager[Device]]) -> None:
        self._connect = connect
        self._stack = contextlib.AsyncExitStack()
        self._turn = asyncio.Lock()
        self._device: Device | None = None

    async def __aenter__(self) -> Self:
        await self.device()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def device(self) -> Device:
        """Give the device on a connection that holds. Raises `NotConnected` if there is none to be had."""
        async with self._turn:
            if self._device is None or self._device.lost:
                await self._stack.aclose()
                self._device = await self._stack.enter_async_context(self._connect())
            return self._device


class Play:
    """One performance of a plan. Each scenario is a method; what it finds is in `tally`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tally = Tally()
        self._dice = random.Random(plan.seed)
        self._lead = plan.cast[0]
        self._taken = plan.expect or frozenset({202})

    async def perform(self) -> Tally:
        """Play the scenario to its end. Raises `NotConnected` where it cannot go on without a connection."""
        await SCENARIOS[self.plan.scenario](self)
        return self.tally

    async def kitchen(self) -> None:
        """A verdict that the schema refuses, and then one that it allows."""
        async with self._on_stage(self._lead) as device:
            await self._prepare(device, self._lead)
            refused = await device.signal(self._lead.workflow, self._lead.key, self.plan.refused)
            self.tally.add("a verdict that the schema refuses", refused, frozenset({422}), "invalid_payload")
            await self._send(device, self._lead, self.plan.payloads[0], "the verdict", self._taken)

    async def early(self) -> None:
        """Two signals before any wait: the first is held, the second is refused with the receipt of the first."""
        async with self._on_stage(self._lead) as device:
            await asyncio.sleep(self.plan.after)
            first = await self._send(device, self._lead, self.plan.payloads[0], "an early signal", self._taken)
            second = await device.signal(self._lead.workflow, self._lead.key, self.plan.payloads[-1])
            self.tally.add("a second early signal", second, frozenset({409}), "early_signal_held")
            self.tally.same_receipt("the refusal of a second early signal", first, second)

    async def late(self) -> None:
        """A signal that no wait is open for, on a key that takes none early."""
        async with self._on_stage(self._lead) as device:
            await self._prepare(device, self._lead)
            codes = self.plan.expect or frozenset({409})
            await self._send(device, self._lead, self.plan.payloads[0], "a late signal", codes)

    async def duplicate(self) -> None:
        """One signal id three times, the third on a new connection; then the same id with another payload."""
        signal_id = secrets.token_hex(8)
        answers: list[Answer] = []
        for times in (2, 1):
            async with self._on_stage(self._lead) as device:
                if not answers:
                    await self._prepare(device, self._lead)
                for _ in range(times):
                    answer = await device.signal(
                        self._lead.workflow, self._lead.key, self.plan.payloads[0], signal_id=signal_id
                    )
                    answers.append(self.tally.add(f"time {len(answers) + 1} of one signal", answer, self._taken))
        for again in answers[1:]:
            self.tally.same_receipt("a repeated signal", answers[0], again)
        async with self._on_stage(self._lead) as device:
            other = await device.signal(
                self._lead.workflow, self._lead.key, self.plan.payloads[-1], signal_id=signal_id
            )
            self.tally.add("another payload under a used id", other, frozenset({422}), "signal_id_reused")

    async def flaky(self) -> None:
        """Connections cut in mid-publish; each signal is sent again under its id, twice, and answered alike."""
        for number in range(self.plan.count or 3):
            member, signal_id = self.plan.cast[number % len(self.plan.cast)], secrets.token_hex(8)
            payload = self._dice.choice(self.plan.payloads)
            async with (
                CuttingProxy(self.plan.host, self.plan.port) as proxy,
                self._on_stage(member, host="127.0.0.1", port=proxy.port) as device,
            ):
                await self._prepare(device, member)
                self._arm(proxy, member, payload, signal_id)
                cut = await device.signal(member.workflow, member.key, payload, signal_id=signal_id)
                self.tally.add("a signal that is cut", cut, frozenset({0}), "connection_lost")
            async with self._on_stage(member) as device:
                first, again = [
                    await device.signal(member.workflow, member.key, payload, signal_id=signal_id) for _ in range(2)
                ]
            codes = self.plan.expect or frozenset({202, 409})
            for answer in (first, again):
                self.tally.add("a signal that is sent again", answer, codes)
            if first.ok:
                self.tally.same_receipt("a signal that is sent again", first, again)
            self.plan.progress(number + 1, self.plan.count or 3)

    def _arm(self, proxy: CuttingProxy, member: Member, payload: Mapping[str, Any], signal_id: str) -> None:
        topic = f"signals/{member.workflow}/{member.key}/{signal_id}"
        length = 2 + len(topic) + 2 + len(json.dumps(payload, separators=(",", ":")).encode())
        size = 1 + (1 if length < 128 else 2) + length  # MQTT 3.1.1, 2.2.3: the length takes one byte up to 127
        match self._dice.choice(("middle", "behind", "answer")):
            case "middle":
                proxy.cut_after(self._dice.randrange(1, size))
            case "behind":
                proxy.cut_after(size)
            case _:
                proxy.cut_at_answer()

    async def fleet(self) -> None:
        """All devices signal at the planned rate; each signal is answered, if need be on a new connection."""
        total = self.plan.count or 10 * len(self.plan.cast)
        codes = self.plan.expect or frozenset({202, 409})
        async with contextlib.AsyncExitStack() as stage:
            crew = [
                (await stage.enter_async_context(Line(partial(self._on_stage, member))), member)
                for member in self.plan.cast
            ]
            start = time.perf_counter()
            async with asyncio.TaskGroup() as signals:
                for number in range(total):
                    await asyncio.sleep(start + number / self.plan.rate - time.perf_counter())
                    line, member = self._dice.choice(crew)
                    signals.create_task(self._insist(line, member, self._dice.choice(self.plan.payloads), codes))
                    self.plan.progress(number + 1, total)

    async def storm(self) -> None:
        """All devices connect at the same moment, and stay until the last one has its answer."""
        answered = asyncio.Semaphore(0)
        everybody = asyncio.Event()

        async def connect(member: Member) -> None:
            try:
                async with self._on_stage(member):
                    answered.release()
                    await everybody.wait()
            except NotConnected as problem:
                self.tally.answers[0, "not_connected"] += 1
                self.tally.problems[str(problem)] += 1
                answered.release()

        async with asyncio.TaskGroup() as devices:
            for member in self.plan.cast:
                devices.create_task(connect(member))
            for number in range(len(self.plan.cast)):
                await answered.acquire()
                self.plan.progress(number + 1, len(self.plan.cast))
            everybody.set()

    async def bad(self) -> None:
        """What a gateway must refuse, with an answer each and without closing the connection."""
        workflow, key = self._lead.workflow, self._lead.key
        large = json.dumps({"verdict": "x" * MAX_PAYLOAD_BYTES}).encode()
        async with self._on_stage(self._lead) as device:
            self.tally.add("an oversized payload", await device.signal(workflow, key, large), frozenset({413}))
            self.tally.add("not JSON", await device.signal(workflow, key, b"{on"), frozenset({400}), "bad_payload")
            kept = await device.signal(workflow, key, self.plan.payloads[0], retain=True)
            self.tally.add("a retained signal", kept, frozenset({422}), "retained_not_allowed")
            foreign = await device.signal("not-yours", "not-yours", self.plan.payloads[0])
            self.tally.add("a key of somebody else", foreign, frozenset({404}), "not_found")
            lost = await device.ask("sensors/door", b"{}", OFF_THE_MAP, patience=SILENCE_SECONDS)
            # This answer comes once a minute; without it, the acknowledgement must do.
            self.tally.add("a topic off the map", lost, frozenset({400, 0}))
            if lost.acknowledged_ms is None:
                self.tally.problems["a topic off the map: not acknowledged"] += 1

    async def _prepare(self, device: Device, member: Member) -> None:
        if self.plan.start:
            self.tally.add("the start of a run", await device.start_run(member.workflow), frozenset({202}))
        await asyncio.sleep(self.plan.after)

    async def _send(
        self, device: Device, member: Member, payload: Mapping[str, Any], what: str, codes: frozenset[int]
    ) -> Answer:
        signal_id = secrets.token_hex(8) if self.plan.identified else None
        return self.tally.add(
            what, await device.signal(member.workflow, member.key, payload, signal_id=signal_id), codes
        )

    async def _insist(self, line: Line, member: Member, payload: Mapping[str, Any], codes: frozenset[int]) -> None:
        """Send until there is an answer, under one id: at QoS 1 what was not acknowledged is sent again."""
        signal_id = secrets.token_hex(8) if self.plan.identified else None
        error = ""
        for attempt in range(1 + RESENDS):
            if attempt:
                first, most = BACKOFF_SECONDS
                await asyncio.sleep(min(most, first * 2 ** (attempt - 1)))
            try:
                device = await line.device()
                answer = await device.signal(member.workflow, member.key, payload, signal_id=signal_id)
            except NotConnected as problem:
                error = str(problem)
                self.tally.answers[0, "not_connected"] += 1
                continue
            if answer.error != "connection_lost":
                self.tally.add("a signal", answer, codes)
                return
            error = f"{member.device} lost its connection"
            self.tally.answers[0, "connection_lost"] += 1
        self.tally.problems[f"a signal was never answered: {error}"] += 1

    @contextlib.asynccontextmanager
    async def _on_stage(self, member: Member, *, host: str = "", port: int = 0) -> AsyncIterator[Device]:
        start = time.perf_counter()
        host, port = host or self.plan.host, port or self.plan.port
        async with Device(host, port, member.device, member.token, timeout=self.plan.timeout) as device:
            self.tally.latencies["connect"].append((time.perf_counter() - start) * 1000)
            yield device


SCENARIOS: Final[Mapping[str, Callable[[Play], Awaitable[None]]]] = {
    "kitchen": Play.kitchen,
    "fleet": Play.fleet,
    "early": Play.early,
    "late": Play.late,
    "duplicate": Play.duplicate,
    "flaky": Play.flaky,
    "storm": Play.storm,
    "bad": Play.bad,
}


def read_cast(text: str, workflow: str, key: str) -> tuple[Member, ...]:
    """Read devices from CSV (`device,token[,workflow,key]`) or from JSON lines with those names."""
    cast = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("{"):
            entry = json.loads(line)
        else:
            entry = dict(zip(("device", "token", "workflow", "key"), next(csv.reader([line])), strict=False))
        if entry["device"] != "device":  # else it is the heading
            cast.append(
                Member(
                    device=entry["device"],
                    token=entry["token"],
                    workflow=entry.get("workflow") or workflow,
                    key=entry.get("key") or key,
                )
            )
    return tuple(cast)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play a scenario and print what was answered. Exit status 0 if all went as expected, 1 if not, 2 wrong usage."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        plan = _plan(options)
    except (OSError, ValueError, KeyError) as problem:
        parser.error(f"{type(problem).__name__}: {problem}" if isinstance(problem, KeyError) else str(problem))
    try:
        tally = asyncio.run(_perform(plan))
    except NotConnected as problem:
        print(f"simulator: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    summary = {"scenario": plan.scenario, "seed": plan.seed, "devices": len(plan.cast)} | tally.summary()
    print(json.dumps(summary) if options.json else _table(summary))
    return 0 if summary["ok"] else 1


async def _perform(plan: Plan) -> Tally:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(CONNECT_THREADS))
    return await Play(plan).perform()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="simulator",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Play devices against a Wayside gateway.\n\n"
        + "\n".join(f"  {name:<10} {(play.__doc__ or '').strip()}" for name, play in SCENARIOS.items()),
        epilog="A token on the command line is seen by everybody who lists processes: WAYSIDE_TOKEN, --token-file and\n"
        "--credentials keep it out of there. --seed repeats payloads, order and cuts; signal ids are always fresh.",
    )
    add = parser.add_argument
    add("scenario", nargs="?", default="kitchen", choices=SCENARIOS)
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=1883)
    add("--device", help="the device's name")
    add("--token", help="its token")
    add("--token-file", type=Path, metavar="FILE", help="a file that holds its token")
    add("--credentials", type=Path, metavar="FILE", help="many devices: CSV device,token[,workflow,key] or JSON lines")
    add("--devices", type=int, metavar="N", help="play only the first N of them")
    add("--workflow", default="front-door")
    add("--key", default="kitchen-verdict")
    add("--payload", action="append", type=json.loads, metavar="JSON", help="may be repeated; the seed chooses")
    add("--refused", type=json.loads, metavar="JSON", help="kitchen: a payload that the schema refuses")
    add("--rate", type=float, default=10.0, help="fleet: signals a second, all devices together (10)")
    add("--count", type=int, default=0, help="fleet, flaky: signals in all")
    add("--after", type=float, default=0.0, metavar="SECONDS", help="wait before the first signal")
    add("--start", action="store_true", help="start a run before a signal; the device needs the grant run:<workflow>")
    add("--no-ids", action="store_true", help="send signals without ids, which the gateway cannot tell from new ones")
    add("--expect", metavar="CODES", help="codes that signals may be answered with, such as 202,409")
    add("--seed", type=int, default=1)
    add("--timeout", type=float, default=10.0, metavar="SECONDS", help="for each answer (10)")
    add("--json", action="store_true", help="print one JSON object")
    return parser


def _plan(options: argparse.Namespace) -> Plan:
    if options.credentials:
        cast = read_cast(options.credentials.read_text(), options.workflow, options.key)[: options.devices]
    else:
        token = options.token or os.environ.get("WAYSIDE_TOKEN", "")
        token = options.token_file.read_text().strip() if options.token_file else token
        if not (options.device and token):
            raise ValueError("say who signals: --device with WAYSIDE_TOKEN, --token-file or --token; or --credentials")
        cast = (Member(device=options.device, token=token, workflow=options.workflow, key=options.key),)
    if not cast or options.rate <= 0:
        raise ValueError("there is no device to play" if not cast else "--rate must be above 0")
    given: dict[str, Any] = {"payloads": tuple(options.payload)} if options.payload else {}
    given |= {"refused": options.refused} if options.refused is not None else {}
    return Plan(
        **{name: getattr(options, name) for name in ("scenario", "host", "port", "rate", "count", "after", "seed")},
        cast=cast,
        timeout=options.timeout,
        identified=not options.no_ids,
        start=options.start,
        expect=frozenset(map(int, options.expect.split(","))) if options.expect else None,
        progress=_draw_progress if sys.stderr.isatty() else lambda _done, _total: None,
        **given,
    )


def _draw_progress(done: int, total: int) -> None:
    filled = 40 * done // total
    print(f"\r[{'#' * filled:<40}] {done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def _table(summary: Mapping[str, Any]) -> str:
    lines = [f"{summary['scenario']}: {summary['devices']} device(s), seed {summary['seed']}"]
    if summary["answers"]:
        lines.append(f"\n{'code':>4}  {'error':<22}{'count':>8}")
        lines += [f"{row['code']:>4}  {row['error'] or '':<22}{row['count']:>8}" for row in summary["answers"]]
    columns = ("p50", "p90", "p99", "max", "count")
    lines.append(f"\n{'ms to':<10}" + "".join(f"{column:>10}" for column in columns))
    for name, spread in summary["latency_ms"].items():
        lines.append(f"{name:<10}" + "".join(f"{spread[column]:>10}" for column in columns))
    lines += ["", *(f"not as expected: {problem}" for problem in summary["problems"])]
    return "\n".join([*lines, "as expected" if summary["ok"] else f"{len(summary['problems'])} problem(s)"])


if __name__ == "__main__":
    sys.exit(main())
