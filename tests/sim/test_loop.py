"""Virtual time: asyncio runs as always, only the waiting is free."""

import asyncio

import pytest

from holdfast.sim.loop import SimLoop, StuckError
from holdfast.vocabulary.errors import InvalidError


def run(main: object) -> object:
    loop = SimLoop()
    try:
        return loop.run_until_complete(main)  # type: ignore[arg-type]
    finally:
        loop.close()


def test_an_hour_passes_at_once_and_is_an_hour_long() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        before = loop.time()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3600):
                await loop.create_future()
        return loop.time() - before

    assert run(main()) == pytest.approx(3600)


def test_timers_fire_by_due_time_then_in_the_order_they_were_set() -> None:
    fired: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        done = loop.create_future()
        loop.post_at(20, fired.append, "late")
        loop.post_at(10, fired.append, "first")
        loop.call_at(0.010, fired.append, "second")
        loop.post_at(-5, fired.append, "overdue")
        loop.post_at(30, done.set_result, None)
        await done
        assert loop.now_ms == 30

    run(main())
    assert fired == ["overdue", "first", "second", "late"]


def test_a_cancelled_timer_does_not_fire() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(1, pytest.fail, "cancelled").cancel()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await loop.create_future()

    run(main())


def test_waiting_for_what_cannot_come_is_found_out() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    loop = SimLoop()
    task = loop.create_task(main())
    with pytest.raises(StuckError, match="nothing is scheduled"):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


def test_time_that_stands_still_is_found_out() -> None:
    async def main() -> None:
        event = asyncio.Event()
        event.set()
        while True:
            await event.wait()
            task = asyncio.ensure_future(event.wait())
            await task

    loop = SimLoop(callbacks_max=1000)
    task = loop.create_task(main())
    with pytest.raises(StuckError, match="callbacks"):
        loop.run_until_complete(task)
    task.cancel()
    loop.callbacks_left = 1000
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


def test_threads_and_sockets_are_refused() -> None:
    async def thread() -> None:
        await asyncio.to_thread(print)

    async def socket() -> None:
        await asyncio.open_connection("127.0.0.1", 1)

    for main in (thread, socket):
        with pytest.raises(InvalidError, match="virtual time"):
            run(main())


def test_an_error_nobody_took_is_remembered() -> None:
    loop = SimLoop()

    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.get_running_loop().create_future()

    loop.run_until_complete(main())
    loop.close()
    assert [type(context["exception"]) for context in loop.errors] == [ZeroDivisionError]
