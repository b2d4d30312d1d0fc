"""Proves the composition: the admin's token is made once and made good again, and what is let go of can be opened."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

from devices import credentials, operations
from engine.clock import SystemSource
from engine.store.memory import MemoryStore, RunningClock
from gateway.app import compose
from gateway.config import load
from gateway.data import is_directory_s_own
from gateway.outbox import Outbox
from gateway.settings import Settings


def settings(data: Path) -> Settings:
    return load({"data": str(data)}, environment={}).settings


def token(data: Path) -> str:
    return (data / "admin.token").read_text().strip()


async def test_the_first_start_makes_the_directory_and_an_admins_token_for_its_owner_alone(tmp_path: Path) -> None:
    data = tmp_path / "deep" / "data"
    async with compose(settings(data)) as services:
        operator = services.registry.owner(credentials.digest(token(data)))
    assert operator is not None
    assert (operator.name, operator.active) == ("admin", True)
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert stat.S_IMODE((data / "admin.token").stat().st_mode) == 0o600


async def test_a_later_start_keeps_the_token_and_a_lost_one_is_replaced(tmp_path: Path) -> None:
    async with compose(settings(tmp_path)):
        first = token(tmp_path)
    async with compose(settings(tmp_path)):
        assert token(tmp_path) == first
    (tmp_path / "admin.token").unlink()
    async with compose(settings(tmp_path)) as services:
        second = token(tmp_path)
        assert services.registry.owner(credentials.digest(second)) is not None
        assert services.registry.owner(credentials.digest(first)) is None
    assert second != first


async def test_an_empty_store_in_a_directory_that_was_in_use_is_told_of_and_once(tmp_path: Path) -> None:
    async def lost() -> bool:
        async with compose(settings(tmp_path)) as services:
            return services.lost

    assert [await lost(), await lost()] == [False, False]
    for name in ("wayside.db", "wayside.db-wal", "wayside.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    assert [await lost(), await lost()] == [True, False]
    (tmp_path / "admin.token").unlink()
    assert not await lost()


async def test_two_that_start_together_make_one_token(tmp_path: Path) -> None:
    async def once() -> str:
        async with compose(settings(tmp_path)) as services:
            found = token(tmp_path)
            assert services.registry.owner(credentials.digest(found)) is not None
            return found

    first, second = await asyncio.gather(once(), once())
    assert first == second == token(tmp_path)


async def test_directories_that_share_a_store_have_a_token_each_that_stays(tmp_path: Path) -> None:
    def of(name: str) -> Settings:
        data, store = str(tmp_path / name), f"sqlite://{tmp_path}/shared.db"
        return load({"data": data, "store": store}, environment={}).settings

    async def start(name: str) -> str:
        async with compose(of(name)):
            return token(tmp_path / name)

    first = await asyncio.gather(*map(start, "abc"))
    assert len(set(first)) == 3
    assert [await start(name) for name in "abc"] == first
    for lost in "abc":
        (tmp_path / lost / "admin.token").unlink()
        assert await start(lost) not in first
        async with compose(of(lost)) as services:
            held = [services.registry.owner(credentials.digest(each)) is not None for each in first]
            names = [operator.name for operator in services.registry.operators()]
        assert held == [name > lost for name in "abc"]
        assert len(set(names)) == 3


async def test_a_directory_that_shares_no_store_has_the_admin(tmp_path: Path) -> None:
    for name, store in {"memory": "memory:", "own": None}.items():
        given = {"data": str(tmp_path / name)} | ({} if store is None else {"store": store})
        async with compose(load(given, environment={}).settings) as services:
            assert [operator.name for operator in services.registry.operators()] == ["admin"]


async def test_an_administrator_that_was_revoked_is_another_at_the_next_start_and_the_old_token_stays_dead(
    tmp_path: Path,
) -> None:
    store = f"sqlite://{tmp_path}/shared.db"
    given = load({"data": str(tmp_path / "a"), "store": store}, environment={}).settings
    async with compose(given) as services:
        revoked = token(given.data)
        (own,) = services.registry.operators()
        assert is_directory_s_own(own.name)
        await operations.revoke_operator(services.registry, own.name, by="user:somebody")
        assert services.registry.owner(credentials.digest(revoked)) is None
    async with compose(given) as services:
        assert services.registry.owner(credentials.digest(revoked)) is None
        assert services.registry.owner(credentials.digest(token(given.data))) is not None


class Ear:
    """A listener that remembers."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.both = asyncio.Event()

    async def deliver(self, topic: str, payload: bytes, *, qos: int = 1) -> int:
        self.heard.append((topic, payload))
        if len(self.heard) == 2:
            self.both.set()
        return 1


async def test_a_command_reaches_the_devices_of_every_instance_once() -> None:
    store = MemoryStore(RunningClock())
    here, there = Outbox(store, SystemSource()), Outbox(store, SystemSource())
    ears = (Ear(), Ear())
    for outbox, ear in zip((here, there), ears, strict=True):
        outbox.attach(ear)
        await outbox.start()
    following = [asyncio.create_task(outbox.follow()) for outbox in (here, there)]
    try:
        assert await here.publish("sirens/hall/cmd", b"1") == 1
        assert await there.publish("sirens/hall/cmd", b"2") == 1
        async with asyncio.timeout(20):
            for ear in ears:
                await ear.both.wait()
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    assert [sorted(ear.heard) for ear in ears] == [[("sirens/hall/cmd", b"1"), ("sirens/hall/cmd", b"2")]] * 2
