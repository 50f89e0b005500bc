"""What learners are sent: within the rate over any time, and all of it used."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.log.replication.catch_up_rate import BURST_MS, CatchUpRate


@given(
    st.integers(1_000, 10**9),
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 2_000_000)), min_size=1, max_size=50),
)
def test_over_any_time_no_more_is_sent_than_the_rate_allows_a_burst_and_one_message(
    bytes_per_s: int, steps: list[tuple[int, int]]
) -> None:
    rate, now_ms, sent = CatchUpRate(bytes_per_s), 0, []
    for pause_ms, size in steps:
        now_ms += pause_ms
        if rate.may_send(now_ms):
            rate.sent(size)
            sent.append((now_ms, size))
    for first, (began_ms, _) in enumerate(sent):
        for last in range(first, len(sent)):
            took_ms = sent[last][0] - began_ms
            before_last = sum(size for _, size in sent[first:last])
            assert before_last <= (took_ms + BURST_MS) * bytes_per_s / 1_000 * (1 + 1e-9)


def test_a_sender_that_never_rests_gets_the_rate() -> None:
    rate, sent = CatchUpRate(1_000_000), 0
    for now_ms in range(10_000):
        while rate.may_send(now_ms):
            rate.sent(10_000)
            sent += 10_000
    assert 10_000_000 <= sent <= 10_200_000
