"""The audit log outside the store: JSON lines in a file that is rotated, on standard output, or to syslog.

Each instance writes its own events, once they are stored, from a thread of its own: a slow disk or log server delays
nothing here. What cannot be written is counted and told in the log; the store has it in any case. A line is what
`/api/v1/audit` shows, and `digest`, by which the next event names this one: a copy kept elsewhere proves the chain.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import sys
import threading
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

import msgspec

from engine.store.base import Record
from gateway import logs, trail
from gateway.audit import digest
from gateway.settings import AuditTable

MAX_WAITING: Final = 20_000
CLOSE_SECONDS: Final = 5.0
# RFC 5424, 6.2.1
_FACILITY: Final = 13
_WARNING: Final = 4
_INFORMATIONAL: Final = 6
_REFUSALS: Final = (".refused", ".lost", ".damaged")

_log = logs.get_logger("audit")


class Sink(Protocol):
    """Somewhere that lines go; raises OSError for one that did not."""

    def write(self, line: str, *, warning: bool) -> None: ...

    def close(self) -> None: ...


class FileSink:
    """A file of mode 0600; when it would grow over `max_bytes` it becomes `<name>.1`, that one `<name>.2`."""

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self._path, self._max_bytes, self._keep = path, max_bytes, keep
        self._stream = self._open()

    def write(self, line: str, *, warning: bool) -> None:  # noqa: ARG002  all lines are one kind here
        """Append a line; it is with the system when this returns."""
        data = line + "\n"
        if self._stream.tell() and self._stream.tell() + len(data.encode()) > self._max_bytes:
            self._rotate()
        self._stream.write(data)
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()

    def _open(self) -> TextIO:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        stream = os.fdopen(file, "a", encoding="utf-8")
        stream.seek(0, os.SEEK_END)
        return stream

    def _rotate(self) -> None:
        self._stream.close()
        for n in range(self._keep - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                self._numbered(n).rename(self._numbered(n + 1))
        if self._keep:
            self._path.rename(self._numbered(1))
        else:
            self._path.unlink()
        self._stream = self._open()

    def _numbered(self, n: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{n}")


class StreamSink:
    """Standard output, for whoever collects it."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def write(self, line: str, *, warning: bool) -> None:  # noqa: ARG002
        """Print a line at once."""
        self._stream.write(line + "\n")
        self._stream.flush()

    def close(self) -> None:
        """Leave the stream to the process."""


class SyslogSink:
    """A syslog daemon: a socket's path, or `HOST:PORT` over UDP (RFC 3164). Facility 13 (log audit), tag `wayside`."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._socket = self._connect()

    def write(self, line: str, *, warning: bool) -> None:
        """Send a line; refusals as warnings, the rest as informational."""
        data = f"<{_FACILITY * 8 + (_WARNING if warning else _INFORMATIONAL)}>wayside: {line}".encode()
        try:
            self._socket.send(data)
        except OSError:  # the daemon was started anew
            self._socket.close()
            self._socket = self._connect()
            self._socket.send(data)

    def close(self) -> None:
        self._socket.close()

    def _connect(self) -> socket.socket:
        if "/" in self._target:
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            where: Any = self._target
        else:
            host, _, port = self._target.rpartition(":")
            family, kind, _, _, where = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)[0]
            connected = socket.socket(family, kind)
        try:
            connected.connect(where)
        except OSError:
            connected.close()
            raise
        return connected


class Sinks:
    """Takes stored events and hands them to the sinks in a thread of its own."""

    def __init__(self, sinks: list[Sink]) -> None:
        self._sinks = sinks
        self._queue: queue.Queue[Record | None] = queue.Queue(MAX_WAITING)
        self._lost = 0
        self._thread = threading.Thread(target=self._write, name="audit sinks", daemon=True)
        if sinks:
            self._thread.start()

    def stored(self, record: Record) -> None:
        """Take one stored event; at once."""
        if not self._sinks:
            return
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._lost += 1

    def close(self) -> None:
        """Write what has been taken, for `CLOSE_SECONDS` at most."""
        if not self._sinks:
            return
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=CLOSE_SECONDS)
        self._thread.join(CLOSE_SECONDS)

    def _write(self) -> None:
        failing: set[int] = set()
        while (record := self._queue.get()) is not None:
            text, warning = line_of(record)
            for n, sink in enumerate(self._sinks):
                try:
                    sink.write(text, warning=warning)
                    failing.discard(n)
                except OSError as fault:
                    if n not in failing:
                        _log.error("audit events are not written", to=type(sink).__name__, fault=fault.strerror)
                    failing.add(n)
            if self._lost and self._queue.empty():
                _log.error("audit events were not written: too many at once", count=self._lost)
                self._lost = 0
        for sink in self._sinks:
            sink.close()


def line_of(record: Record) -> tuple[str, bool]:
    """Write one event as a line of JSON; tell whether it is one to look at."""
    shown = trail.entry_of(record).view()
    warning = str(shown["action"]).endswith(_REFUSALS)
    return msgspec.json.encode(shown | {"digest": digest(record.value)}).decode(), warning


def open_sinks(table: AuditTable, *, prints: bool) -> Sinks:
    """Open what `[audit]` names; one that cannot be opened is told in the log, and the others go on."""
    sinks: list[Sink] = []
    if table.file is not None:
        try:
            sinks.append(FileSink(table.file, max_bytes=table.file_max_bytes, keep=table.file_keep))
        except OSError as fault:
            _log.error("the audit log's file cannot be written", file=table.file, fault=fault.strerror)
    if table.stdout and prints:
        sinks.append(StreamSink())
    if table.syslog:
        try:
            sinks.append(SyslogSink(table.syslog))
        except OSError as fault:
            _log.error("syslog cannot be reached", at=table.syslog, fault=fault.strerror)
    return Sinks(sinks)
