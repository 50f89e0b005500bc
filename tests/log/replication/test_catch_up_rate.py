"""What learners are sent: within the rate over any time, all of it used, in turns."""

from hypothesis import given
from hypothesis import strategies as st
from tests.support.waiting import async_until

from holdfast.log.replication.catch_up_rate import BURST_MS, CatchUpRate
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.settings import MIB


class StillClock(RealClock):
    """A clock that a test moves."""

    now = 0

    def boot_ms(self) -> int:
        return self.now


@given(
    st.integers(1_000, 10**9),
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 2_000_000)), min_size=1, max_size=50),
)
def test_over_any_time_no_more_is_sent_than_the_rate_allows_a_burst_and_one_message(
    bytes_per_s: int, steps: list[tuple[int, int]]
) -> None:
    clock = StillClock()
    rate, sent = CatchUpRate(bytes_per_s, clock=clock), list[tuple[int, int]]()
    for pause_ms, size in steps:
        clock.now += pause_ms
        if rate.wait_ms() <= 0:
            rate.sent(size)
            sent.append((clock.now, size))
    for first, (began_ms, _) in enumerate(sent):
        for last in range(first, len(sent)):
            took_ms = sent[last][0] - began_ms
            before_last = sum(size for _, size in sent[first:last])
            assert before_last <= (took_ms + BURST_MS) * bytes_per_s / 1_000 * (1 + 1e-9)


async def test_learners_take_turns_and_a_busy_one_holds_up_no_other() -> None:
    """A partition whose log grows as fast as it is sent, and one that has a hundred bytes to send."""
    rate, order = CatchUpRate(8 * MIB, clock=RealClock()), list[str]()

    def busy() -> int:
        order.append("busy")
        rate.ask(busy)
        rate.ask(busy)  # woken by an append and by an answer: one turn
        return MIB

    def quiet() -> int:
        order.append("quiet")
        return 100

    rate.ask(busy)
    await async_until(lambda: len(order) >= 3)
    rate.ask(quiet)
    seen = len(order)
    await async_until(lambda: "quiet" in order)
    assert order.index("quiet") - seen <= 1
    await async_until(lambda: len(order) >= 6)  # the timer goes on by itself
    rate.withdraw(busy)
    ended = len(order)
    await RealClock().sleep_ms(300)
    assert len(order) == ended
