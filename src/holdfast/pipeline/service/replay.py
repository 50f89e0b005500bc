"""Replaying the DLQ: refused records go through the newest recipe, and those that fit now become rows. Once.

The one rule: which letters are replayed, by which recipe and under which token is in the store before the first row is inserted.
Whoever finds such a step finishes exactly it: what is there already, and what comes under the same token, is not stored twice.
When it is done the fence is raised above its number, so that an insert of it that comes even later is refused; then the step is
cleared.

    1  the step is written into the store (CAS)        die here: the next replay finds and finishes it
    2  rows into the table, under the token            die here: the same insert again is nothing
    3  marks beside the DLQ, under token + ":marks"    die here: as before
    4  the fence is raised; the step is cleared (CAS)  die here: the step is done again, and is nothing

A step is of one generation and one partition. A letter that is refused again stays in the DLQ, unmarked. A step that the server
refuses (the table was changed meanwhile) is given up: fenced first, then looked for by its provenance, so that rows of it that are
there after all are marked; then cleared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.quoting import quote_literal
from holdfast.client.topic_reader import KafkaRecord
from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, AtVersion, Committed, Conflict, Entry, Put, Store
from holdfast.pipeline.catalog.encoding import PendingReplay, ReplayRecord, read_replay
from holdfast.pipeline.catalog.keys import replay_key
from holdfast.pipeline.catalog.revisions import table_of
from holdfast.pipeline.filters.config import condition_of
from holdfast.pipeline.filters.syntax_tree import Field, Node, children
from holdfast.pipeline.mapping.table_diff import compare_table
from holdfast.pipeline.mapping.transform import map_records
from holdfast.pipeline.model.definition import ClickHouseConfig, Revision
from holdfast.pipeline.model.field_paths import parse_path
from holdfast.pipeline.service.dead_letter_table import REPLAYED_SUFFIX, DeadLetterFilter, DeadLetterTable
from holdfast.pipeline.service.previews import kafka_table
from holdfast.pipeline.service.responses import Replayed, StillRefused
from holdfast.pipeline.sinks.clickhouse import statements
from holdfast.pipeline.sinks.clickhouse.inserts import FencedInsert, insert_resolved
from holdfast.pipeline.sinks.clickhouse.tables import check_table, describe_table
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import MIB

STEP_ROWS_MAX: Final = 2_000
STEP_BYTES_MAX: Final = 16 * MIB
REFUSALS_SHOWN_MAX: Final = 100
BEGINNING: Final = (0, 0, -1)

_KINDS_OF_MARKS: Final = {
    "_generation": "UInt32",
    "_topic": "LowCardinality(String)",
    "_partition": "UInt32",
    "_offset": "UInt64",
    "recipe": "UInt32",
    "outcome": "LowCardinality(String)",
}


@dataclass(slots=True)
class ReplayTally:
    """What a replay has come to so far."""

    recipe: int
    stored: int = 0
    filtered: int = 0
    refused: int = 0
    refusals: list[StillRefused] = field(default_factory=list)

    def answer(self, *, more: bool) -> Replayed:
        """For whoever asked."""
        return Replayed(
            stored=self.stored,
            filtered=self.filtered,
            refused=self.refused,
            recipe=self.recipe,
            refusals=tuple(self.refusals[:REFUSALS_SHOWN_MAX]),
            more=more,
        )


# --- what happens at ClickHouse, in threads


class ReplayTarget:
    """The tables of one pipeline, for replays. For one thread."""

    def __init__(self, pipeline_id: str, recipe: Revision, connection: ClickHouseClient, *, random: Random) -> None:
        assert isinstance(recipe.sink, ClickHouseConfig)
        self._recipe, self._sink, self._connection, self._random = recipe, recipe.sink, connection, random
        self._table = table_of(recipe)
        self._fence = f"{pipeline_id}:replay"
        self.letters = DeadLetterTable(
            connection, database=self._table.database, table=self._table.name, topic=recipe.source.topic
        )

    def prepare(self) -> bool:
        """Make what a replay needs; False: there is no DLQ, so there is nothing to replay."""
        if not self.letters.exists():
            return False
        self.letters.make_marks(self._table.window)
        self._connection.command(statements.create_fence(self._table.database))
        return True

    def misfits(self) -> tuple[str, ...]:
        """Why rows of this recipe cannot be stored in the table there is; nothing if they can."""
        has = describe_table(self._connection, self._table)
        if has is None:
            return (f"the table {self._table.full_name} does not exist",)
        try:
            check_table(compare_table(self._table, has), self._table, has)
        except BlockedError as error:
            return (error.reason,)
        return ()

    def next_step(
        self, chosen: DeadLetterFilter, after: tuple[int, int, int], limit: int
    ) -> tuple[int, int, tuple[int, ...]] | None:
        """Generation, partition and offsets of the next letters that wait; None: there are none."""
        found = self.letters.places(chosen, after=after, limit=min(limit, STEP_ROWS_MAX))
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

    def carry_out(self, step: PendingReplay, number: int, tally: ReplayTally) -> None:
        """Insert what fits now and mark it. To do it again changes nothing. `is_fence_refusal`: it was done and closed."""
        letters = self.letters.payloads(step.generation, step.partition, step.offsets)
        records = [KafkaRecord(step.partition, offset, 0, key, payload, ()) for offset, key, payload in letters]
        mapped = map_records(self._recipe, step.generation, kafka_table(step.topic, records))
        refused = {row.offset: row.reason for row in mapped.refused}
        stored = set(mapped.rows.column("_offset").to_pylist())
        outcomes = [
            (offset, "stored" if offset in stored else "filtered") for offset, _, _ in letters if offset not in refused
        ]
        if stored:
            kinds = statements.kinds_of(self._table, mapped.rows.schema.names)
            self._insert(step, self._table.name, kinds, mapped.rows, step.token, number)
        if outcomes:
            self._mark(step, outcomes, number)
        self._connection.command(statements.write_fence(self._table.database, self._fence, number + 1))
        tally.stored += len(stored)
        tally.filtered += len(outcomes) - len(stored)
        tally.refused += len(refused)
        tally.refusals += [
            StillRefused(generation=step.generation, partition=step.partition, offset=offset, reason=reason)
            for offset, reason in refused.items()
        ]

    def give_up(self, step: PendingReplay, number: int) -> None:
        """Make sure that nothing of a step can land any more, and mark what of it is there."""
        self._connection.command(statements.write_fence(self._table.database, self._fence, number + 1))
        mine = quote_literal(f"holdfast:{self._fence}:{number}:")
        self._connection.command(f"KILL QUERY WHERE startsWith(query_id, {mine}) SYNC")
        there = self._connection.rows(
            f"SELECT DISTINCT _offset FROM {self._table.full_name} WHERE {_of_step(step)}"  # noqa: S608 - quoted
        )
        if there:
            self._mark(step, [(int(row[0]), "stored") for row in there], number + 1)

    def _mark(self, step: PendingReplay, outcomes: Sequence[tuple[int, str]], number: int) -> None:
        table, marks = self._table.name + REPLAYED_SUFFIX, _marks(step, outcomes)
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
            place=_of_step(step),
            fence=self._fence,
            epoch=number,
            query=f"holdfast:{self._fence}:{number}:{self._random.token()}",
            timeout_ms=self._sink.insert_timeout_ms,
        )
        insert_resolved(self._connection, insert)

    def close(self) -> None:
        """Let the connection go."""
        self._connection.close()


def _of_step(step: PendingReplay) -> str:
    source = (
        f"_generation = {step.generation} AND _topic = {quote_literal(step.topic)} AND _partition = {step.partition}"
    )
    return f"{source} AND _offset IN ({', '.join(map(str, step.offsets))})"


def _marks(step: PendingReplay, outcomes: Sequence[tuple[int, str]]) -> Any:
    import pyarrow as pa

    count = len(outcomes)
    return pa.RecordBatch.from_pydict(
        {
            "_generation": pa.repeat(pa.scalar(step.generation, pa.uint32()), count),
            "_topic": pa.repeat(pa.scalar(step.topic, pa.string()), count),
            "_partition": pa.repeat(pa.scalar(step.partition, pa.uint32()), count),
            "_offset": pa.array([offset for offset, _ in outcomes], pa.uint64()),
            "recipe": pa.repeat(pa.scalar(step.recipe, pa.uint32()), count),
            "outcome": pa.array([outcome for _, outcome in outcomes], pa.string()),
        }
    )


# --- what is refused


def why_not(recipe: Revision) -> tuple[str, ...]:
    """Why the DLQ of this recipe's sink cannot be replayed here; nothing if it can."""
    reasons = []
    if not isinstance(recipe.sink, ClickHouseConfig):
        reasons.append("only ClickHouse sinks have a DLQ that is replayed: rewind or backfill instead")
    if recipe.sql:
        reasons.append("it has sql, which only workers run: backfill the refused offsets instead")
    if needs_more_than_dead_letter(recipe):
        reasons.append(
            "its mapping or filter uses headers or the timestamp, which the DLQ does not keep: "
            "backfill the refused offsets instead"
        )
    return tuple(reasons)


def needs_more_than_dead_letter(recipe: Revision) -> bool:
    """Whether a row depends on what the DLQ does not keep."""
    roots = {parse_path(column.field_path).root for column in recipe.mapping.columns}
    condition = condition_of(recipe.filters)
    if condition is not None:
        roots |= _roots(condition.node)
    return bool(roots & {"headers", "timestamp"})


def _roots(node: Node) -> set[str]:
    mine = {node.root} if isinstance(node, Field) else set()
    return mine.union(*(_roots(child) for child in children(node)))


# --- the step in the store


class ReplaySteps:
    """The one step of a pipeline's replays that may be under way."""

    def __init__(self, store: Store, pipeline_id: str, *, clock: Clock, random: Random) -> None:
        self._store, self._key, self._clock, self._random = store, replay_key(pipeline_id), clock, random

    async def read(self) -> tuple[Entry | None, ReplayRecord]:
        """The record as it is."""
        entry = await self._store.get(self._key)
        return entry, ReplayRecord() if entry is None else read_replay(entry)

    async def begin(self, entry: Entry | None, record: ReplayRecord, step: PendingReplay) -> bool:
        """Say what is going to be done. False: somebody else was faster; read again."""
        return await self._write(entry, msgspec.structs.replace(record, pending=step))

    async def clear(self, entry: Entry, record: ReplayRecord) -> bool:
        """Say that it is done. False: somebody else said so."""
        return await self._write(entry, ReplayRecord(number=record.number + 1))

    async def _write(self, entry: Entry | None, record: ReplayRecord) -> bool:
        required = Absent(self._key) if entry is None else AtVersion(self._key, entry.version)
        outcome: Committed | Conflict = await commit_resolved(
            self._store,
            clock=self._clock,
            random=self._random,
            require=[required],
            apply=[Put(self._key, msgspec.json.encode(record))],
        )
        return isinstance(outcome, Committed)
