"""From options to ranges: which topics, which partitions, from where to where. Decisions over what a planner knows.

The one rule: nothing that was asked for is left out silently. What is gone is an error, or with `failOnDataLoss=false` a warning.
"""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from holdfast.log.topics import UnknownTopicError
from holdfast.spark.ranges import DataLossError, OffsetRange, TopicChangedError, TopicInfo, TopicOffsets
from holdfast.spark.source.filters import FilterBounds
from holdfast.spark.source.options import EARLIEST, LATEST, OffsetRangeLimit, SourceOptions
from holdfast.spark.source.positions import StreamPosition, TopicPosition
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_log: Final = logging.getLogger(__name__)


class OffsetPlanner(Protocol):
    """The part of a `Planner` that deciding takes."""

    def topics(self) -> list[TopicInfo]: ...
    def ends(self, topic: str) -> TopicOffsets: ...
    def offsets_at(self, topic: str, partitions: Iterable[int], timestamp_ms: int) -> dict[int, int]: ...
    def limited(self, ranges: Sequence[OffsetRange], *, rows_max: int, bytes_max: int) -> list[OffsetRange]: ...


class TopicRange(NamedTuple):
    """A range, and the id of the topic it is a range of."""

    range: OffsetRange
    topic_id: str


def topic_offsets(options: SourceOptions, plans: OffsetPlanner) -> dict[str, TopicOffsets]:
    """Every topic that is asked for, with where its partitions begin and end now."""
    found: dict[str, TopicOffsets] = {}
    for name in _topic_names(options, plans):
        try:
            found[name] = plans.ends(name)
        except UnknownTopicError as error:
            _report_loss(options, error)
    _check_named_offsets(options, found)
    return found


def batch_ranges(options: SourceOptions, bounds: FilterBounds, plans: OffsetPlanner) -> list[TopicRange]:
    """What a batch read is to read, in order of topic and partition."""
    pieces = []
    for name, ends in sorted(topic_offsets(options, plans).items()):
        numbers = [number for number in _partitions(options, name, ends) if bounds.wants(name, number)]
        starts = _resolve_limit(options.start, name, numbers, ends, plans)
        stops = _resolve_limit(options.end, name, numbers, ends, plans)
        for number in numbers:
            start = clamp_start(options, name, number, starts[number], ends)
            stop = _clamp_end(options, name, number, stops[number], ends)
            start, stop = max(start, bounds.offsets.start), min(stop, bounds.offsets.end)
            if start < stop:
                pieces.append(TopicRange(OffsetRange(name, number, start, stop), ends.topic_id))
    return pieces


def initial_position(options: SourceOptions, plans: OffsetPlanner) -> StreamPosition:
    """Where a new stream begins."""
    topics = {}
    for name, ends in topic_offsets(options, plans).items():
        numbers = _partitions(options, name, ends)
        edges = _resolve_limit(options.start, name, numbers, ends, plans)
        offsets = {number: clamp_start(options, name, number, edges[number], ends) for number in numbers}
        topics[name] = TopicPosition(ends.topic_id, offsets)
    return StreamPosition(topics)


def next_position(
    options: SourceOptions,
    plans: OffsetPlanner,
    ends: Mapping[str, TopicOffsets],
    start: StreamPosition,
    *,
    limited: bool,
    until: StreamPosition | None = None,
) -> StreamPosition:
    """Where the next batch of a stream ends: `start` itself if there is nothing new, or not enough yet.

    `until` is where a stream ends that reads what is there now and no more; it then waits for no minimum.
    """
    reached = _advance(options, start, until if until is not None else end_position(options, ends))
    pieces = stream_ranges(start, reached)
    if (
        limited
        and until is None
        and sum(each.range.end - each.range.start for each in pieces) < (options.rows_min or 0)
    ):
        return start
    if not pieces or not limited or (options.rows_max is None and options.bytes_max is None):
        return reached
    ranges = plans.limited(
        [each.range for each in pieces], rows_max=options.rows_max or 1 << 62, bytes_max=options.bytes_max or 1 << 62
    )
    for each in ranges:
        before = reached.topics[each.topic]
        topics = dict(reached.topics)
        topics[each.topic] = TopicPosition(before.id, {**before.offsets, each.partition: each.end})
        reached = StreamPosition(topics)
    return reached


def end_position(options: SourceOptions, ends: Mapping[str, TopicOffsets]) -> StreamPosition:
    """The end of every partition that is asked for."""
    return StreamPosition(
        {
            name: TopicPosition(
                each.topic_id, {number: each.ends[number] for number in _partitions(options, name, each)}
            )
            for name, each in ends.items()
        }
    )


def stream_ranges(start: StreamPosition, end: StreamPosition) -> list[TopicRange]:
    """What lies between two positions: it follows from them alone. A new topic, or partition, is read from 0 on."""
    pieces = []
    for name, topic in sorted(end.topics.items()):
        before = start.topics.get(name)
        known = before.offsets if before is not None and before.id == topic.id else {}
        for number, stop in sorted(topic.offsets.items()):
            begin = known.get(number, 0)
            if begin < stop:
                pieces.append(TopicRange(OffsetRange(name, number, begin, stop), topic.id))
    return pieces


def clamp_start(options: SourceOptions, topic: str, number: int, asked: int, ends: TopicOffsets) -> int:
    """Where reading begins if `asked` is; not before the log does."""
    start, end = ends.starts[number], ends.ends[number]
    if asked > end:
        _report_loss(options, DataLossError(topic, number, (asked, asked + 1), (end, asked), f"the log ends at {end}"))
        return end
    if asked < start:
        reason = f"the log begins at {start}: what was before was removed by retention"
        _report_loss(options, DataLossError(topic, number, (asked, end), (asked, start), reason))
        return start
    return asked


def _advance(options: SourceOptions, start: StreamPosition, there: StreamPosition) -> StreamPosition:
    """`there`, but nowhere before `start`; what became of the topics since is an error or a warning."""
    topics = dict(there.topics)
    for name, before in start.topics.items():
        now = topics.get(name)
        if now is None:
            _report_loss(options, UnknownTopicError(name))
            topics[name] = before  # nothing new of it; if it comes back, it is another topic
        elif now.id != before.id:
            _report_loss(options, TopicChangedError(name, before.id, now.id))
        else:
            offsets = {number: max(at, now.offsets.get(number, 0)) for number, at in before.offsets.items()}
            topics[name] = TopicPosition(now.id, {**now.offsets, **offsets})
    return StreamPosition(topics)


def check_retention(options: SourceOptions, ends: Mapping[str, TopicOffsets], start: StreamPosition) -> None:
    """Say early, on the driver, that retention was faster than the stream."""
    for name, each in ends.items():
        before = start.topics.get(name)
        if before is not None and before.id == each.topic_id:
            for number, at in before.offsets.items():
                if at < each.starts[number]:  # beyond the end is no loss: the ends may be older than what was read
                    clamp_start(options, name, number, at, each)


def _topic_names(options: SourceOptions, plans: OffsetPlanner) -> list[str]:
    if not options.pattern:
        return list(options.topics)
    pattern = re.compile(options.pattern)
    return [each.name for each in plans.topics() if pattern.fullmatch(each.name)]


def _partitions(options: SourceOptions, topic: str, ends: TopicOffsets) -> list[int]:
    return [number for number in range(len(ends.ends)) if options.wants(topic, number)]


def _resolve_limit(
    edge: OffsetRangeLimit, topic: str, numbers: Sequence[int], ends: TopicOffsets, plans: OffsetPlanner
) -> dict[int, int]:
    if edge.timestamp_ms is not None:
        found = plans.offsets_at(topic, numbers, edge.timestamp_ms)
        # What was written since the ends were looked up belongs to the next read.
        return {number: min(at, ends.ends[number]) for number, at in found.items()}
    words = {EARLIEST: ends.starts, LATEST: ends.ends}
    asked = {number: edge.of(topic, number) for number in numbers}
    return {number: words[at][number] if at in words else at for number, at in asked.items()}


def _clamp_end(options: SourceOptions, topic: str, number: int, asked: int, ends: TopicOffsets) -> int:
    end = ends.ends[number]
    if asked > end:
        _report_loss(options, DataLossError(topic, number, (asked - 1, asked), (end, asked), f"the log ends at {end}"))
    return min(asked, end)


def _check_named_offsets(options: SourceOptions, found: dict[str, TopicOffsets]) -> None:
    """Offsets and partitions that are named must be there: a misspelt topic would otherwise begin somewhere else."""
    named = {topic: set(offsets) for edge in (options.start, options.end) for topic, offsets in edge.offsets.items()}
    for topic, numbers in named.items():
        if topic not in found:
            if topic in options.topics:
                continue  # it is missing, which was said already
            raise InvalidError("topic in startingOffsets or endingOffsets", topic, "a topic that is read")
        if not numbers <= set(range(len(found[topic].ends))):
            count = len(found[topic].ends)
            raise InvalidError(f"partition of {topic} in offsets", max(numbers), f"0 to {count - 1}")
    for topic, ends in found.items():
        chosen = options.partitions or (options.partitions_by_topic or {}).get(topic, frozenset())
        if chosen and max(chosen) >= len(ends.ends) and (options.partitions_by_topic or len(found) == 1):
            raise InvalidError(f"option partitions for {topic}", max(chosen), f"0 to {len(ends.ends) - 1}")


def _report_loss(options: SourceOptions, error: HoldfastError) -> None:
    if options.fail_on_data_loss:
        raise error
    _log.warning("failOnDataLoss is false, so this is skipped: %s", error)
