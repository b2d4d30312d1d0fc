"""An older build refuses a store of a newer format and says so, over every backend; builds of one format share it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine import format as format_
from engine import names, records
from engine.clock import SystemSource
from engine.errors import FormatTooNew
from engine.records import Format
from engine.store.base import Store
from tests.contract.backends import BACKENDS, Backend
from tests.support.command import wayside


def newer() -> tuple[str, bytes]:
    """Make the record that a newer build writes; it may have more in it than this one knows."""
    at, value = records.encode(Format(at=names.FORMAT, nonce="n", format=format_.FORMAT + 1, writer="wayside 9.0"))
    return at, value[:-1] + b',"more":{"than":["is","known"]}}'


async def test_a_newer_format_is_refused_and_left_as_it_is(store: Store) -> None:
    planted = await store.create(*newer())
    with pytest.raises(FormatTooNew, match=r"wayside 9\.0 in format 2; this build knows format 1") as caught:
        await format_.check_format(store, SystemSource())
    assert "backup" in caught.value.hint
    assert await store.list("") == [planted]


async def test_a_store_that_a_newer_build_took_over_is_refused_too(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    this = format_.FORMAT
    await format_.check_format(backend.store, SystemSource())
    (first,) = await backend.store.list("")
    monkeypatch.setattr(format_, "writer", lambda: "wayside 9.0")
    for format_number in (this + 1, this + 1, this + 2):
        monkeypatch.setattr(format_, "FORMAT", format_number)
        await format_.check_format(await backend.another(), SystemSource())
    kept = await backend.store.list("")
    assert [record.key for record in kept] == [names.FORMAT, *map(names.raised_format, (this + 1, this + 2))]
    assert kept[0] == first
    for older in (this, this + 1):
        monkeypatch.setattr(format_, "FORMAT", older)
        with pytest.raises(FormatTooNew, match=rf"wayside 9\.0 in format {this + 2}; this build knows format {older}"):
            await format_.check_format(backend.store, SystemSource())
    assert await backend.store.list("") == kept


async def test_builds_of_one_format_share_a_store(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(format_, "writer", lambda: "wayside 0.0.9")
    await format_.check_format(backend.store, SystemSource())
    monkeypatch.undo()
    await format_.check_format(await backend.another(), SystemSource())
    monkeypatch.setattr(format_, "writer", lambda: "wayside 0.0.9")
    await format_.check_format(await backend.another(), SystemSource())
    (record,) = await backend.store.list("")
    assert b"0.0.9" in record.value


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_gateway_does_not_start_on_a_newer_format(kind: str, tmp_path: Path) -> None:
    async with BACKENDS[kind](tmp_path) as backend:
        planted = await backend.store.create(*newer())
        ran = await wayside(
            "serve", "--data", str(tmp_path / "data"), "--mqtt", "127.0.0.1:0", "--http", "127.0.0.1:0",
            "--store", backend.url, status=1,
        )  # fmt: skip
        sys.stdout.write(ran.err)
        assert "wayside 9.0 in format 2" in ran.err
        assert "start the newer build" in ran.err
        assert await backend.store.list("") == [planted]
