"""A NATS node killed, hanging, without a quorum, losing answers: what was acknowledged is there, and it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import monotonic

import pytest

from engine.errors import StoreUnavailable
from engine.store.open import open_store
from tests.support.load import Told
from tests.support.nats import Cluster, cluster
from tests.support.proxy import Mode, proxy

BUCKET = "records"


@pytest.fixture
def three() -> Iterator[Cluster]:
    with cluster(3) as three:
        yield three


async def longest_gap(told: Told) -> float:
    """Watch until the load ends; answer how long nothing was acknowledged at most."""
    longest, since, count = 0.0, monotonic(), 0
    while not told.done.is_set():
        if len(told.acknowledged) != count:
            count, since = len(told.acknowledged), monotonic()
        longest = max(longest, monotonic() - since)
        await asyncio.sleep(0.02)
    return longest


async def test_a_leader_that_is_killed_under_load_loses_nothing_that_was_acknowledged(
    three: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    stores = [open_store(three.url(BUCKET)) for _ in range(2)]
    told = Told()
    load = asyncio.create_task(told.create(stores, 24))
    gap = asyncio.create_task(longest_gap(told))
    for _ in range(2):
        await told.acknowledges(400)
        leader = await three.leader(BUCKET)
        leader.kill()
        await told.acknowledges(400)
        leader.start()
        await told.acknowledges(400)
    told.done.set()
    await load
    counts = await told.check(stores[0])
    assert await told.check(stores[1]) == counts
    for each in stores:
        await each.close()
    with capsys.disabled():
        print(f"\n  NATS, the leader of 3 nodes killed twice under load: {counts}; longest pause {await gap:.1f} s")


async def test_of_two_creators_one_wins_each_record_while_leaders_are_killed(
    three: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    stores = [open_store(three.url(BUCKET)) for _ in range(2)]
    answers: dict[str, set[bytes]] = {}
    done = asyncio.Event()
    faults = 0

    async def create(creator: int) -> None:
        nonlocal faults
        number = 0
        while not done.is_set():
            number += 1
            key = f"races/{creator // 2:03d}/{number:012d}"
            try:
                record = await stores[creator % 2].create(key, f"creator {creator}".encode())
            except StoreUnavailable:
                faults += 1
            else:
                answers.setdefault(key, set()).add(record.value)

    tasks = [asyncio.create_task(create(creator)) for creator in range(20)]
    await stores[0].create("first", b"")
    for _ in range(2):
        while len(answers) < 100:
            await asyncio.sleep(0.05)
        leader = await three.leader(BUCKET)
        leader.kill()
        seen = len(answers)
        while len(answers) < seen + 100:
            await asyncio.sleep(0.05)
        leader.start()
    done.set()
    await asyncio.gather(*tasks)
    stored = {record.key: record.value for record in await stores[0].list("races/")}
    assert all(values == {stored[key]} for key, values in answers.items())
    for each in stores:
        await each.close()
    with capsys.disabled():
        print(
            f"\n  NATS, two creators a record, 2 leaders killed: {len(answers)} races, one winner each; {faults} faults"
        )


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
