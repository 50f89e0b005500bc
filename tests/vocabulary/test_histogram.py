"""Histograms: cumulative counts below bounds, and what a stalled event loop leaves in one."""

import asyncio

from holdfast.vocabulary.clock import RealClock, stopwatch_ns
from holdfast.vocabulary.histogram import Histogram
from holdfast.vocabulary.loop_stalls import LoopStalls


def test_values_count_for_every_bound_they_do_not_exceed() -> None:
    seen = Histogram((1, 10))
    for value in (0.5, 1, 1.5, 10, 11):
        seen.observe(value)
    assert seen.cumulative() == [2, 4, 5]
    assert (seen.count, seen.sum) == (5, 24)


def test_nothing_seen_is_zero_everywhere() -> None:
    assert (Histogram((1,)).cumulative(), Histogram().count, Histogram().sum) == ([0, 0], 0, 0)


async def test_a_callback_that_holds_the_event_loop_is_a_stall() -> None:
    stalls = LoopStalls()
    measuring = asyncio.ensure_future(stalls.measure(RealClock()))
    await RealClock().sleep_ms(10)
    began_ns = stopwatch_ns()
    while stopwatch_ns() - began_ns < 300_000_000:  # as a callback would that does too much
        pass
    await RealClock().sleep_ms(120)
    measuring.cancel()
    assert stalls.seconds.sum >= 0.2
    assert stalls.seconds.cumulative()[-1] > stalls.seconds.cumulative()[-4]  # beyond 100 ms


def test_values_in_one_bucket_are_counted_by_their_sum() -> None:
    seen, alike = Histogram((1, 2, 4)), Histogram((1, 2, 4))
    for value in (2.5, 3, 4):
        seen.observe(value)
    assert alike.observe_alike(3, 9.5, least=2.5, most=4)
    assert (alike.cumulative(), alike.sum) == (seen.cumulative(), seen.sum)
    assert not alike.observe_alike(2, 7, least=2, most=5)
    assert alike.count == 3
