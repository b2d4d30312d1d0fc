"""Proves that signals to one key take turns within a process, that other keys do not wait, and that nothing is kept."""

from __future__ import annotations

import asyncio

import pytest

from engine.names import Key
from engine.turns import Turns

KITCHEN, HALL = Key("front-door", "kitchen-verdict"), Key("front-door", "hall-verdict")


async def test_turns_at_one_key_come_in_the_order_of_arrival() -> None:
    turns, order = Turns(), list[str]()

    async def take(name: str) -> None:
        async with turns.of(KITCHEN):
            order.append(f"{name} in")
            await asyncio.sleep(0)
            order.append(f"{name} out")

    await asyncio.gather(take("a"), take("b"), take("c"))
    assert order == ["a in", "a out", "b in", "b out", "c in", "c out"]


async def test_another_key_does_not_wait() -> None:
    turns = Turns()
    async with turns.of(KITCHEN), asyncio.timeout(1), turns.of(HALL):
        pass


async def test_a_failed_turn_lets_the_next_one_in_and_nothing_is_kept() -> None:
    turns = Turns()
    with pytest.raises(ValueError, match="damaged"):
        async with turns.of(KITCHEN):
            raise ValueError("damaged")
    async with asyncio.timeout(1), turns.of(KITCHEN):
        pass
    assert not turns._turns


@pytest.mark.parametrize("handed_over", [False, True])
async def test_who_gives_up_while_waiting_holds_nobody_up(*, handed_over: bool) -> None:
    turns, order = Turns(), list[str]()
    held = asyncio.Event()

    async def take(name: str) -> None:
        async with turns.of(KITCHEN):
            order.append(name)
            if name == "first":
                await held.wait()

    first, second, third = [asyncio.create_task(take(name)) for name in ("first", "second", "third")]
    await asyncio.sleep(0)
    if handed_over:
        held.set()
        # The first lets go in this turn of the loop: the second has it then, and has not gone on.
        await asyncio.sleep(0)
        assert first.done()
    second.cancel()
    held.set()
    async with asyncio.timeout(1):
        await asyncio.gather(first, second, third, return_exceptions=True)
    assert order == ["first", "third"]
    assert not turns._turns
