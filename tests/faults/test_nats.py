"""A NATS node killed under signals, hanging, without a quorum, losing answers: nothing is lost, and it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from engine.errors import StoreUnavailable
from engine.store.open import open_store
from tests.faults.signalling import signalling
from tests.support.nats import Cluster, cluster
from tests.support.proxy import Mode, proxy

BUCKET = "records"


@pytest.fixture
def three() -> Iterator[Cluster]:
    with cluster(3) as three:
        yield three


async def test_a_leader_that_is_killed_under_signals_loses_none_that_was_acknowledged(
    three: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two engines are sent each signal at once, so that each of its records has two creators, and one wins."""
    url = three.url(BUCKET)
    async with signalling(tmp_path, [open_store(url), open_store(url)], 6) as load:
        await load.acknowledges(15)
        leader = await three.leader(BUCKET)
        load.tally.fault = "leader killed"
        leader.kill()
        await load.acknowledges(15)
        leader.start()
        await load.acknowledges(10)
    report = await load.judged("NATS, three nodes", url, capsys)
    assert report.good
    assert report.outcomes >= 40
    assert load.tally.repeated["leader killed"] >= 25


async def test_without_a_quorum_writes_are_uncertain_and_afterwards_settled_by_reading_back(
    three: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.store.nats.store.STORE_TIMEOUT_SECONDS", 3.0)
    store = open_store(three.url(BUCKET))
    await store.create("before", b"1")
    leader = await three.leader(BUCKET)
    others = [node for node in three.nodes if node is not leader]
    for node in others:
        node.kill()
    with pytest.raises(StoreUnavailable) as caught:
        await store.create("meanwhile", b"mine")
    assert caught.value.uncertain
    for node in others:
        node.start()
    monkeypatch.setattr("engine.store.nats.store.STORE_TIMEOUT_SECONDS", 30.0)
    settled = await store.create("meanwhile", b"another's")
    assert settled.value in {b"mine", b"another's"}
    assert await store.get("meanwhile") == settled
    assert await store.get("before") is not None
    await store.close()


async def test_a_create_whose_answer_is_lost_is_done_again_and_recognised(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with cluster(1) as one:
        async with proxy(one.nodes[0].port) as between:
            store = open_store(f"nats://127.0.0.1:{between.port}/{BUCKET}")
            await store.create("first", b"")
            won = 0
            for number in range(5):
                before = between.lost_answers
                between.set(Mode.LOSE_ANSWERS)
                creating = asyncio.create_task(store.create(f"a/{number}", b"nonce"))
                while between.lost_answers == before:
                    await asyncio.sleep(0)
                between.set(Mode.PASS)
                won += (await creating).value == b"nonce"
            assert len(await store.list("a/")) == 5
            await store.close()
    with capsys.disabled():
        print(f"\n  NATS, answers lost: {between.lost_answers}, creates recognised as won: {won} of 5")
    assert won == 5


async def test_a_server_that_hangs_is_given_up_in_time_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.store.nats.store.STORE_TIMEOUT_SECONDS", 2.0)
    with cluster(1) as one:
        store = open_store(one.url(BUCKET))
        await store.create("a", b"")
        one.nodes[0].pause()
        began = monotonic()
        with pytest.raises(StoreUnavailable) as caught:
            await store.create("b", b"mine")
        assert caught.value.uncertain
        assert monotonic() - began < 8
        one.nodes[0].go_on()
        monkeypatch.undo()
        assert (await store.create("b", b"another's")).value in {b"mine", b"another's"}
        await store.close()


async def test_hints_come_again_after_the_servers_were_away() -> None:
    with cluster(1) as one:
        store, other = open_store(one.url(BUCKET)), open_store(one.url(BUCKET))
        await other.create("a", b"")
        await store.changed()
        one.nodes[0].kill()
        one.nodes[0].start()
        async with asyncio.timeout(30):
            await store.changed()
            await other.create("b", b"")
            await store.changed()
        await store.close()
        await other.close()
