"""An object store answering 500, 503 or 409, hanging, losing answers: nothing acknowledged is lost, and it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

import pytest

from engine.errors import StoreUnavailable
from engine.store.objects import ObjectStore
from engine.store.open import open_store
from tests.support.load import Told
from tests.support.objects import bucket, shared_service
from tests.support.proxy import Mode, Proxy, proxy


@pytest.fixture(params=["s3", "gs"])
async def proxied(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Proxy, ObjectStore]]:
    service = shared_service(request.param)
    async with bucket(service) as name, proxy(service.port) as between:
        store = open_store(service.url(name, port=between.port))
        assert isinstance(store, ObjectStore)
        await store.create("first", b"")
        yield between, store
        between.set(Mode.PASS)
        await store.close()


def answer(status: str) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


@pytest.mark.parametrize("status", ["500 Internal Server Error", "503 Slow Down", "429 Too Many", "409 Conflict"])
async def test_an_answer_that_may_pass_is_asked_for_again(
    proxied: tuple[Proxy, ObjectStore], status: str, capsys: pytest.CaptureFixture[str]
) -> None:
    between, store = proxied
    between.set(Mode.ANSWER, answer(status))
    creating = asyncio.create_task(store.create("a", b"mine"))
    reading = asyncio.create_task(store.get("first"))
    while between.canned_answers < 3:
        await asyncio.sleep(0.01)
    between.set(Mode.PASS)
    assert (await creating).value == b"mine"
    assert await reading is not None
    with capsys.disabled():
        print(f"\n  objects, {status} answered {between.canned_answers} times, then: {dict(store.counts)}")


async def test_a_status_that_stays_is_told_as_uncertain_and_settled_by_reading_back(
    proxied: tuple[Proxy, ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.store.objects.requests.STORE_TIMEOUT_SECONDS", 0.5)
    between, store = proxied
    between.set(Mode.ANSWER, answer("503 Slow Down"))
    with pytest.raises(StoreUnavailable, match="status 503") as caught:
        await store.create("a", b"mine")
    assert caught.value.uncertain
    with pytest.raises(StoreUnavailable) as caught:
        await store.get("first")
    assert not caught.value.uncertain
    between.set(Mode.PASS)
    monkeypatch.undo()
    assert (await store.create("a", b"another's")).value == b"another's"


async def test_a_create_whose_answer_is_lost_is_done_again_and_recognised(
    proxied: tuple[Proxy, ObjectStore], capsys: pytest.CaptureFixture[str]
) -> None:
    between, store = proxied
    won = 0
    for number in range(10):
        before = between.lost_answers
        between.set(Mode.LOSE_ANSWERS)
        creating = asyncio.create_task(store.create(f"a/{number}", f"nonce {number}".encode()))
        while between.lost_answers == before:
            await asyncio.sleep(0)
        between.set(Mode.PASS)
        won += (await creating).value == f"nonce {number}".encode()
    assert len(await store.list("a/")) == 10
    with capsys.disabled():
        print(f"\n  objects, answers lost: {between.lost_answers}, creates recognised as won: {won} of 10")
    assert won == 10


async def test_a_service_that_hangs_is_given_up_in_time_and_comes_back(
    proxied: tuple[Proxy, ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.store.objects.requests.STORE_TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr("engine.store.objects.requests.OBJECTS_ATTEMPT_SECONDS", 0.4)
    between, store = proxied
    between.set(Mode.HANG)
    began = monotonic()
    with pytest.raises(StoreUnavailable, match="does not answer") as caught:
        await store.create("a", b"mine")
    assert caught.value.uncertain
    assert monotonic() - began < 5
    between.set(Mode.PASS)
    monkeypatch.undo()
    settled = await store.create("a", b"another's")
    assert settled.value in {b"mine", b"another's"}
    assert await store.get("a") == settled


async def test_trouble_under_load_loses_nothing_that_was_acknowledged(
    proxied: tuple[Proxy, ObjectStore], capsys: pytest.CaptureFixture[str]
) -> None:
    between, store = proxied
    told = Told()
    load = asyncio.create_task(told.create([store], 8))
    troubles = [
        (Mode.ANSWER, answer("500 Internal Server Error")), (Mode.LOSE_ANSWERS, b""), (Mode.REFUSE, b""),
        (Mode.ANSWER, answer("503 Slow Down")), (Mode.ANSWER, answer("409 Conflict")), (Mode.LOSE_ANSWERS, b""),
    ]  # fmt: skip
    for mode, canned in troubles:
        await told.acknowledges(20)
        between.set(mode, canned)
        between.cut()
        await asyncio.sleep(0.3)
        between.set(Mode.PASS)
    await told.acknowledges(20)
    told.done.set()
    await load
    counts = await told.check(store)
    with capsys.disabled():
        print(f"\n  objects, {len(troubles)} troubles under load: {counts}; requests {dict(store.counts)}")
