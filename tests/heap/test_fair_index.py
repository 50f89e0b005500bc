"""Shares, limits and rates of fairness keys."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.heap.fair_index import FairIndex
from holdfast.heap.fair_rules import FairRules
from holdfast.heap.offset_table import OffsetTable
from holdfast.vocabulary.errors import InvalidError


def index_of(
    *messages: tuple[str, int], weights: dict[str, int] | None = None, rules: FairRules | None = None
) -> FairIndex:
    """Messages of a key and a rank each, at the offsets 1, 2, 3, …"""
    index = FairIndex(rules or FairRules())
    for offset, (key, rank) in enumerate(messages, start=1):
        index.assign(offset, key, (weights or {}).get(key, 1))
        index.add(offset, rank, again=False)
    return index


def grant(index: FairIndex, count: int, now_ms: float = 0) -> list[int]:
    taken = [offset for _, offset in index.peek(count, now_ms)]
    for offset in taken:
        index.granted(offset, now_ms)
    return taken


def keys(index: FairIndex, offsets: list[int]) -> list[str]:
    return [index.key_of(offset) for offset in offsets]


def test_priorities_win_over_fairness() -> None:
    index = index_of(("a", 1), ("a", 1), ("a", 1), ("b", 2))
    assert grant(index, 4) == [1, 2, 3, 4]


def test_keys_of_one_priority_take_turns() -> None:
    index = index_of(*[("a", 5)] * 100, *[("b", 5)] * 3)
    assert keys(index, grant(index, 6)) == ["a", "b", "a", "b", "a", "b"]


def test_a_key_has_the_share_of_its_weight() -> None:
    index = index_of(*[("a", 5)] * 300, *[("b", 5)] * 300, weights={"a": 3})
    served = Counter(keys(index, grant(index, 200)))
    assert served == {"a": 150, "b": 50}


def test_a_key_that_was_away_has_saved_nothing_up() -> None:
    index = index_of(*[("a", 5)] * 50)
    grant(index, 40)
    for offset in range(100, 140):
        index.assign(offset, "b")
        index.add(offset, 5, again=False)
    assert Counter(keys(index, grant(index, 10))) == {"a": 5, "b": 5}


def test_a_key_with_one_message_at_a_time_does_not_starve_others() -> None:
    index = index_of(*[("a", 5)] * 20)
    served = []
    for offset in range(100, 120):
        index.assign(offset, "b")
        index.add(offset, 5, again=False)
        for taken in grant(index, 1):
            served.append(index.key_of(taken))
            index.lease_ended(taken)
            index.forget(taken)
    assert served.count("a") == 10, "they take turns although b is forgotten between its messages"


def test_a_key_at_its_limit_is_passed_over_until_a_lease_ends() -> None:
    index = index_of(("a", 1), ("a", 2), ("b", 3), rules=FairRules(leases_per_key_max=1))
    assert grant(index, 3) == [1, 3], "nobody waits for a"
    assert index.lease_ended(1) == 2, "the rank that is ready now counts as an event"
    assert index.lease_ended(3) is None
    assert grant(index, 3) == [2]


def test_a_rate_per_key_closes_the_key_until_its_time() -> None:
    index = index_of(*[("a", 1)] * 5, ("b", 2), rules=FairRules(rate_per_key=10, burst=2))
    assert keys(index, grant(index, 6, now_ms=1_000)) == ["a", "a", "b"]
    assert index.next_tick_ms() == 1_100
    assert not index.tick(1_099)
    assert index.tick(1_100)
    assert keys(index, grant(index, 6, now_ms=1_100)) == ["a"]


def test_a_rate_of_all_keys_closes_all_of_them() -> None:
    index = index_of(("a", 1), ("b", 1), ("c", 1), rules=FairRules(rate=1))
    assert len(grant(index, 3, now_ms=0)) == 1
    assert grant(index, 3, now_ms=5_000) == [], "only a tick opens: what is handed out does not change by itself"
    assert index.tick(5_000)
    assert len(grant(index, 3, now_ms=5_000)) == 1


def test_peeking_changes_nothing() -> None:
    index = index_of(
        *[("a", 1)] * 3, *[("b", 1)] * 3, rules=FairRules(leases_per_key_max=2, rate_per_key=1, rate=3, burst=3)
    )
    before = index.shares()
    assert index.peek(10, 0) == index.peek(10, 0)
    assert index.shares() == before
    assert index.next_tick_ms() is None


def test_a_message_that_is_discarded_reprioritised_or_added_twice_counts_once() -> None:
    index = index_of(("a", 1), ("a", 2), ("b", 3))
    assert index.discard(1)
    assert not index.discard(1)
    index.add(1, 1, again=True)
    index.add(2, 9, again=True)
    index.add(2, 9, again=True)
    assert index.peek(9, 0) == [(1, 1), (3, 3), (9, 2)]
    assert len(index) == 3


def test_an_invalid_weight_or_rate_is_refused() -> None:
    with pytest.raises(InvalidError, match="invalid weight 0"):
        index_of(("a", 1), weights={"a": 0})
    with pytest.raises(InvalidError, match="invalid burst 0"):
        FairRules(burst=0)


def test_what_nobody_needs_is_forgotten() -> None:
    index = index_of(*[(f"key {number}", 1) for number in range(100)])
    for offset in grant(index, 100):
        index.lease_ended(offset)
        index.forget(offset)
    assert index.shares()[2] == []


def test_a_table_of_offsets_drops_chunks_without_numbers() -> None:
    table = OffsetTable()
    table.set(5, 7)
    table.set(1 << 40, 9)
    assert (table.get(5), table.get(6), table.get(1 << 40), len(table)) == (7, 0, 9, 2)
    table.set(5, 0)
    table.set(5, 0)
    table.set(1 << 40, 0)
    assert (table.get(5), len(table)) == (0, 0)


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["add", "grant", "end", "drop", "tick"]), st.integers(0, 3), st.integers(0, 4)),
    max_size=60,
)


@given(OPERATIONS, st.integers(0, 2), st.sampled_from([0, 5]))
def test_ranks_never_fall_and_a_replay_of_grants_ends_at_the_same_shares(
    operations: list[tuple[str, int, int]], limit: int, rate: int
) -> None:
    rules = FairRules(leases_per_key_max=limit, rate_per_key=rate, burst=2)
    index, replayed = FairIndex(rules), FairIndex(rules)
    offset, now_ms, leased = 0, 0, list[int]()
    for what, one, two in operations:
        now_ms += 50
        if what == "add":
            offset += 1
            for each in (index, replayed):
                each.assign(offset, f"k{one}", 1 + two)
                each.add(offset, two, again=False)
        elif what == "grant":
            taken = index.peek(1 + one, now_ms)
            assert [rank for rank, _ in taken] == sorted(rank for rank, _ in taken)
            for _, granted in taken:
                index.granted(granted, now_ms)
                replayed.granted(granted, now_ms)
                leased.append(granted)
        elif what == "end" and leased:
            done = leased.pop(0)
            for each in (index, replayed):
                each.lease_ended(done)
                if two % 2:
                    each.forget(done)
                else:
                    each.add(done, two, again=True)
        elif what == "tick":
            index.tick(now_ms)  # the replay has no clock
    assert index.shares() == replayed.shares()
    if limit:
        assert all(count <= limit for count in Counter(map(index.key_of, leased)).values())
