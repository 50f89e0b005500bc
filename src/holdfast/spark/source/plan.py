"""From options to ranges: topics, partitions, start and end offsets. Pure decisions over a planner's metadata.

The one rule: no requested record is left out silently. Missing ones are an error, or with `failOnDataLoss=false` a warning.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from holdfast.kafka.special_offsets import EARLIEST, LATEST
from holdfast.log.topics import UnknownTopicError
from holdfast.spark.ranges import DataLossError, PartitionRange, TopicChangedError, TopicInfo, TopicOffsets
from holdfast.spark.source.filters import FilterBounds
from holdfast.spark.source.options import OffsetRangeLimit, SourceOptions
from holdfast.spark.source.positions import StreamPosition, TopicPosition
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_log: Final = logging.getLogger(__name__)


class OffsetPlanner(Protocol):
    """The part of a `Planner` that is needed here."""

    def topics(self) -> list[TopicInfo]: ...
    def topic_offsets(self, topic: str) -> TopicOffsets: ...
    def offsets_at(self, topic: str, partitions: Iterable[int], timestamp_ms: int) -> dict[int, int]: ...
    def limit(self, wholes: Sequence[PartitionRange], *, rows_max: int, bytes_max: int) -> list[PartitionRange]: ...


class SourceRange(NamedTuple):
    """A range, and the id of its topic."""

    range: PartitionRange
    topic_id: str


def topic_offsets(options: SourceOptions, planner: OffsetPlanner) -> dict[str, TopicOffsets]:
    """Start and end offsets of every topic that the options select."""
    found: dict[str, TopicOffsets] = {}
    for name in _topic_names(options, planner):
        try:
            found[name] = planner.topic_offsets(name)
        except UnknownTopicError as error:
            _report_loss(options, error)
    _check_named_offsets(options, found)
    return found


def batch_ranges(options: SourceOptions, bounds: FilterBounds, planner: OffsetPlanner) -> list[SourceRange]:
    """The ranges of a batch read, in order of topic and partition."""
    ranges = []
    for name, offsets in sorted(topic_offsets(options, planner).items()):
        numbers = [number for number in _partitions(options, name, offsets) if bounds.wants(name, number)]
        starts = _resolve_limit(options.start, name, numbers, offsets, planner)
        ends = _resolve_limit(options.end, name, numbers, offsets, planner)
        for number in numbers:
            start = clamp_start(options, name, number, starts[number], offsets)
            end = _clamp_end(options, name, number, ends[number], offsets)
            start, end = max(start, bounds.offsets.start), min(end, bounds.offsets.end)
            if start < end:
                ranges.append(SourceRange(PartitionRange(name, number, start, end), offsets.topic_id))
    return ranges


def initial_position(options: SourceOptions, planner: OffsetPlanner) -> StreamPosition:
    """The position of a new stream."""
    topics = {}
    for name, offsets in topic_offsets(options, planner).items():
        numbers = _partitions(options, name, offsets)
        starts = _resolve_limit(options.start, name, numbers, offsets, planner)
        clamped = {number: clamp_start(options, name, number, starts[number], offsets) for number in numbers}
        topics[name] = TopicPosition(offsets.topic_id, clamped)
    return StreamPosition(topics)


def next_position(
    options: SourceOptions,
    planner: OffsetPlanner,
    offsets: Mapping[str, TopicOffsets],
    start: StreamPosition,
    *,
    limited: bool,
    until: StreamPosition | None = None,
    waited_ms: int = 0,
) -> StreamPosition:
    """The end of the stream's next batch: `start` itself if there is nothing new, or less than the minimum.

    `until` is the end of an `AvailableNow` run, which waits for no minimum. `waited_ms`: for how long records have waited for it.
    """
    reached = _advance(options, start, until if until is not None else end_position(options, offsets))
    ranges = stream_ranges(start, reached)
    if (
        limited
        and until is None
        and waited_ms < options.trigger_delay_ms
        and sum(each.range.end - each.range.start for each in ranges) < (options.rows_min or 0)
    ):
        return start
    if not ranges or not limited or (options.rows_max is None and options.bytes_max is None):
        return reached
    limited_ranges = planner.limit(
        [each.range for each in ranges], rows_max=options.rows_max or 1 << 62, bytes_max=options.bytes_max or 1 << 62
    )
    for each in limited_ranges:
        before = reached.topics[each.topic]
        topics = dict(reached.topics)
        topics[each.topic] = TopicPosition(before.id, {**before.offsets, each.partition: each.end})
        reached = StreamPosition(topics)
    return reached


def end_position(options: SourceOptions, offsets: Mapping[str, TopicOffsets]) -> StreamPosition:
    """The end of every partition that the options select."""
    return StreamPosition(
        {
            name: TopicPosition(
                each.topic_id, {number: each.ends[number] for number in _partitions(options, name, each)}
            )
            for name, each in offsets.items()
        }
    )


def stream_ranges(start: StreamPosition, end: StreamPosition) -> list[SourceRange]:
    """The ranges between two positions; they follow from these alone. A new topic or partition is read from 0 on."""
    ranges = []
    for name, topic in sorted(end.topics.items()):
        before = start.topics.get(name)
        known = before.offsets if before is not None and before.id == topic.id else {}
        for number, stop in sorted(topic.offsets.items()):
            begin = known.get(number, 0)
            if begin < stop:
                ranges.append(SourceRange(PartitionRange(name, number, begin, stop), topic.id))
    return ranges


def clamp_start(options: SourceOptions, topic: str, number: int, requested: int, offsets: TopicOffsets) -> int:
    """The start offset for `requested`; within the log."""
    start, end = offsets.starts[number], offsets.ends[number]
    if requested > end:
        lost = (requested, requested + 1), (end, requested)
        _report_loss(options, DataLossError(topic, number, *lost, f"the log ends at {end}"))
        return end
    if requested < start:
        reason = f"the log begins at {start}: retention removed the records before"
        _report_loss(options, DataLossError(topic, number, (requested, end), (requested, start), reason))
        return start
    return requested


def _advance(options: SourceOptions, start: StreamPosition, target: StreamPosition) -> StreamPosition:
    """`target`, but nowhere before `start`; a topic deleted or recreated since is an error or a warning."""
    topics = dict(target.topics)
    for name, before in start.topics.items():
        now = topics.get(name)
        if now is None:
            _report_loss(options, UnknownTopicError(name))
            topics[name] = before  # nothing new; if it is recreated, it is another topic
        elif now.id != before.id:
            _report_loss(options, TopicChangedError(name, before.id, now.id))
        else:
            offsets = {number: max(at, now.offsets.get(number, 0)) for number, at in before.offsets.items()}
            topics[name] = TopicPosition(now.id, {**now.offsets, **offsets})
    return StreamPosition(topics)


def check_retention(options: SourceOptions, offsets: Mapping[str, TopicOffsets], start: StreamPosition) -> None:
    """Fail early, on the driver, if retention has overtaken the stream."""
    for name, each in offsets.items():
        before = start.topics.get(name)
        if before is not None and before.id == each.topic_id:
            for number, at in before.offsets.items():
                if at < each.starts[number]:  # past the end is no loss: the offsets may be older than what was read
                    clamp_start(options, name, number, at, each)


def _topic_names(options: SourceOptions, planner: OffsetPlanner) -> list[str]:
    if not options.pattern:
        return list(options.topics)
    pattern = re.compile(options.pattern)
    return [each.name for each in planner.topics() if pattern.fullmatch(each.name)]


def _partitions(options: SourceOptions, topic: str, offsets: TopicOffsets) -> list[int]:
    return [number for number in range(len(offsets.ends)) if options.wants(topic, number)]


def _resolve_limit(
    limit: OffsetRangeLimit, topic: str, numbers: Sequence[int], offsets: TopicOffsets, planner: OffsetPlanner
) -> dict[int, int]:
    special = {EARLIEST: offsets.starts, LATEST: offsets.ends}
    requested = {number: limit.of(topic, number) for number in numbers}
    resolved = {number: special[at][number] if at in special else at for number, at in requested.items()}
    timed: dict[int, list[int]] = {}
    for number in numbers:
        if (time_ms := limit.time_of(topic, number)) is not None:
            timed.setdefault(time_ms, []).append(number)
    for time_ms, group in timed.items():
        for number, at in planner.offsets_at(topic, group, time_ms).items():
            if limit.must_match and at >= offsets.ends[number]:
                name = f"start of {topic}:{number} at {time_ms} ms"
                raise InvalidError(
                    name, "no record", "followed by one, while startingOffsetsByTimestampStrategy is error"
                )
            # Records written since the end offsets were read belong to the next read.
            resolved[number] = min(at, offsets.ends[number])
    return resolved


def _clamp_end(options: SourceOptions, topic: str, number: int, requested: int, offsets: TopicOffsets) -> int:
    end = offsets.ends[number]
    if requested > end:
        lost = (requested - 1, requested), (end, requested)
        _report_loss(options, DataLossError(topic, number, *lost, f"the log ends at {end}"))
    return min(requested, end)


def _check_named_offsets(options: SourceOptions, found: dict[str, TopicOffsets]) -> None:
    """Topics and partitions that are named must exist: a misspelt topic would otherwise start somewhere else."""
    named = {topic: numbers for limit in (options.start, options.end) for topic, numbers in limit.named.items()}
    for topic, numbers in named.items():
        if topic not in found:
            if topic in options.topics:
                continue  # its absence is reported already
            raise InvalidError("topic in startingOffsets or endingOffsets", topic, "one of the topics that are read")
        if not numbers <= set(range(len(found[topic].ends))):
            count = len(found[topic].ends)
            raise InvalidError(f"partition of {topic} in offsets", max(numbers), f"0 to {count - 1}")
    for topic, topic_offsets_now in found.items():
        chosen = options.partitions or (options.partitions_by_topic or {}).get(topic, frozenset())
        if chosen and max(chosen) >= len(topic_offsets_now.ends) and (options.partitions_by_topic or len(found) == 1):
            raise InvalidError(f"option partitions for {topic}", max(chosen), f"0 to {len(topic_offsets_now.ends) - 1}")


def _report_loss(options: SourceOptions, error: HoldfastError) -> None:
    if options.fail_on_data_loss:
        raise error
    _log.warning("skipped, because failOnDataLoss is false: %s", error)
