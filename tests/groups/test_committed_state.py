"""What one key of offsets holds after a change."""

from holdfast.groups.committed_state import CommittedState
from holdfast.groups.model import CommittedOffset
from holdfast.vocabulary.types import TopicPartition


def at(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def offset(value: int, topic_id: str = "old", at_ms: int = 1) -> CommittedOffset:
    return CommittedOffset(offset=value, topic_id=topic_id, committed_at_ms=at_ms)


def test_neighbours_stay_as_they_are() -> None:
    ledger = CommittedState(0)
    ledger.load("g", {at(0): offset(5), at(15): offset(6), at(16): offset(7)})
    merged = ledger.merged("g", {at(1): offset(9), at(15): None})
    assert merged == {at(0): offset(5), at(1): offset(9)}
    ledger.replace("g", {at(1): offset(9), at(15): None}, merged)
    assert ledger.offsets("g") == {at(0): offset(5), at(1): offset(9), at(16): offset(7)}


def test_offsets_of_a_deleted_topic_are_dropped_with_the_first_of_the_new_one() -> None:
    ledger = CommittedState(0)
    ledger.load("g", {at(0): offset(5), at(2): offset(6, topic_id="")})
    changes = {at(1): offset(1, topic_id="new")}
    merged = ledger.merged("g", changes)
    assert merged == {at(1): offset(1, topic_id="new"), at(2): offset(6, topic_id="")}
    ledger.replace("g", changes, merged)
    assert ledger.offsets("g") == merged


def test_of_changes_to_both_the_later_topic_counts() -> None:
    changes = {at(0): offset(5, at_ms=1), at(1): offset(1, topic_id="new", at_ms=2)}
    assert CommittedState(0).merged("g", changes) == {at(1): offset(1, topic_id="new", at_ms=2)}


def test_the_topic_of_a_change_counts_whatever_the_clock_says() -> None:
    ledger = CommittedState(0)
    ledger.load("g", {at(0): offset(5, at_ms=1_000)})
    changes = {at(1): offset(1, topic_id="new", at_ms=1)}
    assert ledger.merged("g", changes) == changes


def test_of_changes_to_two_topics_the_last_counts_whatever_the_clock_says() -> None:
    changes = {at(0): offset(5, at_ms=1_000), at(1): offset(1, topic_id="new", at_ms=1)}
    assert CommittedState(0).merged("g", changes) == {at(1): offset(1, topic_id="new", at_ms=1)}


def test_a_group_without_offsets_is_unknown() -> None:
    ledger = CommittedState(0)
    ledger.load("g", {at(0): offset(5)})
    ledger.replace("g", {at(0): None}, {})
    assert not ledger.knows("g")
    assert ledger.groups() == set()
