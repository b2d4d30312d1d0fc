"""What the players do: the engine's own operations, put together as the service and its drivers put them together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from devices import operations
from devices.registry import Registry
from engine import removal, runs
from engine.actor import Owed
from engine.clock import derived_id
from engine.decisions.fold import RunState
from engine.errors import StoreUnavailable
from engine.events import Whose
from engine.executor import Around, drive
from engine.names import Key
from engine.payload import Payload, parse_payload
from engine.records import Claim, Sender, Stored
from engine.results import SignalRequest
from engine.signals import signal_by_key, signal_by_wait
from engine.steps import Deed, Effect
from engine.sweep import Sweep
from engine.waits import settle
from engine.workflows.definition import Definition, WaitTask
from engine.workflows.validation import load_text
from tests.interleavings.ledger import LetPass, Sent, Told
from tests.interleavings.machine import Asked, Hands, Program
from tests.support.source import stopped_at

KEY = Key("door", "verdict")
DEVICE = Sender(kind="device", id="camera")


@lru_cache
def workflow(**task: Any) -> Definition:
    """Make a workflow of one step that waits under the key; `task` overrides its members."""
    members = {"key": "verdict", "acceptEarly": 10, "timeout": 30, **task}
    lines = "".join(f"          {name}: {value}\n" for name, value in members.items() if value is not None)
    text = f"""
name: door
jobs:
  - name: main
    steps:
      - name: identify
        task:
          type: wait_for_signal
{lines}"""
    loaded = load_text(text, "door.yaml")
    assert isinstance(loaded, Definition), loaded
    return loaded


KNOWN_ONLY = "{ type: object, properties: { verdict: { type: string, enum: [known] } } }"


def task_of(definition: Definition) -> WaitTask:
    """Give the step that declares the key."""
    keyed = definition.keyed("verdict")
    assert keyed is not None
    return keyed.task


@lru_cache
def run_id(name: str) -> str:
    """Give the id of the run that a scenario calls `name`."""
    return derived_id("run", name)


@lru_cache
def payload(signal: str, verdict: str) -> Payload:
    """Make the payload of a signal: `n` names the signal, so that it is known wherever it turns up."""
    made = parse_payload(f'{{"n":"{signal}","verdict":"{verdict}"}}'.encode())
    assert isinstance(made, Payload)
    return made


# -- driving, without an event loop -----------------------------------------------------------------------------


class NoEffects:
    """The deeds outside the store of a run that has none."""

    running = False

    def start(self, job: str, step: str, deed: Deed) -> None:
        raise AssertionError("no step of these workflows does anything outside the store")

    async def collect(self) -> list[tuple[str, str, Effect]]:
        return []

    async def stop(self) -> None:
        """Do nothing."""


class NoPublisher:
    """Sends nothing."""

    async def publish(self, topic: str, payload: bytes, whose: Whose) -> int:
        raise AssertionError("no step of these workflows publishes")


def _no_deadline(until: datetime) -> None:
    """Keep no timer: the schedule decides when a sweep comes."""


async def go_on(
    hands: Hands,
    owed: Sequence[Owed],
    *,
    dead: frozenset[str] = frozenset(),
    instance: str = "",
) -> None:
    """Let runs go on, as `Drivers` does, one after another; then what those gave a reason to."""
    queue = list(owed)
    while queue:
        each = queue.pop(0)
        alike = [other for other in queue if other.run == each.run]
        queue = [other for other in queue if other.run != each.run]
        actor = hands.actor(instance)
        driver = await runs.take(actor, each.run, dead=dead)
        state: RunState | None = None
        if driver is not None:
            state = await drive(driver, Around(NoEffects(), NoPublisher(), lambda _: None, queue.extend, _no_deadline))
        await runs.pay(hands.actor(), each.run, [owed for owed in (each, *alike) if owed.ready], state)


# -- programs ----------------------------------------------------------------------------------------------------


def sends(
    signal: str,
    definition: Definition,
    *,
    verdict: str = "known",
    signal_id: str | None = None,
    again: int = 0,
    drives: bool = True,
    to_wait: str | None = None,
) -> Program:
    """Send a message of a signal by key, and let the run go on; `again` more times when no answer came."""

    async def program(hands: Hands) -> None:
        request = SignalRequest(sender=DEVICE, payload=payload(signal, verdict), signal_id=signal_id)
        for left in range(again, -1, -1):
            hands.said.append(Sent(signal))
            actor = hands.actor()
            try:
                if to_wait is None:
                    answer = await signal_by_key(actor, KEY, request, task_of(definition))
                else:
                    answer = await signal_by_wait(actor, to_wait, request)
            except StoreUnavailable:
                if not left:
                    return
                continue
            hands.said.append(Told(signal, answer))
            if drives:
                await go_on(hands, actor.owed)
            return

    return program


def runs_it(run: str, definition: Definition) -> Program:
    """Start a run and drive it until it suspends or ends."""

    async def program(hands: Hands) -> None:
        actor = hands.actor()
        new = runs.NewRun(run=run_id(run), definition=definition, inputs=b"{}", by="test")
        await runs.start(actor, new)
        await go_on(hands, actor.owed)

    return program


def starts(run: str, definition: Definition) -> Program:
    """Create a run and die: nobody drives it."""

    async def program(hands: Hands) -> None:
        new = runs.NewRun(run=run_id(run), definition=definition, inputs=b"{}", by="test")
        await runs.start(hands.actor(), new)

    return program


def continues(run: str, *, dead: frozenset[str] = frozenset(), instance: str = "") -> Program:
    """Take a run and drive it, if it may go on; `dead` names drivers that are taken for dead, rightly or not."""

    async def program(hands: Hands) -> None:
        await go_on(hands, [Owed(run_id(run), "-", "")], dead=dead, instance=instance)

    return program


def cancels(run: str) -> Program:
    """Cancel a run."""

    async def program(hands: Hands) -> None:
        actor = hands.actor()
        await runs.cancel(actor, run_id(run), "test")
        await go_on(hands, actor.owed)

    return program


def retries(run: str, step: str | None = None) -> Program:
    """Retry a run's failed steps, and drive it."""

    async def program(hands: Hands) -> None:
        actor = hands.actor()
        await runs.retry(actor, run_id(run), step, "test")
        await go_on(hands, actor.owed)

    return program


async def one_pass(hands: Hands, *, is_dead: Callable[[str], bool] = lambda _: False, only_due: bool = False) -> None:
    """Do one pass of the sweep, or only its look at what is due; the runs that it finds are driven at once."""

    async def onward(run: str) -> None:
        await go_on(hands, [Owed(run, "-", "")])

    async def take_over(instance: str, run: str) -> None:
        await go_on(hands, [Owed(run, "-", "")], dead=frozenset({instance}))

    async def dead(instance: str, run: str) -> bool:
        return is_dead(instance)

    sweep = Sweep(hands.actor(), onward, take_over, dead)
    await (sweep._due() if only_due else sweep.run())


def sweeps(*, dead: frozenset[str] = frozenset(), passes: int = 1) -> Program:
    """Do passes of the sweep; `dead` names the instances that it takes for dead, rightly or not."""

    async def program(hands: Hands) -> None:
        for _ in range(passes):
            await one_pass(hands, is_dead=dead.__contains__)

    return program


def looks_at_what_is_due() -> Program:
    """Do what is due, as a pass of the sweep does: deadlines, expiries, removals."""

    async def program(hands: Hands) -> None:
        await one_pass(hands, only_due=True)

    return program


def settles(*, drives: bool = False) -> Program:
    """Look at the wait of the key's highest claim, as every reader of a wait does."""

    async def program(hands: Hands) -> None:
        actor = hands.actor()
        top = await actor.top(KEY)
        if top is not None and isinstance(top.value, Claim):
            await settle(actor, KEY, Stored(top.value, top.number, top.at))
        if drives:
            await go_on(hands, actor.owed)

    return program


def removes(run: str) -> Program:
    """Begin to remove a run; the sweep does the rest when it is due."""

    async def program(hands: Hands) -> None:
        await removal.begin(hands.actor(), run_id(run), "test")

    return program


# -- devices -----------------------------------------------------------------------------------------------------


def adds_device() -> Program:
    """Add the device, as an operator does."""

    async def program(hands: Hands) -> None:
        await operations.add(Registry(hands.store, hands.source), DEVICE.id, by="test", draw=lambda _: 0)

    return program


def revokes_device() -> Program:
    """Revoke the device, through another instance than the one that it is connected to."""

    async def program(hands: Hands) -> None:
        # By a clock that stands still: the same schedule leaves the same records.
        await operations.revoke(Registry(hands.store, hands.source), DEVICE.id, by="test", clock=stopped_at(0))

    return program


def signals_if_authorised(*signals: str, definition: Definition) -> Program:
    """Be the device's gateway: before each signal look for changes, and let it pass only if the device still may."""

    async def program(hands: Hands) -> None:
        registry = Registry(hands.store, hands.source)
        await registry.load()
        for signal in signals:
            since = await hands.store.now()
            await registry.refresh()
            device = registry.device(DEVICE.id)
            if device is None or not device.secrets:
                return
            hands.said.append(LetPass(DEVICE.id, since))
            await sends(signal, definition, drives=False)(hands)

    return program


def in_turn(*programs: Program) -> Program:
    """Do one thing after another."""

    async def program(hands: Hands) -> None:
        for each in programs:
            await each(hands)

    return program


def half(program: Program, steps: int) -> Program:
    """Do the first `steps` operations of a program, and die."""

    async def first(hands: Hands) -> None:
        coroutine = program(hands)
        try:
            request = coroutine.send(None)
            for _ in range(steps):
                request = coroutine.send(await Asked(request))
        finally:
            coroutine.close()

    return first
