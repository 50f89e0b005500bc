"""The order of appends: first come, first served, and those that wait go on together."""

import asyncio

import pytest

from holdfast.log.partition import append_place
from holdfast.log.partition.append_place import AppendOrder


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)  # noqa: TID251 - a turn of the loop


async def test_all_that_wait_go_on_in_one_turn_and_in_order() -> None:
    order, done = AppendOrder(), list[int]()

    async def append(number: int) -> None:
        async with order:
            done.append(number)

    await order.acquire()
    tasks = [asyncio.ensure_future(append(number)) for number in range(200)]
    await turns(2)
    order.release()
    await turns(2)
    assert done == list(range(200))
    await asyncio.gather(*tasks)
    assert not order.locked()


async def test_one_that_takes_longer_is_not_overtaken() -> None:
    order, done, gate = AppendOrder(), list[int](), asyncio.Event()

    async def append(number: int) -> None:
        async with order:
            if number == 1:
                await gate.wait()
            done.append(number)

    await order.acquire()
    tasks = [asyncio.ensure_future(append(number)) for number in range(4)]
    await turns(2)
    order.release()
    await turns(5)
    late = asyncio.ensure_future(append(4))
    await turns(5)
    assert done == [0]
    gate.set()
    await asyncio.gather(*tasks, late)
    assert done == [0, 1, 2, 3, 4]


async def test_many_that_wait_in_turn_are_not_all_called_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full WAL: each waits for room. Then the work of an append must not grow with those that wait behind it."""
    order, done, waits = AppendOrder(), list[int](), 0
    new_turn = append_place._new_turn

    def counted() -> "asyncio.Future[None]":
        nonlocal waits
        waits += 1
        return new_turn()

    async def append(number: int) -> None:
        async with order:
            if number < 300:
                await turns(1)
            done.append(number)

    monkeypatch.setattr(append_place, "_new_turn", counted)
    await order.acquire()
    tasks = [asyncio.ensure_future(append(number)) for number in range(600)]
    await turns(2)
    order.release()
    while len(done) < 300:
        await turns(1)
    assert waits < 600 + 4 * 300 + 600
    await turns(10)
    assert done == list(range(600))  # as soon as they need not wait, they go on together again
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("cancelled", [[0], [1], [0, 1], [0, 2], [3], [0, 1, 2, 3]])
async def test_one_that_is_cancelled_lets_the_others_on(cancelled: list[int]) -> None:
    """Also between its call and its turn."""
    order, done = AppendOrder(), list[int]()

    async def append(number: int) -> None:
        async with order:
            done.append(number)

    for early in (True, False):
        done.clear()
        await order.acquire()
        tasks = [asyncio.ensure_future(append(number)) for number in range(4)]
        await turns(2)
        if not early:
            order.release()
        for number in cancelled:
            tasks[number].cancel()
        if early:
            order.release()
        await asyncio.wait(tasks)
        assert done == [number for number in range(4) if number not in cancelled]
        await order.acquire()
        order.release()
