"""The rules of rewinds and backfills: their offsets, and when the rows that a rewind replaces are deleted.

The one rule: rows of an older generation are deleted only after the generation that replaces it has passed its checkpoints, no
worker owns a partition of it, and its inserts are fenced for ever: none can land after the deletion.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.quoting import qualified_name, quote_literal
from holdfast.client.topic_reader import TopicReader
from holdfast.pipeline.catalog.revisions import table_of
from holdfast.pipeline.mapping.ddl import TableSpec
from holdfast.pipeline.model.definition import EARLIEST, LATEST, Generation, Pipeline, Revision
from holdfast.pipeline.model.errors import NotReadyError
from holdfast.pipeline.model.range_identity import partition_key
from holdfast.pipeline.model.timestamps import parse_iso_ns
from holdfast.pipeline.sinks.clickhouse import statements
from holdfast.registry import PartitionState
from holdfast.registry.model import SourceTopic
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.types import OffsetRange

FOR_EVER: Final = 2**62
"""The epoch an old generation is fenced with: above every real epoch."""

_PARTITIONS_PER_DELETE: Final = 200
_FENCES_PER_INSERT: Final = 1_000

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
    if read is None or not read.topic_id or not topic_id or read.topic_id == topic_id:
        return
    reasons = []
    if kept:
        reasons.append(f"topic {read.topic!r} was deleted and recreated: give an offset for every partition")
    if delete_previous:
        reasons.append(
            f"topic {read.topic!r} was deleted and recreated: deletePrevious would delete rows that nothing replaces"
        )
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
    fresh: Generation, now: Sequence[PartitionState], before: Mapping[int, Sequence[PartitionState]]
) -> DeletionReadiness:
    """Decide by the checkpoints and owners of the new generation and of the older ones."""
    at = {state.id: state.checkpoint for state in now}
    for number, states in sorted(before.items()):
        for state in states:
            if state.owner is not None:
                return DeletionReadiness(
                    False, f"partition {state.id} of generation {number} is still owned by {state.owner}"
                )
            behind = max(at.get(state.id, 0), fresh.starts.get(str(state.id), 0))
            if number == fresh.replaces and behind < state.checkpoint:
                return DeletionReadiness(
                    False, f"partition {state.id} is at {behind}, generation {number} was at {state.checkpoint}"
                )
    return DeletionReadiness(True)


def delete_previous(
    pipeline_id: str,
    revision: Revision,
    fresh: Generation,
    before: Mapping[int, Sequence[PartitionState]],
    connection: ClickHouseClient,
) -> None:
    """Fence the older generations for ever, then delete their rows from the new one's start on. Idempotent."""
    table, topic = table_of(revision), revision.source.topic
    connection.command(statements.create_fence(table.database))
    for number, states in before.items():
        keys = [partition_key(pipeline_id, number, topic, state.id) for state in states]
        for at in range(0, len(keys), _FENCES_PER_INSERT):
            connection.command(_fence_permanently(table.database, keys[at : at + _FENCES_PER_INSERT]))
        connection.command(_kill(f"{pipeline_id}:{number}:"))
    for name in _tables(connection, table):
        for condition in _conditions(pipeline_id, fresh, topic):
            connection.command(f"ALTER TABLE {name} DELETE WHERE {condition}", settings={"mutations_sync": 1})


def _fence_permanently(database: str, keys: Sequence[str]) -> str:
    return statements.write_fences(database, keys, FOR_EVER)


def _kill(inserts: str) -> str:
    return f"KILL QUERY WHERE startsWith(query_id, {quote_literal(f'holdfast:{inserts}')}) SYNC"


def _tables(connection: ClickHouseClient, table: TableSpec) -> Iterable[str]:
    """The pipeline's table, its DLQ and its marks, as far as they exist."""
    for suffix in ("", statements.DLQ_SUFFIX, statements.REPLAYED_SUFFIX):
        exists = connection.value(
            "SELECT count() FROM system.tables "  # noqa: S608 - quoted
            f"WHERE database = {quote_literal(table.database)} AND name = {quote_literal(table.name + suffix)}"
        )
        if exists:
            yield qualified_name(table.database, table.name + suffix)


def _conditions(pipeline_id: str, fresh: Generation, topic: str) -> Iterable[str]:
    mine = f"_pipeline = {quote_literal(pipeline_id)} AND _topic = {quote_literal(topic)}"
    starts = [(int(number), offset) for number, offset in sorted(fresh.starts.items(), key=lambda item: int(item[0]))]
    for at in range(0, len(starts), _PARTITIONS_PER_DELETE):
        ranges_sql = " OR ".join(
            f"(_partition = {number} AND _offset >= {offset})"
            for number, offset in starts[at : at + _PARTITIONS_PER_DELETE]
        )
        yield f"{mine} AND _generation < {fresh.number} AND ({ranges_sql})"
