"""The rule of a shared cursor: `position` never passes a record that was not delivered, and what was delivered is not repeated."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.cursors.cursor import CursorRead, CursorRecord, SharedCursor, in_runs

LOG = [CursorRecord(offset, b"%d" % offset) for offset in range(12)]


def read(cursor: SharedCursor) -> None:
    cursor.add(CursorRead(LOG[cursor.read_at :], len(LOG)))


def test_position_stays_at_a_record_that_came_back_while_later_ones_are_handed_out() -> None:
    cursor = SharedCursor("id", 0)
    read(cursor)
    first, second = (cursor.take(1, ahead_max=100) for _ in range(2))
    cursor.settle(first, 0)
    assert cursor.position == 0
    cursor.settle(second, 1)
    assert cursor.position == 0
    assert cursor.take(1, ahead_max=100) == first


def test_forgetting_what_was_read_ahead_repeats_nothing_that_was_delivered() -> None:
    cursor = SharedCursor("id", 0)
    read(cursor)
    first, second = (cursor.take(1, ahead_max=100) for _ in range(2))
    cursor.settle(first, 0)
    cursor.settle(second, 1)
    cursor.forget_buffer()
    assert cursor.buffered_bytes == len(first[0].value)
    assert cursor.take(100, ahead_max=100) == first
    read(cursor)
    assert cursor.take(100, ahead_max=100) == LOG[2:]


STEPS = st.lists(st.tuples(st.sampled_from(("take", "settle", "forget")), st.integers(0, 3), st.integers(0, 3)))


@given(STEPS)
def test_every_record_is_delivered_once_in_any_order_of_events(steps: list[tuple[str, int, int]]) -> None:
    cursor, delivered = SharedCursor("id", 0), list[int]()
    open_: list[list[CursorRecord]] = []

    def check() -> None:
        assert set(range(cursor.position)) <= set(delivered)

    for what, number, count in [*steps, *[("take", 9, 0), ("settle", 0, 9)] * 40]:
        if what == "take":
            if not cursor.has_records:
                read(cursor)
            open_.append(cursor.take(number, ahead_max=100))
        elif what == "settle" and open_:
            records = open_.pop(number % len(open_))
            cursor.settle(records, count)
            delivered += [record.offset for record in records[:count]]
        elif what == "forget":
            cursor.forget_buffer()
        check()
    for records in open_:
        cursor.settle(records, len(records))
        delivered += [record.offset for record in records]
    assert sorted(delivered) == list(range(len(LOG)))
    assert cursor.position == len(LOG)
    assert cursor.buffered_bytes == 0


def test_runs_are_delivered_and_not_by_turns_and_what_is_left_over_is_not() -> None:
    records = [CursorRecord(offset, b"") for offset in range(6)]
    found = [([record.offset for record in run], delivered) for run, delivered in in_runs(records, (1, 2, 1))]
    assert found == [([0], True), ([1, 2], False), ([3], True), ([4, 5], False)]
    assert [len(run) for run, delivered in in_runs(records, (9,)) if delivered] == [6]
