"""A URL names a store, and one that names none is refused without giving a password away."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import BadInput
from engine.store.memory import MemoryStore
from engine.store.open import open_store
from engine.store.sqlite import SqliteStore


async def test_memory_is_a_store_on_a_running_clock() -> None:
    store = open_store("memory:")
    assert isinstance(store, MemoryStore)
    record = await store.create("a", b"")
    assert await store.now() >= record.stored_at


@pytest.mark.parametrize("form", ["sqlite://{}", "{}"])
async def test_a_path_is_an_sqlite_file(tmp_path: Path, form: str) -> None:
    path = tmp_path / "records.db"
    store = open_store(form.format(path))
    assert isinstance(store, SqliteStore)
    assert store.path == path
    await store.close()


async def test_a_path_may_have_any_characters(tmp_path: Path) -> None:
    path = tmp_path / "a dir ?#%41" / "ü.db"
    for url in (str(path), f"sqlite://{tmp_path}/a%20dir%20%3F%23%2541/%C3%BC.db"):
        store = open_store(url)
        assert isinstance(store, SqliteStore)
        assert store.path == path
        await store.create("a", b"")
        await store.close()
    assert [entry.name for entry in path.parent.iterdir()] == ["ü.db"]


async def test_a_relative_path_is_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("records.db")
    assert isinstance(store, SqliteStore)
    assert store.path == tmp_path / "records.db"
    await store.close()


@pytest.mark.parametrize(
    "url",
    ["", "sqlite:", "sqlite:records.db", "sqlite://", "sqlite://host/records.db", "sqlite:///a?mode=ro", "memory:x"],
)
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(BadInput):
        open_store(url)


def test_a_kind_of_store_that_is_not_known_is_refused_without_the_rest_of_the_url() -> None:
    with pytest.raises(BadInput, match="kind mystery") as caught:
        open_store("mystery://user:secret@host/records")
    assert "secret" not in str(caught.value)
    assert "sqlite:///" in caught.value.hint
