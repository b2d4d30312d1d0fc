"""Proves that nobody without a credential can keep others out: not by connections, nor by guessing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gateway.listener.codec import Reason
from gateway.listener.strangers import Connects, Strangers
from tests.gateway.listener.conftest import Served

Serve = Callable[..., Awaitable[Served]]


async def test_one_address_has_only_so_many_connections_that_have_not_authenticated(serve: Serve) -> None:
    served = await serve(strangers_an_address=3)
    known = [await served.device(client_id=f"c{number}") for number in range(5)]  # these count no more
    silent = [await served.client() for _ in range(3)]
    await served.until_open(8)
    assert await (await served.client()).rest() == []  # closed at once
    silent[0].abort()
    await served.until_open(7)
    await served.device("bell")
    for client in known:
        await client.ping()


async def test_a_refused_connect_counts_no_more(serve: Serve) -> None:
    served = await serve(strangers_an_address=1)
    for _ in range(3):
        client = await served.client()
        assert (await client.connect(password=b"guess")).reason == Reason.BAD_USER_NAME_OR_PASSWORD
    await served.device()


def test_addresses_are_counted_apart_and_forgotten() -> None:
    strangers = Strangers(2)
    assert [strangers.add("192.0.2.1", number) for number in range(3)] == [True, True, False]
    assert strangers.add("192.0.2.2", 0)
    strangers.remove("192.0.2.1", 2)  # was never let in
    assert not strangers.add("192.0.2.1", 3)
    strangers.remove("192.0.2.1", 0)
    assert strangers.add("192.0.2.1", 3)


def test_an_address_that_guesses_leaves_connects_to_the_others() -> None:
    connects = Connects(10, 100, 0.0)
    for _ in range(60):
        assert connects.take("192.0.2.66", 0.0)
        connects.failed("192.0.2.66", 0.0)
    assert sum(connects.take("192.0.2.66", 0.0) for _ in range(100)) == 15
    assert sum(connects.take("192.0.2.1", 0.0) for _ in range(100)) == 25
    assert not connects.take("192.0.2.1", 0.0)
    # A minute of peace, and it is as the others are.
    assert sum(connects.take("192.0.2.66", 70.0) for _ in range(200)) == 100


def test_a_device_with_an_old_token_that_tries_each_second_harms_nobody_else_at_its_address() -> None:
    connects = Connects(1, 100, 0.0)
    for second in range(200):
        assert connects.take("192.0.2.1", float(second))
        connects.failed("192.0.2.1", float(second))
    assert sum(connects.take("192.0.2.1", 200.0) for _ in range(200)) == 100


async def test_guesses_are_counted_where_they_come_from(serve: Serve) -> None:
    served = await serve(connects_per_second=0.001, connects_burst=80)
    for number in range(60):
        client = await served.client()
        await client.connect(client_id=f"c{number}", password=b"guess")
        await client.close()
    client = await served.client()
    assert (await client.connect()).reason == Reason.SERVER_UNAVAILABLE  # 3.1.1 has no better word for the rate
