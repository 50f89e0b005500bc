"""Who keeps the tail of a partition, how many an append needs, and when another set is due."""

import pytest

from holdfast.log.model import PartitionConfig
from holdfast.log.partition.replica_members import can_hand_over_log, choose_members, is_other_set_due, may_reopen_here
from holdfast.log.replica_sets import replicas_needed


def test_the_own_wal_comes_first_and_the_plan_fills_the_set() -> None:
    assert choose_members(["b", "a", "c"], "a", 3) == ("a", "b", "c")
    assert choose_members(["b", "c", "d"], "a", 3) == ("a", "b", "c")
    assert choose_members(["b", "b", "a"], "a", 3) == ("a", "b")
    assert choose_members([], "a", 3) == ("a",)
    assert choose_members(["a", "b"], "a", 1) == ("a",)


@pytest.mark.parametrize(("replicas", "min_insync", "needed"), [(2, 1, 2), (3, 1, 2), (3, 2, 2), (3, 3, 3), (1, 1, 1)])
def test_an_append_needs_a_majority_of_the_factor_or_more(replicas: int, min_insync: int, needed: int) -> None:
    assert replicas_needed(PartitionConfig(level="quorum", replicas=replicas, min_insync=min_insync)) == needed


def test_a_topic_that_leaves_quorum_needs_no_others() -> None:
    assert replicas_needed(PartitionConfig(level="local", min_insync=2)) == 1


@pytest.mark.parametrize(
    ("members", "wanted", "reachable", "count", "due"),
    [
        ("ab", "abc", "abc", 3, True),  # one more
        ("ab", "abc", "ab", 3, False),  # which cannot be reached
        ("abc", "abd", "abd", 3, True),  # another one
        ("abc", "ab", "ab", 3, False),  # one is gone: a smaller set has no smaller quorum
        ("abc", "ab", "ab", 2, True),  # fewer are wanted
        ("abc", "a", "a", 2, False),  # and not even those are there
        ("abc", "ab", "ac", 2, False),  # and one of those that shall stay cannot be reached
        ("abc", "abc", "abc", 3, False),
    ],
)
def test_another_set_is_due_when_somebody_is_to_join_or_there_are_too_many(
    members: str, wanted: str, reachable: str, count: int, due: bool
) -> None:
    assert is_other_set_due(members, wanted, reachable, count) is due


@pytest.mark.parametrize(
    ("planned", "in_sync", "needed", "can"),
    [
        ("bc", "abc", 2, True),
        ("bca", "abc", 2, True),
        ("bc", "ab", 2, False),  # one copy would be left
        ("bca", "ab", 2, False),  # our own does not count
        ("bc", "ac", 1, False),  # the next leader does not keep up
        ("b", "ab", 1, True),
        ("abc", "abc", 2, False),  # it is planned here
        ("", "abc", 1, False),
    ],
)
def test_a_tail_moves_with_its_partition_only_to_replicas_that_have_it(
    planned: str, in_sync: str, needed: int, can: bool
) -> None:
    assert can_hand_over_log(tuple(planned), "a", tuple(in_sync), needed) == can


@pytest.mark.parametrize(
    ("planned", "can_be_drained", "may"),
    [
        ("abc", True, True),
        ("abc", False, True),
        ("bac", True, False),  # it is about to move
        ("bac", False, True),  # it could not: its tail never becomes durable
        ("", False, False),
    ],
)
def test_the_next_epoch_begins_here_if_it_is_planned_here_or_nothing_can_be_drained(
    planned: str, can_be_drained: bool, may: bool
) -> None:
    assert may_reopen_here(tuple(planned), "a", can_be_drained=can_be_drained) is may
