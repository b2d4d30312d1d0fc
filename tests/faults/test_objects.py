"""An object store answering 500, 503 or 409, hanging, losing answers: nothing acknowledged is lost, and it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import pytest

from engine.errors import StoreUnavailable
from engine.store.objects import ObjectStore
from engine.store.open import open_store
from tests.faults.signalling import signalling
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


async def test_trouble_under_signals_loses_none_that_was_acknowledged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over Google's stand-in, which is quick; over S3, under a gateway: `python -m tests.faults.away --stores s3`."""
    troubles = [
        ("500", Mode.ANSWER, answer("500 Internal Server Error")), ("503", Mode.ANSWER, answer("503 Slow Down")),
        ("429", Mode.ANSWER, answer("429 Too Many")), ("409", Mode.ANSWER, answer("409 Conflict")),
        ("losing answers", Mode.LOSE_ANSWERS, b""), ("hanging", Mode.HANG, b""), ("refusing", Mode.REFUSE, b""),
    ]  # fmt: skip
    monkeypatch.setattr("engine.store.objects.requests.STORE_TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr("engine.store.objects.requests.OBJECTS_ATTEMPT_SECONDS", 0.4)
    service = shared_service("gs")
    async with bucket(service) as name, proxy(service.port) as between:
        stores = [open_store(service.url(name, port=between.port)) for _ in range(2)]
        async with signalling(tmp_path, stores, 4) as load:
            for fault, mode, canned in troubles:
                await load.acknowledges(4)
                load.tally.fault = fault
                between.set(mode, canned)
                between.cut()
                await load.feels()
                between.set(Mode.PASS)
            await load.acknowledges(4)
        report = await load.judged("objects", service.url(name), capsys)
    assert report.good
    assert all(load.tally.repeated[fault] for fault, _, _ in troubles)
