"""Proves that audit events reach a rotated file, standard output and syslog, whole and in order, and never wait."""

from __future__ import annotations

import io
import json
import socket
import stat
from pathlib import Path

import pytest

from engine.store.base import Record
from engine.store.memory import MemoryStore
from gateway.audit import Audit, Entry, digest
from gateway.sinks import FileSink, Sink, Sinks, StreamSink, SyslogSink, line_of
from tests.support.source import HandSource


async def records(*actions: str) -> list[Record]:
    found: list[Record] = []
    audit = Audit(MemoryStore(), "one", HandSource(), heard=found.append)
    for action in actions:
        audit.add(Entry(action=action, principal="device:door", result="accepted"))
    await audit.written()
    return found


class Broken:
    """Takes nothing for a while."""

    def __init__(self) -> None:
        self.tries = 0

    def write(self, line: str, *, warning: bool) -> None:
        self.tries += 1
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        return


def through(found: list[Record], *sinks: Sink) -> None:
    out = Sinks(list(sinks))
    for record in found:
        out.stored(record)
    out.close()


async def test_a_line_has_what_the_api_shows_and_the_digest_that_the_next_event_names(tmp_path: Path) -> None:
    found = await records("signal.held", "signal.refused")
    through(found, FileSink(tmp_path / "audit.jsonl", max_bytes=10_000, keep=2))
    first, second = (json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines())
    assert (first["action"], first["principal"], first["seq"], first["instance"]) == (
        "signal.held", "device:door", 1, "one",
    )  # fmt: skip
    assert (first["digest"], second["digest"]) == tuple(digest(record.value) for record in found)
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600


async def test_a_file_is_rotated_by_size_and_so_many_are_kept(tmp_path: Path) -> None:
    found = await records(*(f"a.{n}" for n in range(30)))
    size = len(line_of(found[0])[0]) + 20
    through(found, FileSink(tmp_path / "audit.jsonl", max_bytes=5 * size, keep=2))
    files = [tmp_path / f"audit.jsonl{end}" for end in (".2", ".1", "")]
    assert not tmp_path.joinpath("audit.jsonl.3").exists()
    assert all(file.stat().st_size <= 5 * size for file in files)
    actions = [json.loads(line)["action"] for file in files for line in file.read_text().splitlines()]
    assert actions == [f"a.{n}" for n in range(30 - len(actions), 30)]
    assert len(actions) > 10


async def test_a_file_that_is_there_is_gone_on_with(tmp_path: Path) -> None:
    for _ in range(2):
        through(await records("signal.held"), FileSink(tmp_path / "audit.jsonl", max_bytes=10_000, keep=2))
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 2


async def test_a_sink_that_takes_nothing_does_not_stop_the_others() -> None:
    out, broken = io.StringIO(), Broken()
    through(await records("a.b", "c.d"), broken, StreamSink(out))
    assert [json.loads(line)["action"] for line in out.getvalue().splitlines()] == ["a.b", "c.d"]
    assert broken.tries == 2


@pytest.mark.parametrize("kind", ["socket", "udp"])
async def test_syslog_gets_a_datagram_an_event_and_refusals_as_warnings(tmp_path: Path, kind: str) -> None:
    daemon = socket.socket(socket.AF_UNIX if kind == "socket" else socket.AF_INET, socket.SOCK_DGRAM)
    with daemon:
        daemon.settimeout(10)
        daemon.bind(str(tmp_path / "log") if kind == "socket" else ("127.0.0.1", 0))
        target = str(tmp_path / "log") if kind == "socket" else f"127.0.0.1:{daemon.getsockname()[1]}"
        through(await records("signal.held", "signal.refused"), SyslogSink(target))
        said = [daemon.recv(65_536).decode() for _ in range(2)]
    assert [line.partition(" ")[0] for line in said] == ["<110>wayside:", "<108>wayside:"]  # 13 * 8 + 6, + 4
    assert [json.loads(line.partition(" ")[2])["action"] for line in said] == ["signal.held", "signal.refused"]
