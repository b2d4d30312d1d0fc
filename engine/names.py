"""Store keys. They are built and taken apart here and nowhere else.

Numbers are zero-padded so that key order is number order. A prefix ends in `/`, so that no name is a prefix of another.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from msgspec import Struct

from engine.limits import MAX_NAME_CHARACTERS, NAME_PATTERN, NUMBER_DIGITS, SIGNAL_ID_PATTERN

NAME: Final = re.compile(NAME_PATTERN)
SIGNAL_ID: Final = re.compile(SIGNAL_ID_PATTERN)
RECORD_ID: Final = re.compile(r"[a-z0-9]{26}")

_NUMBER: Final = f"%0{NUMBER_DIGITS}d"
FORMAT: Final = "meta/format"
OPEN: Final = "open/"
READY: Final = "ready/"
EARLY: Final = "early/"
DUE: Final = "due/"
DRIVING: Final = "driving/"
INSTANCES: Final = "instances/"
RUNS: Final = "runs/"
WAITS: Final = "waits/"
CHANGES: Final = "changes/"
OUTBOX: Final = "outbox/"
AUDIT: Final = "audit/"
SEEN: Final = "seen/"
# Sorts above every character that a key may hold: `after=prefix + HIGHEST` skips everything under the prefix.
HIGHEST: Final = "\x7f"


def is_name(text: str) -> bool:
    """Tell whether `text` may name a workflow, a key or a device: one path segment, one topic level."""
    # Short ones only, so that nobody fills the memory with what is no name.
    return len(text) <= MAX_NAME_CHARACTERS and _is_name(text)


@lru_cache(maxsize=16_384)
def _is_name(text: str) -> bool:
    return NAME.fullmatch(text) is not None


def is_signal_id(text: str) -> bool:
    """Tell whether `text` may identify a signal."""
    return SIGNAL_ID.fullmatch(text) is not None


def is_record_id(text: str) -> bool:
    """Tell whether `text` has the shape of a run's, a wait's or a receipt's id."""
    return RECORD_ID.fullmatch(text) is not None


def number(value: int) -> str:
    """Write a number as it stands in keys."""
    return _NUMBER % value


def number_of(key: str) -> int:
    """Read the number that ends a key."""
    return int(key.rsplit("/", 1)[1])


def raised_format(value: int | None = None) -> str:
    """Name the record of a format that a store was raised to, or the prefix of all of them."""
    return f"{FORMAT}/" if value is None else f"{FORMAT}/{number(value)}"


class Key(Struct, frozen=True):
    """A declared key of a workflow: what a signal is addressed to."""

    workflow: str
    key: str

    @property
    def claims(self) -> str:
        return f"claims/{self.workflow}/{self.key}/"

    def claim(self, n: int) -> str:
        return self.claims + number(n)

    @property
    def slots(self) -> str:
        return f"pending/{self.workflow}/{self.key}/"

    def slot(self, slot: int) -> str:
        return f"{self.slots}{number(slot)}/"

    def pending(self, slot: int, m: int) -> str:
        return self.slot(slot) + number(m)

    def early(self, slot: int, m: int) -> str:
        return f"{EARLY}{self.workflow}/{self.key}/{number(slot)}/{number(m)}"


class PendingAt(Struct, frozen=True):
    """Where a pending signal is stored."""

    key: Key
    slot: int
    m: int


def parse_pending(text: str) -> PendingAt:
    """Take apart `<prefix>/<workflow>/<key>/<slot>/<m>`, of a pending signal or of its index records."""
    parts = text.split("/")[-4:]
    return PendingAt(Key(parts[0], parts[1]), int(parts[2]), int(parts[3]))


def outcome(wait: str) -> str:
    return f"outcomes/{wait}"


def registration(wait: str) -> str:
    return WAITS + wait


def log(run: str) -> str:
    return f"{RUNS}{run}/"


def event(run: str, seq: int) -> str:
    return log(run) + number(seq)


def run_of(key: str) -> str:
    """Read the run out of a key under `runs/`, `open/` or `ready/`."""
    return key.split("/", 2)[1]


def removing(run: str) -> str:
    """Name the mark of a run whose removal has begun: it is shown no more."""
    return f"removing/{run}"


def claimed_by(run: str) -> str:
    return f"claimed/{run}/"


def claimed(run: str, key: Key, n: int) -> str:
    """Name the record that says: `run` may have made claim `n` of `key`. It is created before the claim."""
    return f"{claimed_by(run)}{key.workflow}/{key.key}/{number(n)}"


def parse_claimed(text: str) -> tuple[Key, int]:
    """Take `claimed/<run>/<workflow>/<key>/<n>` apart into key and number."""
    _, _, workflow, key, n = text.split("/")
    return Key(workflow, key), int(n)


def opened(run: str) -> str:
    return f"{OPEN}{run}/"


def open_since(run: str, seq: int) -> str:
    return opened(run) + number(seq)


def ready_of(run: str) -> str:
    return f"{READY}{run}/"


def ready(run: str, wait: str, nonce: str) -> str:
    """Name the record that says: `run` may need continuing because of `wait` (`-`: because of its own log)."""
    return f"{ready_of(run)}{wait}/{nonce}"


def parse_ready(key: str) -> tuple[str, str]:
    """Take `ready/<run>/<wait or ->/<nonce>` apart into run and wait."""
    _, run, wait, _ = key.split("/")
    return run, wait


def driving_by(instance: str) -> str:
    return f"{DRIVING}{instance}/"


def driving(instance: str, run: str, nonce: str) -> str:
    return f"{driving_by(instance)}{run}/{nonce}"


def parse_driving(key: str) -> tuple[str, str]:
    """Take `driving/<instance>/<run>/<nonce>` apart into instance and run."""
    _, instance, run, _ = key.split("/")
    return instance, run


def chain(kind: str, sender: str, address: str, signal_id: str) -> str:
    """Name the chain of attempts of one identified signal; `address` is `<workflow>/<key>` or `-/<wait id>`."""
    return f"sent/{kind}/{sender}/{address}/{signal_id}/"


def attempt(chain_prefix: str, a: int) -> str:
    return chain_prefix + number(a)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def minute(moment: datetime) -> str:
    """Write the minute that `moment` falls into."""
    since = moment - _EPOCH
    return number(since.days * 1440 + since.seconds // 60)


def due(moment: datetime, kind: str, target: str) -> str:
    """Name the record that says: look at `target` once `moment` has passed."""
    return f"{DUE}{minute(moment)}/{kind}/{target}"


def parse_due(key: str) -> tuple[str, str]:
    """Take `due/<minute>/<kind>/<target>` apart into kind and target."""
    _, _, kind, target = key.split("/", 3)
    return kind, target


def beats(instance: str) -> str:
    return f"{INSTANCES}{instance}/"


def instance_of(key: str) -> str:
    """Read the instance out of the key of a beat, or of a record of who was seen."""
    return key.split("/", 2)[1]


def beat(instance: str, n: int) -> str:
    return beats(instance) + number(n)


def revisions(kind: str, name: str) -> str:
    """Name the history of a device (`devices`) or an operator (`operators`)."""
    return f"{kind}/{name}/"


def change(n: int) -> str:
    return CHANGES + number(n)


def outbox(n: int) -> str:
    return OUTBOX + number(n)


def audit(day: str, instance: str, seq: int) -> str:
    """Name an audit event; `day` is `YYYYMMDD`."""
    return f"{AUDIT}{day}/{instance}/{number(seq)}"


def seen(instance: str, minute_of: str) -> str:
    """Name the record of whom an instance saw up to a minute."""
    return f"{SEEN}{instance}/{minute_of}"
