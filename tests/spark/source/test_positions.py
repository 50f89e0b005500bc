"""Streams: where the next batch ends, and which errors follow when topics changed meanwhile."""

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from holdfast.client.splits import estimate_ranges, limit_each
from holdfast.log.topics import UnknownTopicError
from holdfast.spark.ranges import DataLossError, PartitionRange, TopicChangedError, TopicInfo, TopicOffsets
from holdfast.spark.source.filters import FilterBounds, IntRange
from holdfast.spark.source.options import SourceOptions, parse_source_options
from holdfast.spark.source.plan import (
    batch_ranges,
    check_retention,
    end_position,
    initial_position,
    next_position,
    stream_ranges,
    topic_offsets,
)
from holdfast.spark.source.positions import StreamPosition, TopicPosition, parse_position
from holdfast.vocabulary.errors import InvalidError


@dataclass
class Known:
    """A planner over fixed offsets."""

    logs: dict[str, TopicOffsets] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)

    def topics(self) -> list[TopicInfo]:
        return [TopicInfo(name, each.topic_id, len(each.ends)) for name, each in sorted(self.logs.items())]

    def topic_offsets(self, topic: str) -> TopicOffsets:
        if topic not in self.logs:
            raise UnknownTopicError(topic)
        return self.logs[topic]

    def offsets_at(self, topic: str, partitions: Iterable[int], timestamp_ms: int) -> dict[int, int]:
        return dict.fromkeys(partitions, self.times[timestamp_ms])

    def limit(self, wholes: Sequence[PartitionRange], *, rows_max: int, bytes_max: int) -> list[PartitionRange]:
        ends = limit_each(
            [estimate_ranges([], each.start, each.end) for each in wholes], rows_max=rows_max, bytes_max=bytes_max
        )
        return [PartitionRange(r.topic, r.partition, r.start, end) for r, end in zip(wholes, ends, strict=True)]


def stream(**more: str) -> SourceOptions:
    return parse_source_options({"bootstrap": "h:1", "topics": "a", **more}, streaming=True)


def batch(**more: str) -> SourceOptions:
    return parse_source_options({"bootstrap": "h:1", "topics": "a", **more}, streaming=False)


def at(*offsets: int, topic_id: str = "A") -> StreamPosition:
    return StreamPosition({"a": TopicPosition(topic_id, dict(enumerate(offsets)))})


def known(*ends: int, starts: Sequence[int] = (), topic_id: str = "A") -> Known:
    return Known({"a": TopicOffsets(topic_id, tuple(starts) or (0,) * len(ends), ends)})


def after(
    options: SourceOptions,
    plans: Known,
    start: StreamPosition,
    *,
    limited: bool = True,
    until: StreamPosition | None = None,
    waited_ms: int = 0,
) -> StreamPosition:
    offsets = topic_offsets(options, plans)
    return next_position(options, plans, offsets, start, limited=limited, until=until, waited_ms=waited_ms)


def spans(options: SourceOptions, plans: Known, bounds: FilterBounds | None = None) -> list[tuple[int, int, int]]:
    pieces = batch_ranges(options, bounds or FilterBounds(), plans)
    return [(each.range.partition, each.range.start, each.range.end) for each in pieces]


def test_a_checkpointed_position_is_restored() -> None:
    position = StreamPosition({"b": TopicPosition("B", {1: 5, 0: 1 << 60}), "a": TopicPosition("A", {10: 1, 9: 2})})
    written = json.dumps(position.json())
    assert parse_position(json.loads(written)) == position
    assert json.dumps(parse_position(json.loads(written)).json()) == written


def test_a_checkpoint_of_another_source_is_refused() -> None:
    with pytest.raises(InvalidError, match="version"):
        parse_position({"orders": {"0": 5}})


def test_a_new_stream_begins_at_its_starting_offsets() -> None:
    plans = known(10, 20, starts=(2, 3))
    assert initial_position(stream(), plans) == at(10, 20)
    assert initial_position(stream(startingOffsets="earliest"), plans) == at(2, 3)
    assert initial_position(stream(startingOffsets='{"a": {"0": 5, "1": -2}}'), plans) == at(5, 3)
    assert initial_position(stream(startingTimestamp="77"), Known(plans.logs, {77: 7})) == at(7, 7)


def test_nothing_new_is_the_same_position() -> None:
    assert after(stream(), known(4, 5), at(4, 5)) == at(4, 5)


def test_a_position_never_goes_back_when_end_offsets_are_stale() -> None:
    assert after(stream(), known(3, 9), at(4, 5)) == at(4, 9)


def test_limits_hold_unless_spark_reads_all_available() -> None:
    options = stream(maxRowsPerTrigger="10")
    assert after(options, known(80, 20), at(0, 0)) == at(8, 2)
    assert after(options, known(80, 20), at(0, 0), limited=False) == at(80, 20)
    assert after(stream(maxBytesPerTrigger="2560"), known(80, 20), at(0, 0)) == at(8, 2)


def test_a_minimum_is_waited_for_unless_the_stream_ends_now() -> None:
    options = stream(minRows="50")
    assert after(options, known(20, 20), at(0, 0)) == at(0, 0)
    assert after(options, known(30, 20), at(0, 0)) == at(30, 20)
    until = end_position(options, known(20, 20).logs)
    assert after(options, known(25, 25), at(0, 0), until=until) == at(20, 20)


def test_a_minimum_is_waited_for_no_longer_than_the_delay() -> None:
    options = stream(minRows="50", maxTriggerDelay="10s")
    assert after(options, known(20, 20), at(0, 0), waited_ms=9_999) == at(0, 0)
    assert after(options, known(20, 20), at(0, 0), waited_ms=10_000) == at(20, 20)


def test_times_of_single_partitions_are_resolved_to_offsets() -> None:
    plans = Known(known(10, 20, starts=(2, 3)).logs, {100: 5, 200: 99})
    assert initial_position(stream(startingOffsetsByTimestamp='{"a": {"0": 100, "1": 200}}'), plans) == at(5, 20)
    both = {"startingOffsetsByTimestamp": '{"a": {"0": 100}}', "endingOffsetsByTimestamp": '{"a": {"0": 200}}'}
    assert spans(batch(**both), plans) == [(0, 5, 10), (1, 3, 20)]
    strict = stream(startingOffsetsByTimestamp='{"a": {"1": 200}}', startingOffsetsByTimestampStrategy="error")
    with pytest.raises(InvalidError, match=r"a:1 at 200 ms.*startingOffsetsByTimestampStrategy"):
        initial_position(strict, plans)
    with pytest.raises(InvalidError, match="0 to 1"):
        initial_position(stream(startingOffsetsByTimestamp='{"a": {"7": 100}}'), plans)


def test_an_available_now_run_reaches_its_end_and_stops() -> None:
    options, position = stream(maxRowsPerTrigger="30"), at(0, 0)
    until, rounds = end_position(options, known(50, 20).logs), 0
    while (reached := after(options, known(999, 999), position, until=until)) != position:
        position, rounds = reached, rounds + 1
    assert (position, rounds) == (at(50, 20), 3)


def test_new_topics_of_a_pattern_are_read_from_the_beginning() -> None:
    options = parse_source_options({"bootstrap": "h:1", "topicsPattern": "a.*"}, streaming=True)
    plans = Known(
        {"a": TopicOffsets("A", (0,), (5,)), "ab": TopicOffsets("AB", (0,), (3,)), "b": TopicOffsets("B", (0,), (9,))}
    )
    reached = after(options, plans, at(5))
    assert [str(each.range) for each in stream_ranges(at(5), reached)] == ["ab:0 [0, 3)"]


def test_a_recreated_topic_is_an_error_or_is_read_from_the_beginning(caplog: pytest.LogCaptureFixture) -> None:
    plans = known(3, topic_id="NEW")
    with pytest.raises(TopicChangedError, match="deleted and recreated"):
        after(stream(), plans, at(10))
    with caplog.at_level(logging.WARNING):
        reached = after(stream(failOnDataLoss="false"), plans, at(10))
    assert [str(each.range) for each in stream_ranges(at(10), reached)] == ["a:0 [0, 3)"]
    assert any("deleted and recreated" in each for each in caplog.messages)


def test_a_deleted_topic_is_an_error_or_stands_still(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UnknownTopicError, match="'a' does not exist"):
        after(stream(), Known(), at(10))
    assert after(stream(failOnDataLoss="false"), Known(), at(10)) == at(10)
    assert any("'a' does not exist" in each for each in caplog.messages)


def test_retention_that_was_faster_is_an_error_or_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    plans = known(50, starts=(20,))
    with pytest.raises(DataLossError, match=r"offsets 10 to 19 are missing.*begins at 20"):
        check_retention(stream(), plans.logs, at(10))
    check_retention(stream(failOnDataLoss="false"), plans.logs, at(10))
    assert any("begins at 20" in each for each in caplog.messages)
    check_retention(stream(), plans.logs, at(20))


def test_a_batch_read_is_everything_within_its_ends_and_filters() -> None:
    plans = known(10, 20, 0, starts=(2, 3, 0))
    assert spans(batch(), plans) == [(0, 2, 10), (1, 3, 20)]
    assert spans(batch(endingOffsets='{"a": {"1": 7}}', partitions="1-2"), plans) == [(1, 3, 7)]
    assert spans(batch(), plans, FilterBounds(offsets=IntRange(8, 12))) == [(0, 8, 10), (1, 8, 12)]
    assert spans(batch(), plans, FilterBounds(partitions_in={0})) == [(0, 2, 10)]
    times = Known(plans.logs, {100: 5, 200: 99})
    assert spans(batch(startingTimestamp="100", endingTimestamp="200"), times) == [(0, 5, 10), (1, 5, 20)]


def test_missing_offsets_are_an_error_or_skipped() -> None:
    plans = known(10, starts=(5,))
    for given in ({"startingOffsets": '{"a": {"0": 1}}'}, {"endingOffsets": '{"a": {"0": 11}}'}):
        with pytest.raises(DataLossError):
            spans(batch(**given), plans)
        assert spans(batch(**given, failOnDataLoss="false"), plans) == [(0, 5, 10)]
    assert spans(batch(startingOffsets='{"a": {"0": 11}}', failOnDataLoss="false"), plans) == []


def test_a_named_topic_or_partition_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidError, match="'zz'"):
        spans(batch(startingOffsets='{"zz": {"0": 1}}'), known(10))
    with pytest.raises(InvalidError, match="0 to 0"):
        spans(batch(startingOffsets='{"a": {"7": 1}}'), known(10))
    with pytest.raises(InvalidError, match="0 to 0"):
        spans(batch(partitions="3"), known(10))
    with pytest.raises(UnknownTopicError):
        spans(batch(), Known())
    assert spans(batch(failOnDataLoss="false"), Known()) == []
