"""A watermark, and whom it tells."""

import asyncio

import pytest
from tests.support.wal import turns

from holdfast.log.partition.watermark import Watermark


async def test_callbacks_run_once_in_the_order_of_offsets() -> None:
    mark = Watermark(0)
    heard: list[tuple[int, BaseException | None]] = []
    for value in (3, 1, 2):
        mark.on_reached(value, lambda error, value=value: heard.append((value, error)))  # type: ignore[misc]
    mark.set(2)
    assert heard == [(1, None), (2, None)]
    mark.set(9)
    mark.on_reached(5, lambda error: heard.append((5, error)))
    assert heard[2:] == [(3, None), (5, None)]


async def test_a_callback_may_register_another() -> None:
    mark = Watermark(0)
    heard: list[int] = []

    def again(error: BaseException | None) -> None:
        heard.append(mark.value)
        if len(heard) < 3:
            mark.on_reached(mark.value + 1, again)

    mark.on_reached(1, again)
    for value in (1, 2, 3):
        mark.set(value)
    assert heard == [1, 2, 3]


async def test_a_failure_is_reported_after_its_owner_has_undone_everything() -> None:
    mark, other = Watermark(0), Watermark(0)
    heard: list[str] = []

    def on_durable(error: BaseException | None) -> None:
        heard.append(f"failed: {error}")
        other.on_reached(5, lambda error: heard.append("there" if error is None else "failed, though it came later"))

    mark.on_reached(5, on_durable)
    waiting = asyncio.ensure_future(mark.reaches(5))
    await turns()
    error = ValueError("lost")
    mark.fail_above(4, error)
    other.fail_above(4, error)
    with pytest.raises(ValueError, match="lost"):
        await waiting
    assert heard == ["failed: lost"]
    other.set(5)
    assert heard == ["failed: lost", "there"]


async def test_what_lies_below_a_failure_is_still_waited_for() -> None:
    mark = Watermark(0)
    heard: list[BaseException | None] = []
    mark.on_reached(3, heard.append)
    mark.fail_above(3, ValueError("lost"))
    await turns()
    assert not heard
    mark.set(3)
    assert heard == [None]


async def test_callbacks_that_are_cancelled_are_not_called_and_not_kept() -> None:
    mark = Watermark(0)
    heard: list[BaseException | None] = []
    for value in range(1, 1_001):
        waiter = mark.on_reached(value, heard.append)
        assert waiter is not None
        if value != 500:
            waiter.cancel()
    assert len(mark._waiters) < 200
    mark.fail_above(700, ValueError("lost"))
    mark.set(1_000)
    await turns()
    assert heard == [None]
