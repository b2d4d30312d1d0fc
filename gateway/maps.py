"""Maps: what devices publish that cannot be told what to publish, turned into signals.

A map names a topic filter, the device whose signal it becomes, when it applies and what the signal's payload is: CEL
over `topic` (its levels) and `payload` (the JSON value, or the text when it is none). Compiled at the start. The mapped
device's grants and limits apply, and it is answered, as if it had sent the signal itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec

from devices.grants import covers, filter_problem
from engine.errors import BadInput
from engine.limits import MAX_EXPRESSION_CHARACTERS, MAX_PAYLOAD_BYTES
from engine.names import is_name, is_signal_id
from gateway.listener.filters import matches

MAX_MAPS: Final = 1_000
_LEAST, _MOST = -(2**63), 2**63 - 1
_FAULTS: Final = (RuntimeError, ValueError, TypeError, OverflowError)  # what the binding raises


class MapSettings(Protocol):
    """A `[[map]]` of the configuration. `via` is who may publish there on the listener, "" the device itself."""

    @property
    def topic(self) -> str: ...

    @property
    def device(self) -> str: ...

    @property
    def signal(self) -> str: ...

    @property
    def when(self) -> str: ...

    @property
    def payload(self) -> str: ...

    @property
    def id(self) -> str: ...

    @property
    def via(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Mapped:
    """A signal that a map makes: the device that it is from, its topic in the short form, and its payload."""

    device: str
    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one map for one message. `why` says in words why it makes no signal, if it makes none."""

    number: int
    mapped: Mapped | None
    why: str = ""


class _NoUse(Exception):
    """An expression's value is of no use; the text says why, and holds nothing of the message."""


@dataclass(frozen=True, slots=True)
class _Map:
    number: int
    topic: str
    device: str
    signal: str
    via: str
    when: Any
    payload: Any
    id: Any

    def apply(self, env: dict[str, object]) -> Mapped:
        if self.when is not None and _evaluate(self.when, env, "when") is not True:
            raise _NoUse("`when` is not true")
        value = _evaluate(self.payload, env, "payload") if self.payload is not None else env["payload"]
        if not isinstance(value, dict):
            raise _NoUse("`payload` does not give an object")
        text = _json(value)
        tail = ""
        if self.id is not None:
            signal_id = _evaluate(self.id, env, "id")
            if not isinstance(signal_id, str) or not is_signal_id(signal_id):
                raise _NoUse("`id` does not give a signal id (A-Z a-z 0-9 _ -)")
            tail = f"/{signal_id}"
        return Mapped(self.device, f"signals/{self.signal}{tail}", text)


class Maps:
    """All maps of a configuration. Made once, at the start; raises `BadInput` that names every problem.

    `places` says where each one is written, as far as that is known.
    """

    def __init__(self, settings: Sequence[MapSettings] = (), places: Sequence[str] = ()) -> None:
        where = [f"{place}: " for place in places] or [""] * len(settings)
        problems = [
            f"{place}map {number}: {problem}"
            for number, (it, place) in enumerate(zip(settings, where, strict=True), start=1)
            for problem in _problems(it)
        ]
        problems += _overlaps(settings)
        if len(settings) > MAX_MAPS:
            problems.append(f"there are at most {MAX_MAPS} maps")
        if problems:
            raise BadInput("the maps have problems", hint="`wayside map test` tries one", problems=tuple(problems))
        self._maps = [_compiled(at, it) for at, it in enumerate(settings, start=1)]

    def __bool__(self) -> bool:
        return bool(self._maps)

    @property
    def filters(self) -> list[str]:
        """List the topic filters to subscribe to: those that no other one covers."""
        all_of_them = list(dict.fromkeys(it.topic for it in self._maps))
        return [it for it in all_of_them if not any(other != it and covers(other, it) for other in all_of_them)]

    def read(self, topic: str, payload: bytes, *, via: str | None = None) -> list[Mapped]:
        """Give the signals that a message becomes; with `via`, by the maps that its publisher may use."""
        return [it.mapped for it in self.tried(topic, payload, via=via) if it.mapped is not None]

    def tried(self, topic: str, payload: bytes, *, via: str | None = None) -> Iterator[Tried]:
        """Give what every map with a matching topic makes of a message."""
        matching = [it for it in self._maps if matches(it.topic, topic) and via in {None, it.via or it.device}]
        if not matching:
            return
        try:
            env: dict[str, object] = {"topic": topic.split("/"), "payload": _value(payload)}
        except _NoUse as no:
            yield from (Tried(it.number, None, str(no)) for it in matching)
            return
        for it in matching:
            try:
                yield Tried(it.number, it.apply(env))
            except _NoUse as no:
                yield Tried(it.number, None, str(no))


# -- values ----------------------------------------------------------------------------------------------------------


def _value(payload: bytes) -> object:
    """Read a payload as JSON, else as text: `ON`, `{"contact":false}`, `21.5`."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise _NoUse("the payload is too large")
    try:
        value: object = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            value = payload.decode()
        except UnicodeDecodeError:
            raise _NoUse("the payload is not text") from None
    _check(value, 0)
    return value


def _check(value: object, depth: int) -> None:
    """Refuse what an expression cannot hold."""
    if depth > 16:
        raise _NoUse("the payload is nested too deeply")
    match value:
        case str() if "\0" in value:
            raise _NoUse("the payload holds a NUL character")
        case int() if not _LEAST <= value <= _MOST:
            raise _NoUse("the payload holds an integer of more than 64 bits")
        case dict():
            for name, inner in value.items():
                _check(name, depth)
                _check(inner, depth + 1)
        case list():
            for inner in value:
                _check(inner, depth + 1)


def _json(value: dict[Any, Any]) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, sort_keys=True).encode()
    except (TypeError, ValueError):
        raise _NoUse("`payload` gives a value that JSON does not have") from None


# -- expressions -----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _runtime() -> tuple[Any, Any]:
    from cel_expr_python import cel  # noqa: PLC0415 - a large library, needed when there is a map

    variables = {"topic": cel.Type.List(cel.Type.STRING), "payload": cel.Type.DYN}
    return cel.NewEnv(variables=variables), cel.Type.ERROR


def _compile(text: str) -> Any:  # noqa: ANN401 - the library's own
    """Compile an expression; raises ValueError with what the compiler says."""
    if len(text) > MAX_EXPRESSION_CHARACTERS:
        raise ValueError(f"an expression has at most {MAX_EXPRESSION_CHARACTERS} characters")
    try:
        return _runtime()[0].compile(text)
    except _FAULTS as fault:
        first = str(fault).split("\n", 1)[0].partition("ERROR: ")[2] or "it does not compile"
        raise ValueError(first.partition(" (in container")[0]) from None


def _evaluate(program: Any, env: dict[str, object], name: str) -> object:  # noqa: ANN401
    try:
        result = program.eval(data=env)
        if result.type() == _runtime()[1]:
            raise _NoUse(f"`{name}` could not be evaluated over this message")
        value: object = result.plain_value()
    except _FAULTS:
        raise _NoUse(f"`{name}` could not be evaluated over this message") from None
    return value


def _compiled(number: int, it: MapSettings) -> _Map:
    return _Map(
        number=number,
        topic=it.topic,
        device=it.device,
        signal=it.signal,
        via=it.via,
        when=_compile(it.when) if it.when else None,
        payload=_compile(it.payload) if it.payload else None,
        id=_compile(it.id) if it.id else None,
    )


def _problems(it: MapSettings) -> Iterator[str]:
    if problem := filter_problem(it.topic):
        yield f"topic: {problem}"
    if not is_name(it.device):
        yield "device: this is no name of a device"
    if it.via and not is_name(it.via):
        yield "via: this is no name of a device"
    workflow, slash, key = it.signal.partition("/")
    if not slash or not is_name(workflow) or not is_name(key):
        yield "signal: a signal is written WORKFLOW/KEY"
    for name in ("when", "payload", "id"):
        text = getattr(it, name)
        if text:
            try:
                _compile(text)
            except ValueError as fault:
                yield f"{name}: {fault}"


def _overlaps(settings: Sequence[MapSettings]) -> Iterator[str]:
    """Refuse filters that overlap without one covering the other: a broker may deliver their messages twice."""
    filters = list(dict.fromkeys(it.topic for it in settings if not filter_problem(it.topic)))
    for at, one in enumerate(filters):
        for other in filters[at + 1 :]:
            if _overlap(one, other) and not covers(one, other) and not covers(other, one):
                yield f"the maps' topics {one} and {other} overlap: write one filter that covers both, or part them"


def _overlap(one: str, other: str) -> bool:
    left, right = one.split("/"), other.split("/")
    for a, b in zip(left, right, strict=False):
        if "#" in {a, b}:
            return True
        if "+" not in {a, b} and a != b:
            return False
    longer = left if len(left) > len(right) else right
    return len(left) == len(right) or longer[min(len(left), len(right))] == "#"
