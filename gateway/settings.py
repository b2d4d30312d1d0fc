"""What can be set, with its bounds and defaults; how one value is read. Where values come from: `config`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from engine import limits
from gateway.bridge.url import parse_url

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_ADDRESS: Final = r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^\s:\[\]/]*)):(?P<port>\d{1,5})"


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
    found = re.fullmatch(_ADDRESS, str(value).strip())
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


def _parse_days(value: object) -> float:
    """Read a time span of whole days, as seconds; raises ValueError."""
    seconds = parse_duration(value)
    if seconds % _UNITS["d"]:
        raise ValueError("this is in whole days, such as 90d; 0 keeps everything")
    return seconds


def _parse_store(value: object) -> str:
    """Read a store's URL or path. A URL may hold a password: it is never quoted."""
    if not isinstance(value, str) or not value:
        raise ValueError("a store is a path or a URL, such as sqlite:///var/lib/wayside/wayside.db")
    return value


def _parse_broker(value: object) -> str:
    """Check a broker's URL. It may hold a password: it is never quoted."""
    try:
        _ = urlsplit(str(value).strip()).port
    except ValueError as fault:
        if str(fault).startswith("Port"):
            raise ValueError(
                "the port in a broker's URL is a number up to 65535 (in a password, / is written %2F)"
            ) from None
    parse_url(str(value))
    return str(value)


def _parse_collector(value: object) -> str:
    """Check the address of a collector of traces; "" for none. It may hold a password: it is never quoted."""
    if value == "" or (isinstance(value, str) and re.fullmatch(r"https?://[^\s/?#]+(?:/[^\s?#]*)?", value)):
        return str(value)
    raise ValueError("a collector is written http://HOST:PORT, such as http://127.0.0.1:4318 (OTLP over HTTP)")


def _parse_networks(value: object) -> tuple[str, ...]:
    """Check addresses or networks, given as a list or with commas between them."""
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        raise ValueError("a list of addresses or networks, such as 10.0.0.5 or 10.0.0.0/24")  # noqa: TRY004
    found = tuple(str(text).strip() for text in texts if str(text).strip())
    for text in found:
        try:
            ip_network(text)
        except ValueError:
            raise ValueError(f"{text!r} is neither an address nor a network such as 10.0.0.0/24") from None
    return found


def parse_path(value: object) -> Path:
    """Read a path: absolute, from where the command is run."""
    return Path(str(value)).expanduser().absolute()


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    pass


class EngineTable(_Table, frozen=True, kw_only=True):
    """`[engine]`: the sweep, and how long ended runs are kept (0: until somebody removes them)."""

    sweep_interval: Annotated[float, Meta(ge=0.1, le=300)] = limits.SWEEP_INTERVAL_SECONDS
    heartbeat: Annotated[float, Meta(ge=0.5, le=limits.STALE_AFTER_SECONDS / 2)] = limits.HEARTBEAT_SECONDS
    retention: Annotated[float, Meta(ge=0)] = 0.0
    stop_grace: Annotated[float, Meta(ge=0, le=300)] = 10.0


class ListenerTable(_Table, frozen=True, kw_only=True):
    """`[listener]`: bounds of the MQTT door as a whole."""

    max_connections: Annotated[int, Meta(ge=1, le=1_000_000)] = 12_000
    connects_per_second: Annotated[float, Meta(gt=0, le=100_000)] = 500.0
    connects_burst: Annotated[int, Meta(ge=1, le=1_000_000)] = 2_000


class LimitsTable(_Table, frozen=True, kw_only=True):
    """`[limits]`: what one device may do, as events a second and how many at once."""

    signals_per_second: Annotated[float, Meta(gt=0, le=100_000)] = 5.0
    signals_burst: Annotated[int, Meta(ge=1, le=100_000)] = 20
    runs_per_second: Annotated[float, Meta(gt=0, le=100_000)] = 1.0
    runs_burst: Annotated[int, Meta(ge=1, le=100_000)] = 5
    reads_per_second: Annotated[float, Meta(gt=0, le=100_000)] = 1.0
    reads_burst: Annotated[int, Meta(ge=1, le=100_000)] = 5
    connects_per_second: Annotated[float, Meta(gt=0, le=100_000)] = 1.0
    connects_burst: Annotated[int, Meta(ge=1, le=100_000)] = 20


class BridgeTable(_Table, frozen=True, kw_only=True):
    """`[bridge]`: the door to an external broker, open when there is a `url`. It may hold a password.

    `in_flight` bounds what is being decided at once, `max_backlog` how old a message may be that lay in the broker,
    `share` names a shared subscription in place of one active bridge. `verifiers` are the brokers whose form of each
    new token is kept beside ours, `auth_secret` is what a broker shows that asks here who may.
    """

    url: str | None = None
    client_id: Annotated[str, Meta(pattern=rf"^{limits.NAME_PATTERN}\Z")] = "wayside-bridge"
    in_flight: Annotated[int, Meta(ge=1, le=60_000)] = 512
    max_backlog: Annotated[float, Meta(ge=0, le=86_400)] = 30.0
    session_expiry: Annotated[float, Meta(ge=60, le=4_294_967_294)] = 86_400.0
    reconnect_max: Annotated[float, Meta(ge=1, le=3_600)] = 60.0
    short_form: bool = True
    share: Annotated[str, Meta(pattern=rf"^({limits.NAME_PATTERN})?\Z")] = ""
    verifiers: tuple[Literal["mosquitto", "nats"], ...] = ()
    auth_secret: Annotated[str, Meta(pattern=r"^([!-~]{16,256})?\Z")] = ""


class MapTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[map]]`: see `gateway.maps`."""

    topic: str
    device: str
    signal: str
    when: str = ""
    payload: str = ""
    id: str = ""
    via: str = ""


class AuditTable(_Table, frozen=True, kw_only=True):
    """`[audit]`: how long events are kept, in whole days (0: for ever), and where else this instance writes its own.

    `file` gets JSON lines and is rotated at `file_max_bytes`, `file_keep` older ones stay; `syslog` is a socket's path
    or `HOST:PORT` over UDP.
    """

    retention: Annotated[float, Meta(ge=0)] = 0.0
    file: Path | None = None
    file_max_bytes: Annotated[int, Meta(ge=10_000)] = 50_000_000
    file_keep: Annotated[int, Meta(ge=0, le=1_000)] = 5
    stdout: bool = False
    syslog: Annotated[str, Meta(pattern=r"^(/[!-~]+|[^\s/]+:[0-9]{1,5})?\Z")] = ""


class TlsFiles(NamedTuple):
    """The files that TLS is made of."""

    certificate: Path
    key: Path
    client_ca: Path | None


class TlsTable(_Table, frozen=True, kw_only=True):
    """`[tls]`: PEM files for `mqtts`, `mqtt_wss` and `https`; where none is named, those of `wayside tls init`.

    A certificate of `client_ca` whose common name or DNS name is a device's is that device's credential over MQTT,
    unless its notBefore is not later than when the device was last revoked.
    """

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    client_required: bool = False


class LogTable(_Table, frozen=True, kw_only=True):
    """`[log]`: `format` auto is a console on a terminal and JSON lines otherwise."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "console", "json"] = "auto"


class Settings(_Table, frozen=True, kw_only=True):
    """All settings of a gateway, checked. `data` is absolute."""

    data: Path
    workflows: Path | None = None
    store: str | None = None
    mqtt: Address = Address("127.0.0.1", 1883)
    http: Address = Address("127.0.0.1", 8080)
    mqtts: Address | None = None
    mqtt_ws: Address | None = None
    mqtt_wss: Address | None = None
    https: Address | None = None
    http_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    allow_plaintext: bool = False
    metrics_open: bool = False
    trace: str = ""
    engine: EngineTable = EngineTable()
    listener: ListenerTable = ListenerTable()
    limits: LimitsTable = LimitsTable()
    log: LogTable = LogTable()
    audit: AuditTable = AuditTable()
    tls: TlsTable = TlsTable()
    bridge: BridgeTable = BridgeTable()
    map: tuple[MapTable, ...] = ()

    @property
    def workflow_directory(self) -> Path:
        return self.workflows or self.data / "workflows"

    @property
    def tls_files(self) -> TlsFiles:
        """Name the certificate, its key and the devices' authority, whether they are there or not."""
        made = self.data / "tls"
        if self.tls.certificate is not None:
            return TlsFiles(self.tls.certificate, self.tls.key or self.tls.certificate, self.tls.client_ca)
        own = made / "ca.pem"
        return TlsFiles(
            made / "server.pem", made / "server.key", self.tls.client_ca or (own if own.is_file() else None)
        )

    @property
    def proxies(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return tuple(ip_network(text) for text in self.trusted_proxies)

    @property
    def store_url(self) -> str:
        return self.store or str(self.data / "wayside.db")

    @property
    def shares_store(self) -> bool:
        """Tell whether other data directories may have the same store."""
        return self.store not in {None, "memory:"}


SettingPath = tuple[str, ...]
_SPECIAL: Final[Mapping[SettingPath, Callable[[object], object]]] = {
    ("data",): parse_path,
    ("workflows",): parse_path,
    ("store",): _parse_store,
    ("mqtt",): parse_address,
    ("http",): parse_address,
    ("mqtts",): parse_address,
    ("mqtt_ws",): parse_address,
    ("mqtt_wss",): parse_address,
    ("https",): parse_address,
    ("trusted_proxies",): _parse_networks,
    ("audit", "file"): parse_path,
    ("audit", "retention"): _parse_days,
    ("tls", "certificate"): parse_path,
    ("tls", "key"): parse_path,
    ("tls", "client_ca"): parse_path,
    ("bridge", "url"): _parse_broker,
    ("trace",): _parse_collector,
}
_DURATIONS: Final = frozenset(("engine", name) for name in EngineTable.__struct_fields__) | {
    ("bridge", name) for name in ("max_backlog", "session_expiry", "reconnect_max")
}


@cache
def known() -> dict[SettingPath, Any]:
    """Map every setting to its type, and every table to its class."""
    types: dict[SettingPath, Any] = {}
    for name, kind in get_type_hints(Settings, include_extras=True).items():
        types[name,] = kind
        if is_table(kind):
            types.update({(name, sub): hint for sub, hint in get_type_hints(kind, include_extras=True).items()})
    return types


def is_table(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, _Table)


def parse(path: SettingPath, value: object) -> object:
    """Read one setting's value; raises ValueError with what would do."""
    if (special := _SPECIAL.get(path)) is not None:
        return special(value)
    kind = known()[path]
    if is_table(kind):
        raise ValueError("this is a table, not a value")
    _check_words(kind, [value])
    given = parse_duration(value) if path in _DURATIONS else value
    if get_origin(kind) is tuple:
        if isinstance(given, str):
            # As the environment has lists.
            given = [part.strip() for part in given.split(",") if part.strip()]
        _check_words(get_args(kind)[0], given)
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as fault:
        said = str(fault)
        raise ValueError(_FORMS[path] if "matching regex" in said else _in_words(said)) from None


def _check_words(kind: object, given: object) -> None:
    """Name the words that there are, where one is wanted; raises ValueError."""
    if get_origin(kind) is Literal and isinstance(given, list) and not all(word in get_args(kind) for word in given):
        raise ValueError(f"this is one of {', '.join(get_args(kind))}")


# What a regular expression says, in words.
_FORMS: Final[Mapping[SettingPath, str]] = {
    ("bridge", "client_id"): limits.NAME_FORM,
    ("bridge", "share"): limits.NAME_FORM,
    ("bridge", "auth_secret"): "a secret is 16 to 256 characters of ASCII, without spaces",
    ("audit", "syslog"): "a socket's path, such as /dev/log, or HOST:PORT",
}
_TYPES: Final = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false"} | {
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


def _in_words(said: str) -> str:
    """Put the library's words into ours: they name the place, the type and the bound, and never the value."""
    what, _, at = said.partition(" - at ")
    field = re.search(r"\.(\w+)`$", at)
    what = re.sub(r"`(\w+)`", lambda found: _TYPES.get(found[1], found[1]), what).replace("`", "")
    return (f"{field[1]}: " if field else "") + what[0].lower() + what[1:]


def build(values: Mapping[SettingPath, object]) -> Settings:
    """Make the settings of values that were parsed; what is not given has its default."""
    tables: dict[str, dict[str, object]] = {}
    plain: dict[str, Any] = {}
    for path, value in values.items():
        if len(path) == 1:
            plain[path[0]] = value
        else:
            tables.setdefault(path[0], {})[path[1]] = value
    types = known()
    return Settings(**plain, **{name: types[name,](**given) for name, given in tables.items()})
