"""Shares, limits and rates of fairness keys."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.heap.config import HeapConfig
from holdfast.heap.fairness.index import FairIndex
from holdfast.heap.fairness.offset_table import OffsetTable
from holdfast.heap.fairness.rules import NO_KEY, OTHER_KEYS, FairRules, decode_rules, encode_rules, rules_of
from holdfast.vocabulary.errors import InvalidError

FAIR = FairRules(by_key=True)
SECOND_NS = 1_000_000_000


def index_of(*messages: tuple[str | None, int], rules: FairRules = FAIR) -> FairIndex:
    """Messages of a key and a rank each, at the offsets 1, 2, 3, …"""
    index = FairIndex(rules)
    for offset, (key, rank) in enumerate(messages, start=1):
        index.assign(offset, key, 0)
        index.add(offset, rank, again=False)
    return index


def grant(index: FairIndex, count: int, now_ms: int = 0) -> list[int]:
    index.tick(now_ms)
    taken = [offset for _, offset in index.take(count)]
    for offset in taken:
        assert index.granted(offset, now_ms)
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
    index = index_of(*[("a", 5)] * 300, *[("b", 5)] * 300, rules=FAIR._replace(weights=(("a", 3),)))
    assert Counter(keys(index, grant(index, 200))) == {"a": 150, "b": 50}
    index.change_rules(FAIR._replace(weights=(("b", 3),)), 0)
    assert Counter(keys(index, grant(index, 100))) == pytest.approx({"a": 25, "b": 75}, abs=2)


def test_messages_without_a_key_have_a_share_and_no_limits_of_keys() -> None:
    index = index_of(*[(None, 5)] * 4, *[("a", 5)] * 4, rules=FAIR._replace(key_leases_max=1))
    assert keys(index, grant(index, 8)) == [NO_KEY, "a", NO_KEY, NO_KEY, NO_KEY]


def test_a_key_that_was_away_has_saved_nothing_up() -> None:
    index = index_of(*[("a", 5)] * 50)
    grant(index, 40)
    for offset in range(100, 140):
        index.assign(offset, "b", 0)
        index.add(offset, 5, again=False)
    assert Counter(keys(index, grant(index, 10))) == {"a": 5, "b": 5}


def test_a_key_that_waited_behind_better_messages_has_saved_nothing_up() -> None:
    index = index_of(*[("a", 9)] * 20, *[("b", 1)] * 50, *[("b", 9)] * 20)
    grant(index, 50)
    assert Counter(keys(index, grant(index, 20))) == pytest.approx({"a": 10, "b": 10}, abs=1)


def test_a_key_with_one_message_at_a_time_does_not_starve_others() -> None:
    index = index_of(*[("a", 5)] * 20)
    served = []
    for offset in range(100, 120):
        index.assign(offset, "b", 0)
        index.add(offset, 5, again=False)
        for taken in grant(index, 1):
            served.append(index.key_of(taken))
            index.lease_ended(taken)
            index.forget(taken)
    assert served.count("a") == 10, "they take turns although b is forgotten between its messages"


def test_a_key_at_its_limit_is_passed_over_until_a_lease_ends() -> None:
    index = index_of(("a", 1), ("a", 2), ("b", 3), rules=FAIR._replace(key_leases_max=1))
    index.tells = True
    assert grant(index, 3) == [1, 3], "nobody waits for a"
    assert index.throttled() == (2, 1, 0)
    index.lease_ended(1)
    assert index.take_opened() == [2], "the rank that may go now counts as an event"
    assert grant(index, 3) == [2]


def test_a_rate_per_key_closes_the_key_until_its_time() -> None:
    index = index_of(*[("a", 1)] * 5, ("b", 2), rules=FAIR._replace(key_interval_ns=SECOND_NS // 10, key_burst=2))
    assert keys(index, grant(index, 6, now_ms=1_000)) == ["a", "a", "b"]
    assert index.next_tick_ms() == 1_100
    assert not index.tick(1_099)
    assert index.tick(1_100)
    assert keys(index, grant(index, 6, now_ms=1_100)) == ["a"]


def test_a_rate_of_all_keys_closes_all_of_them_until_a_tick() -> None:
    index = index_of(("a", 1), ("b", 1), ("c", 1), rules=FAIR._replace(interval_ns=SECOND_NS))
    assert len(grant(index, 3, now_ms=0)) == 1
    assert index.peek(3) == []
    assert index.throttled().by_rate == 2
    assert index.tick(5_000)
    assert len(index.peek(3)) == 1


def test_a_clock_that_goes_back_empties_buckets_and_does_not_close_them_for_ever() -> None:
    rules = FAIR._replace(key_interval_ns=SECOND_NS, key_burst=3)
    index = index_of(*[("a", 1)] * 9, rules=rules)
    grant(index, 3, now_ms=100_000)
    assert index.is_ahead_of(40_000)
    index.change_rules(rules, 40_000)
    assert grant(index, 9, now_ms=40_999) == []
    assert len(grant(index, 9, now_ms=41_000)) == 1


def test_peeking_changes_nothing() -> None:
    rules = FAIR._replace(key_leases_max=2, key_interval_ns=SECOND_NS, key_burst=3, interval_ns=SECOND_NS // 3, burst=3)
    index = index_of(*[("a", 1)] * 3, *[("b", 1)] * 3, rules=rules)
    before = index.shares()
    assert index.peek(10) == index.peek(10)
    assert index.shares() == before
    assert index.next_tick_ms() is None


def test_a_message_that_is_discarded_reprioritised_or_added_twice_counts_once() -> None:
    index = index_of(("a", 1), ("a", 2), ("b", 3))
    assert index.discard(1)
    assert not index.discard(1)
    index.add(1, 1, again=True)
    index.add(2, 9, again=True)
    index.add(2, 9, again=True)
    assert index.peek(9) == [(1, 1), (3, 3), (9, 2)]
    assert len(index) == 3
    assert [*index.packed()] == [(1, 1), (3, 3), (9, 2)]


def test_keys_beyond_the_limit_share_one_place_and_its_limits() -> None:
    index = index_of(*[(f"k{each}", 1) for each in range(5)], rules=FAIR._replace(keys_max=2, key_leases_max=1))
    assert keys(index, grant(index, 9)) == ["k0", "k1", OTHER_KEYS]
    assert index.throttled().keys == 3


def test_keys_that_nobody_needs_make_room_for_others() -> None:
    index = index_of(*[(f"key {number}", 1) for number in range(100)], rules=FAIR._replace(keys_max=100))
    for offset in grant(index, 100):
        index.lease_ended(offset)
        index.forget(offset)
    assert index.throttled().keys == 0
    index.assign(500, "new", 0)
    assert index.key_of(500) == "new"


def test_settings_become_the_rules_of_a_partition_and_bytes() -> None:
    config = HeapConfig(
        fairness=True, fairness_weights="gold=5, a=b=2", key_rate_per_s=0.5, rate_per_s=100, rate_burst=8
    )
    rules = rules_of(config, 4)
    assert dict(rules.weights) == {"gold": 5, "a=b": 2}
    assert (rules.interval_ns, rules.burst, rules.key_interval_ns, rules.key_burst) == (40_000_000, 2, 2 * SECOND_NS, 8)
    assert decode_rules(encode_rules(rules)) == rules
    assert rules_of(HeapConfig(), 4).is_off


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"key_leases_max": 3}, "invalid fairness False"),
        ({"fairness": True, "fairness_weights": "gold"}, "invalid fairness_weights 'gold'"),
        ({"fairness": True, "fairness_weights": "gold=0"}, "invalid weight of gold 0"),
        ({"rate_per_s": 0.0001}, "invalid rate_per_s 0.0001"),
        ({"fairness": True, "fairness_keys_max": 0}, "invalid fairness_keys_max 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        HeapConfig(**given)  # type: ignore[arg-type]


def test_a_table_of_offsets_drops_chunks_without_numbers() -> None:
    table = OffsetTable()
    table.set(5, 7)
    table.set(1 << 40, 9)
    assert (table.get(5), table.get(6), table.get(1 << 40), len(table)) == (7, 0, 9, 2)
    assert [*table.numbered(6)] == [(1 << 40, 9)]
    table.set(5, 0)
    table.set(5, 0)
    table.set(1 << 40, 0)
    assert (table.get(5), len(table)) == (0, 0)


@given(st.lists(st.integers(1, 5), min_size=2, max_size=5), st.integers(0, 4))
def test_between_two_messages_of_a_key_no_other_has_more_than_its_share(weights: list[int], extra: int) -> None:
    rules = FAIR._replace(weights=tuple((f"k{at}", weight) for at, weight in enumerate(weights)))
    index = index_of(*[(f"k{at}", 7) for _ in range(60) for at in range(len(weights))], rules=rules)
    served = keys(index, [offset for _ in range(40 // (1 + extra)) for offset in grant(index, 1 + extra)])
    for mine, weight in enumerate(weights):
        for other, their in enumerate(weights):
            between = 0
            for key in served:
                between = 0 if key == f"k{mine}" else between + (key == f"k{other}")
                assert between <= -(-their // weight) + 1
