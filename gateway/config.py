"""Settings of a gateway: flags over environment over `wayside.toml` over defaults.

All problems are found at once, each with where it stands: the flag, the variable, or the file and line. A name that
nobody knows is a warning with the nearest known one, so that a file for a newer build still starts this one.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from engine import limits
from engine.errors import BadInput

PREFIX: Final = "WAYSIDE_"
FILE_NAME: Final = "wayside.toml"
# Variables of the command line and of the file's own place; they are no settings of the gateway.
CLIENT_VARIABLES: Final = frozenset(
    PREFIX + name for name in ("SERVER", "TOKEN", "TOKEN_FILE", "CONFIG", "DEBUG", "PYTHON")
)
SECRETS: Final = frozenset({("store",)})
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Address(NamedTuple):
    """A host and a port to listen on; port 0 takes a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Tell whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_address(value: object) -> Address:
    """Read `HOST:PORT`, `[IPv6]:PORT` or `:PORT` (loopback); raises ValueError with what would do."""
    if isinstance(value, Address):
        return value
    found = re.fullmatch(
        r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^\s:\[\]/]*)):(?P<port>\d{1,5})", str(value).strip()
    )
    if found is None or int(found["port"]) > 65_535:
        raise ValueError("an address is written HOST:PORT, such as 127.0.0.1:1883")
    return Address(found["six"] or found["host"] or "127.0.0.1", int(found["port"]))


def parse_duration(value: object) -> float:
    """Read seconds, or a number with a unit: `90`, `90s`, `15m`, `1h`, `30d`, `2w`; raises ValueError."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", str(value).strip())
    if found is None:
        raise ValueError("a time span is a number of seconds, or one with a unit: 90s, 15m, 1h, 30d")
    return float(found[1]) * _UNITS[found[2] or "s"]


def _known_store(value: str) -> str:
    scheme = value.split(":", 1)[0] if re.match(r"[a-z0-9+]{2,}:", value) else ""
    if scheme not in {"", "sqlite", "memory"}:
        raise ValueError("this build stores in sqlite:///PATH")
    return value


Seconds = Annotated[float, BeforeValidator(parse_duration)]
ListenAddress = Annotated[Address, BeforeValidator(parse_address)]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", arbitrary_types_allowed=True)


class EngineTable(_Table):
    """`[engine]`: the sweep, and how long ended runs are kept (0: until somebody removes them)."""

    sweep_interval: Annotated[Seconds, Field(ge=0.1, le=300)] = limits.SWEEP_INTERVAL_SECONDS
    heartbeat: Annotated[Seconds, Field(ge=0.5, le=limits.STALE_AFTER_SECONDS / 2)] = limits.HEARTBEAT_SECONDS
    retention: Annotated[Seconds, Field(ge=0)] = 0.0
    stop_grace: Annotated[Seconds, Field(ge=0, le=300)] = 10.0


class ListenerTable(_Table):
    """`[listener]`: bounds of the MQTT door as a whole."""

    max_connections: Annotated[int, Field(ge=1, le=1_000_000)] = 12_000
    connects_per_second: Annotated[float, Field(gt=0, le=100_000)] = 500.0
    connects_burst: Annotated[int, Field(ge=1, le=1_000_000)] = 2_000


class LimitsTable(_Table):
    """`[limits]`: what one device may do, as events a second and how many at once."""

    signals_per_second: Annotated[float, Field(gt=0, le=100_000)] = 5.0
    signals_burst: Annotated[int, Field(ge=1, le=100_000)] = 20
    runs_per_second: Annotated[float, Field(gt=0, le=100_000)] = 1.0
    runs_burst: Annotated[int, Field(ge=1, le=100_000)] = 5
    reads_per_second: Annotated[float, Field(gt=0, le=100_000)] = 1.0
    reads_burst: Annotated[int, Field(ge=1, le=100_000)] = 5
    connects_per_second: Annotated[float, Field(gt=0, le=100_000)] = 1.0
    connects_burst: Annotated[int, Field(ge=1, le=100_000)] = 20


class LogTable(_Table):
    """`[log]`: `format` auto is a console on a terminal and JSON lines otherwise."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class Settings(_Table):
    """All settings of a gateway, checked. `data` is absolute."""

    data: Path
    workflows: Path | None = None
    store: Annotated[str, AfterValidator(_known_store)] | None = None
    mqtt: ListenAddress = Address("127.0.0.1", 1883)
    http: ListenAddress = Address("127.0.0.1", 8080)
    http_hosts: tuple[str, ...] = ()
    allow_plaintext: bool = False
    engine: EngineTable = EngineTable()
    listener: ListenerTable = ListenerTable()
    limits: LimitsTable = LimitsTable()
    log: LogTable = LogTable()

    @property
    def workflow_directory(self) -> Path:
        return self.workflows or self.data / "workflows"

    @property
    def store_url(self) -> str:
        return self.store or str(self.data / "wayside.db")


@dataclass(frozen=True, slots=True)
class Value:
    """A setting as it was given, and where."""

    path: tuple[str, ...]
    value: object
    origin: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """Checked settings, where each given one came from, and what should be said to a person."""

    settings: Settings
    origins: Mapping[str, str]
    warnings: tuple[str, ...]


def default_data(environment: Mapping[str, str]) -> Path:
    """Name the data directory when none is given: the user's own, the same from wherever a command is run."""
    base = environment.get("XDG_DATA_HOME")
    return (Path(base) if base else Path(environment.get("HOME", ".")) / ".local" / "share") / "wayside"


def load(
    flags: Mapping[str, object], *, config: str | None = None, environment: Mapping[str, str] | None = None
) -> Loaded:
    """Read every layer and check it; raises `BadInput` whose `problems` name every mistake and where it stands.

    `flags` maps a dotted setting (`mqtt`, `engine.retention`) to what was typed; None means it was not given.
    """
    environment = os.environ if environment is None else environment
    problems: list[str] = []
    given = list(_from_environment(environment, problems))
    typed = [Value(tuple(name.split(".")), v, f"--{name}") for name, v in flags.items() if v is not None]
    data = next((v.value for v in [*typed, *given] if v.path == ("data",)), None)
    directory = Path(str(data)).expanduser().absolute() if data else default_data(environment).absolute()
    named = config or environment.get(PREFIX + "CONFIG")
    file = Path(named).expanduser() if named else directory / FILE_NAME
    layers = [*_from_file(file, problems, required=named is not None), *given, *typed]
    if data is None:
        found = [v for v in layers if v.path == ("data",)]
        directory = Path(str(found[-1].value)).expanduser().absolute() if found else directory
    layers.append(Value(("data",), directory, next((v.origin for v in layers if v.path == ("data",)), "default")))
    warnings = [w for value in layers if (w := _unknown(value))]
    settings, more = _check(layers)
    problems += more
    if settings is None or problems:
        raise BadInput(
            "the settings have problems" if len(problems) > 1 else "a setting is wrong",
            hint="mend what is listed and start again; `wayside serve --help` names the settings",
            problems=tuple(problems),
        )
    return Loaded(settings, {".".join(v.path): v.origin for v in layers}, tuple(warnings))


def _from_environment(environment: Mapping[str, str], problems: list[str]) -> Iterator[Value]:
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in CLIENT_VARIABLES:
            continue
        path = tuple(name.removeprefix(PREFIX).lower().split("__"))
        if path[-1].endswith("_file") and (plain := (*path[:-1], path[-1].removesuffix("_file"))) in SECRETS:
            try:
                yield Value(plain, Path(environment[name]).read_text().strip(), name)
            except (OSError, UnicodeDecodeError) as fault:
                problems.append(f"{name}: the file cannot be read ({type(fault).__name__})")
            continue
        value: object = environment[name]
        if path == ("http_hosts",):
            value = [host.strip() for host in environment[name].split(",") if host.strip()]
        yield Value(path, value, name)


def _from_file(file: Path, problems: list[str], *, required: bool) -> Iterator[Value]:
    try:
        text = file.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except FileNotFoundError:
        if required:
            problems.append(f"{file}: there is no such file")
        return
    except (OSError, UnicodeDecodeError) as fault:
        problems.append(f"{file}: cannot be read ({type(fault).__name__})")
        return
    except tomllib.TOMLDecodeError as fault:
        problems.append(f"{file}: {fault}")
        return
    lines = _lines(text)
    for path, value in _leaves(document):
        yield Value(path, value, f"{file}:{lines[path]}" if path in lines else str(file))


def _leaves(table: Mapping[str, object], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    for name, value in table.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """Find the line of each `name = value`; what is written in another way (inline tables) has none."""
    table: tuple[str, ...] = ()
    lines: dict[tuple[str, ...], int] = {}
    for at, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[([\w.\- ]+)\]", line):
            table = tuple(part.strip() for part in header[1].split("."))
        elif entry := re.match(r"\s*([\w\-]+(?:\s*\.\s*[\w\-]+)*)\s*=", line):
            lines.setdefault((*table, *(part.strip() for part in entry[1].split("."))), at)
    return lines


def known_names() -> dict[tuple[str, ...], type[_Table] | None]:
    """List every setting by its path; a table's own path maps to its class."""
    names: dict[tuple[str, ...], type[_Table] | None] = {}
    for name, field in Settings.model_fields.items():
        inner = (
            field.annotation if isinstance(field.annotation, type) and issubclass(field.annotation, _Table) else None
        )
        names[(name,)] = inner
        names.update({(name, sub): None for sub in (inner.model_fields if inner else ())})
    return names


def _unknown(value: Value) -> str:
    known = known_names()
    if value.path in known:
        return ""
    dotted = [".".join(path) for path, table in known.items() if table is None]
    nearest = difflib.get_close_matches(".".join(value.path), dotted, n=1, cutoff=0.5)
    meant = f"; did you mean {_spelled(nearest[0], value.origin)}?" if nearest else ""
    return f"{value.origin}: there is no setting {_spelled('.'.join(value.path), value.origin)}{meant}"


def _spelled(dotted: str, origin: str) -> str:
    return PREFIX + dotted.upper().replace(".", "__") if origin.startswith(PREFIX) else dotted


def _check(layers: list[Value]) -> tuple[Settings | None, list[str]]:
    merged: dict[str, object] = {}
    origins: dict[tuple[str, ...], str] = {}
    for layer in layers:
        origins[layer.path] = layer.origin
        inner = merged
        for name in layer.path[:-1]:
            deeper = inner.get(name)
            inner[name] = inner = deeper if isinstance(deeper, dict) else {}
        inner[layer.path[-1]] = layer.value
    problems = _exposed(merged, origins)
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as fault:
        wrong = fault.errors(include_input=False, include_url=False)
        return None, [*(_in_words(e["loc"], e["msg"], origins) for e in wrong), *problems]
    return settings, problems


def _exposed(merged: Mapping[str, object], origins: Mapping[tuple[str, ...], str]) -> list[str]:
    """Name the doors that others can reach without TLS, unless that was said to be wanted."""
    if str(merged.get("allow_plaintext", False)).lower() in {"true", "1", "yes", "on"}:
        return []
    problems = []
    for name in ("mqtt", "http"):
        try:
            address = parse_address(merged.get(name, "localhost:0"))
        except ValueError:
            continue  # said by the check of the setting itself
        if not address.loopback:
            problems.append(
                f"{origins[(name,)]}: {name}: {address} can be reached from other machines, and without TLS "
                "anybody on the way reads tokens and signals; use 127.0.0.1, or say allow_plaintext = true "
                "(--allow-plaintext)"
            )
    return problems


def _in_words(loc: tuple[int | str, ...], message: str, origins: Mapping[tuple[str, ...], str]) -> str:
    path = tuple(str(part) for part in loc)
    origin = next((origins[path[:n]] for n in range(len(path), 0, -1) if path[:n] in origins), "default")
    return f"{origin}: {'.'.join(path)}: {message.removeprefix('Value error, ')}"
