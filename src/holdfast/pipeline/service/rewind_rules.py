"""The rules of rewinds and backfills: their offsets, and when the rows that a rewind replaces may be deleted. No I/O but `resolve`.

The one rule: rows of an older generation are deleted only after the generation that replaces them has passed its checkpoints,
partition by partition, no worker owns a partition of it, and it is retired. How they are deleted is `row_deletion`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from holdfast.client.topic_reader import TopicReader
from holdfast.pipeline.model.definition import EARLIEST, LATEST, Generation, Pipeline
from holdfast.pipeline.model.errors import NotReadyError
from holdfast.pipeline.model.timestamps import parse_iso_ns
from holdfast.registry import PartitionState
from holdfast.registry.model import SourceTopic
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.types import OffsetRange

Position = str | Mapping[int, int]
"""`earliest`, `latest`, an ISO 8601 time, or offsets by partition."""


def read_position(given: object, what: str = "to") -> Position:
    """Parse a position. `InvalidError`."""
    allowed = f"{EARLIEST}, {LATEST}, an ISO 8601 time, or an object of offsets by partition"
    if isinstance(given, str):
        if given in (EARLIEST, LATEST) or parse_iso_ns(given) is not None:
            return given
        raise InvalidError(what, given[:100], allowed)
    if not isinstance(given, Mapping) or not given:
        raise InvalidError(what, str(given)[:100], allowed)
    offsets = {}
    for partition, offset in given.items():
        number = int(partition) if str(partition).isascii() and str(partition).isdigit() else -1
        if number < 0 or isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise InvalidError(what, f"{partition}: {offset}"[:100], "a whole number of at least 0")
        offsets[number] = offset
    return offsets


def resolve(topic: TopicReader, position: Position) -> tuple[dict[int, int], dict[int, OffsetRange]]:
    """The offsets of a position, and the bounds of the partitions. Blocks: call it in a thread."""
    bounds = topic.bounds()
    if isinstance(position, str):
        if position == EARLIEST:
            return {number: bound.start for number, bound in bounds.items()}, bounds
        if position == LATEST:
            return {number: bound.end for number, bound in bounds.items()}, bounds
        at_ns = parse_iso_ns(position)
        assert at_ns is not None  # checked by read_position
        return topic.offsets_at(-(-at_ns // 1_000_000)), bounds
    for number, offset in position.items():
        if number not in bounds:
            raise InvalidError("partition", number, f"between 0 and {len(bounds) - 1}")
        bound = bounds[number]
        if not bound.start <= offset <= bound.end:
            raise InvalidError(
                f"offset of partition {number}",
                offset,
                f"between {bound.start} and {bound.end}",
            )
    return dict(position), bounds


def check_same_topic(
    pipeline: Pipeline, read: SourceTopic | None, topic_id: str, *, kept: bool, delete_previous: bool
) -> None:
    """Reject a rewind that takes checkpoints of a topic that was recreated for offsets of the new one.

    `read`: the topic that the live generation reads; `kept`: some partitions are to continue at their checkpoint.
    """
    if read is None or not read.topic_id or read.topic_id == topic_id:
        return
    happened = "was deleted and recreated" if topic_id else "has no id any more and may be of another Kafka"
    _check_starts_anew(pipeline, f"topic {read.topic!r} {happened}", kept=kept, delete_previous=delete_previous)


def check_same_brokers(pipeline: Pipeline, old: Generation, *, kept: bool, delete_previous: bool) -> None:
    """Reject a rewind that takes checkpoints of a Kafka for those of another, where no topic id tells (`Generation.brokers`)."""
    if old.brokers:
        was = f"it has read from {', '.join(old.brokers)}, which may be another Kafka"
        _check_starts_anew(pipeline, was, kept=kept, delete_previous=delete_previous)


def _check_starts_anew(pipeline: Pipeline, why: str, *, kept: bool, delete_previous: bool) -> None:
    reasons = []
    if kept:
        reasons.append(f"{why}: give an offset for every partition")
    if delete_previous:
        reasons.append(f"{why}: deletePrevious would delete rows that nothing replaces")
    if reasons:
        raise NotReadyError("rewinding", pipeline.name, tuple(reasons))


def complete(
    pipeline: Pipeline,
    starts: Mapping[int, int],
    bounds: Mapping[int, OffsetRange],
    progress: Sequence[PartitionState],
    begun_at: Mapping[int, int],
    owners: tuple[str, ...],
) -> dict[int, int]:
    """A start for every partition: those without an offset continue at their checkpoint, which must not move meanwhile.

    `begun_at` has the start offsets of the old generation; a partition without any starts as the source is configured.
    """
    others = sorted(set(bounds) - set(starts))
    if not others:
        return dict(starts)
    reasons = []
    if pipeline.state.desired != "stopped":
        reasons.append("only some partitions have an offset, and the others advance while it is started: stop it first")
    reasons += owners
    at = {state.id: state for state in progress}
    reasons += [
        f"partition {number} has an unfinished range: give an offset for it, or start and stop the pipeline once"
        for number in others
        if number in at and at[number].intent is not None
    ]
    if reasons:
        raise NotReadyError("rewinding", pipeline.name, tuple(reasons))
    checkpoints = {number: at[number].checkpoint for number in others if number in at}
    kept = {number: checkpoints.get(number) or begun_at.get(number) for number in others}
    return {**{number: offset for number, offset in kept.items() if offset is not None}, **starts}


def ranges(starts: Mapping[int, int], ends: Mapping[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """Start and end of the partitions with anything to read. `InvalidError` if there is none."""
    chosen = [number for number in sorted(starts) if number in ends and starts[number] < ends[number]]
    if not chosen:
        raise InvalidError("backfill range", f"{dict(starts)} to {dict(ends)}"[:200], "one that contains offsets")
    return {number: starts[number] for number in chosen}, {number: ends[number] for number in chosen}


# --- deletion of replaced rows


@dataclass(frozen=True, slots=True)
class DeletionReadiness:
    """Whether the rows of older generations may be deleted now, and if not, why."""

    ready: bool
    why: str = ""


def may_delete(
    fresh: Generation,
    now: Sequence[PartitionState],
    before: Mapping[int, Sequence[PartitionState]],
    active: Collection[int],
) -> DeletionReadiness:
    """Decide by the checkpoints and owners of the new generation and of all older ones whose rows it replaces.

    A deletion fences older generations for ever, so backfills among them (`active`) come to their end first.
    """
    at = {state.id: state.checkpoint for state in now}
    for number, states in sorted(before.items()):
        if number in active:
            return DeletionReadiness(
                False, f"backfill {number} is not done: its rows are deleted when it has ended or is cancelled"
            )
        for state in states:
            if state.owner is not None:
                return DeletionReadiness(
                    False, f"partition {state.id} of generation {number} is still owned by {state.owner}"
                )
            start = fresh.starts.get(str(state.id))
            if start is None:  # nothing of this partition is deleted
                continue
            behind = max(at.get(state.id, 0), start)
            if behind < state.checkpoint:
                return DeletionReadiness(
                    False, f"partition {state.id} is at {behind}, generation {number} was at {state.checkpoint}"
                )
    return DeletionReadiness(True)


def changed_table(fresh: Generation) -> str:
    """Why the rows of older generations are not deleted at all: those that replace them may be in another table."""
    if not fresh.delete_previous or len(fresh.tables) < 2:
        return ""
    return (
        f"the sink was {' and '.join(fresh.tables)} since the rewind, so rows of older generations are not deleted: "
        "rewind again with deletePrevious, or delete rows by their _generation"
    )


def is_same_topic(read: SourceTopic | None, topic: str, topic_id: str) -> bool:
    """Whether a generation read this topic. What is not recorded (by a release before) is taken as the same."""
    if read is None:
        return True
    return read.topic == topic and (not read.topic_id or not topic_id or read.topic_id == topic_id)
