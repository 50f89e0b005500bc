"""Replays of the DLQ: rejected records are mapped by the newest revision, and those that fit become rows. Exactly once.

The one rule: which dead letters are replayed, by which revision and under which token is in the store before the first insert. The
process that finds such a step finishes exactly that; an insert under the same token is not stored twice. Then the fence is raised
above the step's number, so that a late insert of it is refused, and the step is cleared.

    1  the step is written into the store (CAS)        crash: the next replay finds and finishes it
    2  rows into the table, under the token            crash: the repeated insert is deduplicated
    3  marks beside the DLQ, under token + ":marks"    crash: as before
    4  the fence is raised; the step is cleared (CAS)  crash: the step is repeated without effect

A step covers one generation and one partition. A dead letter that is rejected again stays in the DLQ, unmarked. A step that the
server rejects (the table was altered) is abandoned: fenced first; then rows of it that were stored are found by their provenance
and marked; then cleared. The step in the store is `replay_steps`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.quoting import quote_literal
from holdfast.clickhouse.replicas import kill_queries
from holdfast.client.topic_reader import KafkaRecord
from holdfast.pipeline.catalog.revisions import table_of
from holdfast.pipeline.catalog.stored_parts import PendingReplay
from holdfast.pipeline.filters.config import condition_of
from holdfast.pipeline.filters.syntax_tree import Field, Node, children
from holdfast.pipeline.mapping.ddl import KEEPS_LAST_INSERT, keeps_last_insert
from holdfast.pipeline.mapping.table_diff import compare_table
from holdfast.pipeline.mapping.transform import map_records
from holdfast.pipeline.model.definition import ClickHouseConfig, Revision
from holdfast.pipeline.model.field_paths import parse_path
from holdfast.pipeline.model.query import is_streaming
from holdfast.pipeline.service.dead_letter_table import DeadLetterQuery, DeadLetterTable
from holdfast.pipeline.service.previews import kafka_table
from holdfast.pipeline.service.responses import Replayed, StillRefused
from holdfast.pipeline.sinks.clickhouse import migrations, statements
from holdfast.pipeline.sinks.clickhouse.existing_tables import describe_table
from holdfast.pipeline.sinks.clickhouse.fences import Fence, fence_of
from holdfast.pipeline.sinks.clickhouse.inserts import FencedInsert, insert_resolved
from holdfast.pipeline.sinks.clickhouse.tables import check_table
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.pipeline.sinks.provenance import with_pipeline
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import MIB

STEP_ROWS_MAX: Final = 2_000
STEP_BYTES_MAX: Final = 16 * MIB
REFUSALS_SHOWN_MAX: Final = 100
BEGINNING: Final = (0, 0, -1)

_KINDS_OF_MARKS: Final = {
    "_pipeline": "LowCardinality(String)",
    "_generation": "UInt32",
    "_topic": "LowCardinality(String)",
    "_partition": "UInt32",
    "_offset": "UInt64",
    "recipe": "UInt32",
    "outcome": "LowCardinality(String)",
}


@dataclass(slots=True)
class ReplayTally:
    """Running totals of a replay."""

    revision: int
    stored: int = 0
    filtered: int = 0
    refused: int = 0
    refusals: list[StillRefused] = field(default_factory=list)

    def response(self, *, more: bool) -> Replayed:
        """The totals as a response."""
        return Replayed(
            stored=self.stored,
            filtered=self.filtered,
            refused=self.refused,
            revision=self.revision,
            refusals=tuple(self.refusals[:REFUSALS_SHOWN_MAX]),
            more=more,
        )


# --- ClickHouse, in threads


class ReplayTarget:
    """The tables of one pipeline that a replay writes. For one thread."""

    def __init__(self, pipeline_id: str, revision: Revision, connection: ClickHouseClient, *, random: Random) -> None:
        assert isinstance(revision.sink, ClickHouseConfig)
        self._revision, self._sink, self._connection, self._random = revision, revision.sink, connection, random
        self._table = table_of(revision)
        self._pipeline_id, self._fence = pipeline_id, f"{pipeline_id}:replay"
        self._fence_in = Fence(self._table.database)
        self.dead_letters = DeadLetterTable(
            connection,
            database=self._table.database,
            table=self._table.name,
            topics=(revision.source.topic,),
            pipeline_id=pipeline_id,
        )

    def prepare(self) -> bool:
        """Create the tables a replay needs; False: there is no DLQ, so nothing to replay."""
        if not self.dead_letters.exists():
            return False
        self.dead_letters.make_marks(self._table.window, self._table)
        self._connection.command(statements.create_fence(self._table.database))
        self._fence_in = fence_of(self._connection, self._table.database, self._table.name)
        return True

    def misfits(self) -> tuple[str, ...]:
        """Why the existing table cannot store rows of this revision; empty if it can."""
        if unmigrated := migrations.unmigrated_tables(self._connection, self._table.database, self._table.name):
            return (migrations.unmigrated_reason(self._pipeline_id, unmigrated),)
        has = describe_table(self._connection, self._table)
        if has is None:
            return (f"the table {self._table.full_name} does not exist",)
        if has.keeps_last_insert:
            return (f"the table {self._table.full_name} exists: {KEEPS_LAST_INSERT}",)
        try:
            check_table(compare_table(self._table, has), self._table, has)
        except BlockedError as error:
            return (error.reason,)
        return ()

    def next_step(
        self, chosen: DeadLetterQuery, after: tuple[int, int, int], limit: int
    ) -> tuple[int, int, tuple[int, ...]] | None:
        """Generation, partition and offsets of the next waiting dead letters; None: there are none."""
        found = self.dead_letters.positions(chosen, after=after, limit=min(limit, STEP_ROWS_MAX))
        if not found:
            return None
        generation, partition = found[0][:2]
        offsets: list[int] = []
        size = 0
        for each_generation, each_partition, offset, length in found:
            size += length
            if (each_generation, each_partition) != (generation, partition) or (offsets and size > STEP_BYTES_MAX):
                break
            offsets.append(offset)
        return generation, partition, tuple(offsets)

    def execute(self, step: PendingReplay, number: int, tally: ReplayTally) -> None:
        """Insert what fits and mark it. Idempotent. A `ClickHouseError` that `is_fence_refusal`: it was finished before."""
        payloads = self.dead_letters.payloads(step.generation, step.partition, step.offsets)
        records = [KafkaRecord(step.partition, offset, 0, key, payload, ()) for offset, key, payload in payloads]
        mapped = map_records(self._revision, step.generation, kafka_table(step.topic, records))
        refused = {row.offset: row.reason for row in mapped.refused}
        stored = set(mapped.rows.column("_offset").to_pylist())
        outcomes = [
            (offset, "stored" if offset in stored else "filtered") for offset, _, _ in payloads if offset not in refused
        ]
        if stored:
            rows = with_pipeline(mapped.rows, self._pipeline_id)
            kinds = statements.kinds_of(self._table, rows.schema.names)
            self._insert(step, self._table.name, kinds, rows, step.token, number)
        if outcomes:
            self._mark(step, outcomes, number)
        self._fence_in.raise_to(self._connection, [self._fence], number + 1)
        tally.stored += len(stored)
        tally.filtered += len(outcomes) - len(stored)
        tally.refused += len(refused)
        tally.refusals += [
            StillRefused(generation=step.generation, partition=step.partition, offset=offset, reason=reason)
            for offset, reason in refused.items()
        ]

    def abandon(self, step: PendingReplay, number: int) -> None:
        """Ensure that no insert of a step can land any more, and mark the rows that were stored."""
        self._fence_in.raise_to(self._connection, [self._fence], number + 1)
        mine = quote_literal(f"holdfast:{self._fence}:{number}:")
        self._connection.command(kill_queries(f"startsWith(query_id, {mine})", self._table.cluster))
        stored = self._connection.rows(
            f"SELECT DISTINCT _offset FROM {self._table.full_name} WHERE {_of_step(self._pipeline_id, step)}"  # noqa: S608 - quoted
        )
        if stored:
            self._mark(step, [(int(row[0]), "stored") for row in stored], number + 1)

    def _mark(self, step: PendingReplay, outcomes: Sequence[tuple[int, str]], number: int) -> None:
        table, marks = (
            self._table.name + statements.REPLAYED_SUFFIX,
            with_pipeline(_marks(step, outcomes), self._pipeline_id),
        )
        self._insert(step, table, _KINDS_OF_MARKS, marks, f"{step.token}:marks", number)

    def _insert(
        self, step: PendingReplay, table: str, kinds: Mapping[str, str], rows: Any, token: str, number: int
    ) -> None:
        import pyarrow as pa

        insert = FencedInsert(
            database=self._table.database,
            table=table,
            kinds=kinds,
            rows=pa.Table.from_batches([rows]),
            token=token,
            place=_of_step(self._pipeline_id, step),
            unattributed="" if step.pipeline else _of_step("", step),
            fence=self._fence,
            epoch=number,
            query=f"holdfast:{self._fence}:{number}:{self._random.token()}",
            timeout_ms=self._sink.insert_timeout_ms,
            fence_in=self._fence_in,
            quorum=self._sink.insert_quorum if table in self._fence_in.replicated else "",
        )
        insert_resolved(self._connection, insert)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def _of_step(pipeline_id: str, step: PendingReplay) -> str:
    source = statements.of_pipeline(pipeline_id, step.generation, step.topic)
    return f"{source} AND _partition = {step.partition} AND _offset IN ({', '.join(map(str, step.offsets))})"


def _marks(step: PendingReplay, outcomes: Sequence[tuple[int, str]]) -> Any:
    import pyarrow as pa

    count = len(outcomes)
    return pa.RecordBatch.from_pydict(
        {
            "_generation": pa.repeat(pa.scalar(step.generation, pa.uint32()), count),
            "_topic": pa.repeat(pa.scalar(step.topic, pa.string()), count),
            "_partition": pa.repeat(pa.scalar(step.partition, pa.uint32()), count),
            "_offset": pa.array([offset for offset, _ in outcomes], pa.uint64()),
            "recipe": pa.repeat(pa.scalar(step.revision, pa.uint32()), count),
            "outcome": pa.array([outcome for _, outcome in outcomes], pa.string()),
        }
    )


# --- limits


def obstacles(revision: Revision) -> tuple[str, ...]:
    """Why the DLQ of this revision cannot be replayed; empty if it can."""
    reasons = []
    if is_streaming(revision):
        reasons.append("a query keeps state over all its records: produce the dead letters again, or rewind")
    if not isinstance(revision.sink, ClickHouseConfig):
        reasons.append("only the DLQ of a ClickHouse sink can be replayed: rewind or backfill instead")
    elif keeps_last_insert(revision.sink):
        reasons.append(KEEPS_LAST_INSERT)
    if revision.sql:
        reasons.append("it has SQL, which only workers run: backfill the rejected offsets instead")
    if needs_headers_or_timestamp(revision):
        reasons.append(
            "its mapping or filter uses headers or the timestamp, which the DLQ does not keep: "
            "backfill the rejected offsets instead"
        )
    return tuple(reasons)


def needs_headers_or_timestamp(revision: Revision) -> bool:
    """Whether a row depends on metadata that the DLQ does not keep."""
    roots = {parse_path(column.field_path).root for column in revision.mapping.columns}
    condition = condition_of(revision.filters)
    if condition is not None:
        roots |= _roots(condition.node)
    return bool(roots & {"headers", "timestamp"})


def _roots(node: Node) -> set[str]:
    mine = {node.root} if isinstance(node, Field) else set()
    return mine.union(*(_roots(child) for child in children(node)))
