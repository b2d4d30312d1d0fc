"""Where settings come from: flags over environment over `wayside.toml` over defaults.

All problems are found at once, each with where it stands: the flag, the variable, or the file and line. A name that
nobody knows is a warning with the nearest known one, so that a file for a newer build still starts this one.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from engine.errors import BadInput
from gateway.settings import Address, SettingPath, Settings, build, is_table, known, parse, parse_path

PREFIX: Final = "WAYSIDE_"
FILE_NAME: Final = "wayside.toml"
# Variables of the command line and of the file's own place; they are no settings of the gateway.
CLIENT_VARIABLES: Final = frozenset(
    PREFIX + name for name in ("SERVER", "TOKEN", "TOKEN_FILE", "CA", "CONFIG", "DEBUG", "PYTHON")
)
SECRETS: Final[frozenset[SettingPath]] = frozenset(
    {("store",), ("trace",), ("bridge", "url"), ("bridge", "auth_secret")}
)
_DEFAULT: Final = "default"
# Each door without TLS, and the one with.
_PLAIN: Final = {"mqtt": "mqtts", "mqtt_ws": "mqtt_wss", "http": "https"}


@dataclass(frozen=True, slots=True)
class Value:
    """A setting as it was given, and where; of a list of tables, such as `[[map]]`, also where each of them is."""

    path: SettingPath
    value: object
    origin: str
    items: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """Checked settings, where each given one and each `[[map]]` came from, and what should be said to a person."""

    settings: Settings
    origins: Mapping[str, str]
    warnings: tuple[str, ...]
    maps: tuple[str, ...] = ()


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
    problems: list[str] = []
    layers = _layers(flags, config, os.environ if environment is None else environment, problems)
    settings = _check(layers, problems)
    warnings = tuple(warning for value in layers if (warning := _unknown(value)))
    if settings is None:
        # An unknown name alone keeps nobody from starting; beside a mistake it may be the reason for it.
        problems += warnings
        raise BadInput(
            "the settings have problems" if len(problems) > 1 else "a setting is wrong",
            hint="mend what is listed and start again; `wayside serve --help` names the settings",
            problems=tuple(problems),
        )
    maps = _last(layers, "map")
    places = maps.items if maps is not None and len(maps.items) == len(settings.map) else ()
    return Loaded(settings, {".".join(v.path): v.origin for v in layers}, warnings, places)


def data_directory(
    flags: Mapping[str, object], *, config: str | None = None, environment: Mapping[str, str] | None = None
) -> Path:
    """Name the data directory that `load` would, whatever is wrong with other settings."""
    data = _last(_layers(flags, config, os.environ if environment is None else environment, []), "data")
    assert data is not None
    return parse_path(data.value)


def _layers(
    flags: Mapping[str, object], config: str | None, environment: Mapping[str, str], problems: list[str]
) -> list[Value]:
    """Read what is given, the weakest first; the data directory is always among it."""
    given = [
        *_from_environment(environment, problems),
        *(Value(tuple(name.split(".")), v, f"--{name}") for name, v in flags.items() if v is not None),
    ]
    data = _last(given, "data") or Value(("data",), default_data(environment), _DEFAULT)
    named = config or environment.get(PREFIX + "CONFIG")
    file = Path(named).expanduser() if named else Path(str(data.value)).expanduser() / FILE_NAME
    layers = [*_from_file(file, problems, required=named is not None), *given]
    if _last(layers, "data") is None:
        layers.append(data)
    return layers


def _last(values: Sequence[Value], name: str) -> Value | None:
    return next((value for value in reversed(values) if value.path == (name,)), None)


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
        elif path == ("http_hosts",):
            yield Value(path, [host.strip() for host in environment[name].split(",") if host.strip()], name)
        else:
            yield Value(path, environment[name], name)


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
        problems.append(_placed(file, str(fault)))
        return
    lines = _lines(text)
    for path, value in _leaves(document):
        origin = f"{file}:{lines[path]}" if path in lines else str(file)
        numbers = range(1, len(value) + 1) if isinstance(value, list) else ()
        items = tuple(f"{file}:{lines[*path, str(n)]}" for n in numbers if (*path, str(n)) in lines)
        yield Value(path, value, origin, items)


def _placed(file: Path, said: str) -> str:
    """Put the line that the TOML reader names where an editor looks for it."""
    found = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", said, re.DOTALL)
    return f"{file}:{found[2]}: {found[1]} (column {found[3]})" if found else f"{file}: {said}"


def _leaves(table: Mapping[str, object], above: SettingPath = ()) -> Iterator[tuple[SettingPath, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


def _lines(text: str) -> dict[SettingPath, int]:
    """Find the line of each `name = value`, and of the first and each `[[name]]` as `name.1` and so on.

    What is written in another way (inline tables) has none.
    """
    table: SettingPath = ()
    lines: dict[SettingPath, int] = {}
    for at, line in enumerate(text.splitlines(), start=1):
        if listed := re.match(r"\s*\[\[([\w.\- ]+)\]\]", line):
            name = tuple(part.strip() for part in listed[1].split("."))
            lines.setdefault(name, at)
            table = (*name, str(next(n for n in count(1) if (*name, str(n)) not in lines)))
            lines[table] = at
        elif header := re.match(r"\s*\[([\w.\- ]+)\]", line):
            table = tuple(part.strip() for part in header[1].split("."))
        elif entry := re.match(r"\s*([\w\-]+(?:\s*\.\s*[\w\-]+)*)\s*=", line):
            lines.setdefault((*table, *(part.strip() for part in entry[1].split("."))), at)
    return lines


def _unknown(value: Value) -> str:
    if value.path in known():
        return ""
    dotted = [".".join(path) for path, kind in known().items() if not is_table(kind)]
    nearest = difflib.get_close_matches(".".join(value.path), dotted, n=1, cutoff=0.5)
    meant = f"; did you mean {_spelled(nearest[0], value.origin)}?" if nearest else ""
    return f"{value.origin}: there is no setting {_spelled('.'.join(value.path), value.origin)}{meant}"


def _spelled(dotted: str, origin: str) -> str:
    return PREFIX + dotted.upper().replace(".", "__") if origin.startswith(PREFIX) else dotted


def _check(layers: Sequence[Value], problems: list[str]) -> Settings | None:
    """Parse every value that is in force; name what is wrong in `problems`, and give None if there is anything."""
    in_force = {value.path: value for value in layers if value.path in known()}
    parsed: dict[SettingPath, object] = {}
    for path, value in in_force.items():
        try:
            parsed[path] = parse(path, value.value)
        except ValueError as fault:
            problems += _each_wrong(value) or [f"{value.origin}: {'.'.join(path)}: {fault}"]
    _check_doors(in_force, parsed, problems)
    if problems:
        return None
    settings = build(parsed)
    _check_tls(in_force, settings, problems)
    return None if problems else settings


def _each_wrong(value: Value) -> list[str]:
    """Name what is wrong with each table of a list, where it stands."""
    problems = []
    given = value.value if isinstance(value.value, list) else []
    for number, (item, origin) in enumerate(zip(given, value.items, strict=False), start=1):
        try:
            parse(value.path, [item])
        except ValueError as fault:
            problems.append(f"{origin}: {'.'.join(value.path)} {number}: {fault}")
    return problems


def _check_doors(
    in_force: Mapping[SettingPath, Value], parsed: Mapping[SettingPath, object], problems: list[str]
) -> None:
    """Refuse a door without TLS that other machines can reach, unless somebody said that this is meant."""
    if parsed.get(("allow_plaintext",), False):
        return
    for name, encrypted in _PLAIN.items():
        address = parsed.get((name,))
        if not isinstance(address, Address) or address.loopback:
            continue
        if name == "http" and parsed.get(("trusted_proxies",)):
            continue  # it answers the proxies alone
        proxies = ", name the reverse proxy in trusted_proxies" if name == "http" else ""
        problems.append(
            f"{in_force[name,].origin}: {name}: {address} can be reached from other machines, and without TLS "
            f"anybody on the way reads tokens and signals; use {encrypted} (`wayside tls init` makes certificates)"
            f"{proxies}, stay on 127.0.0.1, or say allow_plaintext = true (--allow-plaintext)"
        )


def _check_tls(in_force: Mapping[SettingPath, Value], settings: Settings, problems: list[str]) -> None:
    """See to it that a door with TLS has its files."""
    doors = [name for name in _PLAIN.values() if getattr(settings, name) is not None]
    if not doors:
        return
    files = settings.tls_files
    for name, file in (("certificate", files.certificate), ("key", files.key), ("client_ca", files.client_ca)):
        if file is None or file.is_file():
            continue
        value = in_force.get(("tls", name)) or in_force[doors[0],]
        what = "the clients' authority" if name == "client_ca" else f"the {name}"
        problems.append(
            f"{value.origin}: {doors[0]}: {what} {file} is not there; `wayside tls init` makes it, or [tls] {name} "
            "names another"
        )
    if settings.tls.client_required and files.client_ca is None:
        problems.append(f"{in_force['tls', 'client_required'].origin}: tls.client_required: there is no tls.client_ca")
