"""A leader that begins with a snapshot, and whose clock is behind that of the one before it."""

from holdfast.heap.fairness.index import FairIndex
from holdfast.heap.fairness.rules import NS_PER_MS, FairRules


def test_a_key_that_a_snapshot_closed_opens_though_the_clock_was_behind_its_last_charge() -> None:
    before = FairIndex(FairRules(by_key=True, key_interval_ns=100 * NS_PER_MS, key_burst=3))
    for offset in (1, 2, 3):
        before.assign(offset, "a", 1_000)
        before.add(offset, 5, again=False)
    before.granted(1, 1_000)
    index = FairIndex.restored(before.image(), before.fair_image(), [1])
    index.granted(2, 1_000)  # of the log behind the snapshot
    index.tick(950)
    assert index.peek(1) == []
    assert index.next_tick_ms() == 1_000
    assert index.tick(1_000)
    assert index.peek(1) == [(5, 3)]
