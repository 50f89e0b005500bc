"""The SQL statements of the sink. Text only: nothing is run here.

    holdfast_spark_runs               the fence: the runs of each scope; the greatest (generation, epoch, run) may write
    holdfast_spark_batches            the last batch of each generation, by table and its id: begun with these rows, or done
    holdfast_spark_exchanges          ids that a table has had (`table_identity`)
    holdfast_spark_staged_{columns}   rows that tasks have staged, by token; a partition for each run's batch
    holdfast_spark_next_{scope}_{n}   the content that is about to replace a table's (overwrite, complete mode)

The one rule: whatever changes the table or the record of a batch has the fence in the same statement (`ScopeKey.fence`).
Of a replicated table runs and batches are in Keeper (`keeper_statements`).
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from holdfast.clickhouse.quoting import qualified_name, quote_identifier, quote_literal
from holdfast.spark.clickhouse.batches import BatchRecord, encode_plan
from holdfast.spark.clickhouse.runs import Run

RUNS: Final = "holdfast_spark_runs"
BATCHES: Final = "holdfast_spark_batches"
STAGED_PREFIX: Final = "holdfast_spark_staged_"
NEXT_PREFIX: Final = "holdfast_spark_next_"
FENCE_MESSAGE: Final = "holdfast: a newer run owns this scope"
PROVENANCE: Final = {
    "_scope": "LowCardinality(String)",
    "_generation": "UInt32",
    "_batch": "UInt64",
    "_piece": "UInt32",
}
STAGED_COLUMNS: Final = ("_staged_batch", "_staged_token", "_staged_at")
_SYNCHRONOUS: Final = "SETTINGS async_insert = 0, wait_for_async_insert = 1"


def digest(*texts: str) -> str:
    """A name for some texts that can be part of a table's or query's name."""
    return sha256("\0".join(texts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class ScopeKey:
    """A scope of writes to one table."""

    database: str
    table: str
    scope: str
    identity: str = ""
    """Of the table, which is another when it was dropped and created again; empty: it has none. Runs are fenced by its name alone:
    an old one must not write into the new table either."""

    def __str__(self) -> str:
        return f"{self.scope} into {self.database}.{self.table}"

    @property
    def of_scope(self) -> str:
        """The condition on its runs."""
        return f"target = {quote_literal(self.table)} AND scope = {quote_literal(self.scope)}"

    @property
    def runs_table(self) -> str:
        """Where its runs are."""
        return RUNS

    @property
    def batches_of(self) -> str:
        """What batches are recorded for."""
        return f"{self.table}@{self.identity}" if self.identity else self.table

    @property
    def queries(self) -> str:
        """The beginning of the ids of its inserts."""
        return f"holdfast-spark:{digest(self.database, self.table, self.scope)}:"

    def read_runs(self, run: str) -> str:
        """The greatest run of each query and generation of the scope, and `run`: of named batch writes, each is one."""
        runs = f"{qualified_name(self.database, self.runs_table)} WHERE {self.of_scope}"
        greatest = f"SELECT max((generation, epoch, run)) AS found, query FROM {runs} GROUP BY query, generation"
        return (
            f"SELECT found.1, found.2, found.3, query FROM ({greatest}) "
            f"UNION ALL SELECT generation, epoch, run, query FROM {runs} AND run = {quote_literal(run)}"
        )

    def add_run(self, run: Run) -> str:
        """Add a run."""
        values = [quote_literal(self.table), quote_literal(self.scope), str(run.generation), str(run.epoch)]
        values += [quote_literal(run.run), quote_literal(run.query)]
        return (
            f"INSERT INTO {qualified_name(self.database, RUNS)} (target, scope, generation, epoch, run, query) "
            f"{_SYNCHRONOUS} VALUES ({', '.join(values)})"
        )

    def fence(self, run: Run) -> str:
        """The condition that the server refuses if a greater run is known."""
        return f"throwIf(NOT ({self.is_newest(run)}), {quote_literal(FENCE_MESSAGE)}) = 0"

    def is_newest(self, run: Run) -> str:
        """The condition that no greater run is known."""
        runs = qualified_name(self.database, RUNS)
        newest = f"SELECT max((generation, epoch, run)) FROM {runs} WHERE {self.of_scope}"
        return f"({newest}) <= ({run.generation}, {run.epoch}, {quote_literal(run.run)})"

    def last_batch(self, generation: int) -> str:
        """The last batch of a generation. One that an earlier build recorded by the table's name alone counts until another is."""
        mine, table = quote_literal(self.batches_of), quote_literal(self.table)
        of_scope = f"scope = {quote_literal(self.scope)} AND generation = {generation}"
        batches = f"{qualified_name(self.database, BATCHES)} WHERE {of_scope}"
        named = f"target = {table} AND (SELECT count() FROM {batches} AND startsWith(target, concat({table}, '@'))) = 0"
        return (
            f"SELECT batch, done, epoch, run, rows, hash, plan FROM {batches} AND (target = {mine} OR {named}) "
            "ORDER BY batch * 2 + done DESC, at DESC LIMIT 1"
        )

    def record_batch(self, run: Run, record: BatchRecord) -> str:
        """Record a batch, unless a greater run is known."""
        columns = "target, scope, generation, batch, done, epoch, run, rows, hash, plan"
        numbers = f"{run.generation}, {record.batch}, {int(record.done)}, {run.epoch}"
        content = f"{record.content.rows}, toUInt64({record.content.hash}), {quote_literal(encode_plan(record.plan))}"
        return (
            f"INSERT INTO {qualified_name(self.database, BATCHES)} ({columns}) SELECT {quote_literal(self.batches_of)}, "
            f"{quote_literal(self.scope)}, {numbers}, {quote_literal(run.run)}, {content} WHERE {self.fence(run)} {_SYNCHRONOUS}"
        )

    def kill_inserts(self) -> str:
        """Kill every insert of the scope, and return when they have ended."""
        return f"KILL QUERY WHERE startsWith(query_id, {quote_literal(self.queries)}) SYNC"

    def count_inserts(self) -> str:
        """The number of its inserts, and of deletions in its name, that run."""
        processes = f"SELECT count() FROM system.processes WHERE startsWith(query_id, {quote_literal(self.queries)})"
        return f"SELECT ({processes}) + ({self.count_mutations()})"

    def count_mutations(self) -> str:
        """The number of unfinished deletions in its name."""
        return (
            f"SELECT count() FROM system.mutations WHERE database = {quote_literal(self.database)} "
            f"AND table = {quote_literal(self.table)} AND NOT is_done AND position(command, {quote_literal(self.scope)}) > 0"
        )

    def delete_generations_before(self, generation: int, *, mutations_sync: int = 1) -> str:
        """Delete the rows of earlier generations, and return when they are gone."""
        name = qualified_name(self.database, self.table)
        return f"ALTER TABLE {name} DELETE WHERE {self._before(generation)} SETTINGS mutations_sync = {mutations_sync}"

    def find_generations_before(self, generation: int) -> str:
        """A row of an earlier generation."""
        return f"SELECT 1 FROM {qualified_name(self.database, self.table)} WHERE {self._before(generation)} LIMIT 1"

    def _before(self, generation: int) -> str:
        return f"_scope = {quote_literal(self.scope)} AND _generation < {generation}"

    @property
    def next_tables(self) -> str:
        """The beginning of the names of tables whose content is about to replace the table's."""
        return f"{NEXT_PREFIX}{digest(self.table, self.scope)}_"

    def list_next_tables(self, *, hours: int) -> str:
        """Those of all runs, and of all writes that began so many hours ago: one without a name is not repeated."""
        mine = f"startsWith(name, {quote_literal(self.next_tables)})"
        old = f"startsWith(name, {quote_literal(NEXT_PREFIX)}) AND metadata_modification_time <= now() - INTERVAL {hours} HOUR"
        return f"SELECT name FROM system.tables WHERE database = {quote_literal(self.database)} AND ({mine} OR ({old}))"


def create_runs(database: str) -> str:
    """Every run of every scope stays: a replaced one must find itself, however late."""
    return (
        f"CREATE TABLE IF NOT EXISTS {qualified_name(database, RUNS)} (target String, scope String, generation UInt32, "
        "epoch UInt64, run String, query String, at DateTime64(3) DEFAULT now64(3)) "
        "ENGINE = MergeTree ORDER BY (target, scope, generation, epoch, run)"
    )


def create_batches(database: str) -> str:
    """One row is kept for each generation: its last batch, done rather than begun."""
    return (
        f"CREATE TABLE IF NOT EXISTS {qualified_name(database, BATCHES)} (target String, scope String, generation UInt32, "
        "batch UInt64, done UInt8, version UInt64 MATERIALIZED batch * 2 + done, epoch UInt64, run String, rows UInt64, "
        "hash UInt64, plan String, at DateTime64(6) DEFAULT now64(6)) "
        "ENGINE = ReplacingMergeTree(version) ORDER BY (target, scope, generation)"
    )


@dataclass(frozen=True, slots=True)
class StagedTable:
    """Where the tasks' rows wait for the commit: the columns that are written, with the types of the table."""

    database: str
    columns: Mapping[str, str]

    @property
    def name(self) -> str:
        """Other columns or types are another table."""
        return STAGED_PREFIX + digest(*(part for column in self.columns.items() for part in column))

    @property
    def full_name(self) -> str:
        """Quoted, with its database."""
        return qualified_name(self.database, self.name)

    def create(self, *, hours: int) -> str:
        """What nobody commits is deleted by the server."""
        columns = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in self.columns.items())
        return (
            f"CREATE TABLE IF NOT EXISTS {self.full_name} ({columns}, _staged_batch String, _staged_token String, "
            "_staged_at DateTime DEFAULT now()) ENGINE = MergeTree PARTITION BY _staged_batch ORDER BY _staged_token "
            f"TTL _staged_at + INTERVAL {hours} HOUR SETTINGS ttl_only_drop_parts = 1"
        )

    def insert(self, staged_batch: str, token: str) -> str:
        """Stage rows, which follow in Arrow's format."""
        names = ", ".join(map(quote_identifier, self.columns))
        structure = ", ".join(f"{quote_identifier(name)} {kind}" for name, kind in self.columns.items())
        where = f"{quote_literal(staged_batch)}, {quote_literal(token)}"
        return (
            f"INSERT INTO {self.full_name} ({names}, _staged_batch, _staged_token) "
            f"SELECT {names}, {where} FROM input({quote_literal(structure)}) FORMAT ArrowStream"
        )

    def content(self, staged_batch: str, tokens: Sequence[str]) -> str:
        """The number of staged rows, and their hash. A tuple, because the hash of a null is a null."""
        names = ", ".join(map(quote_identifier, self.columns))
        where = staged_rows(staged_batch, tokens)
        return f"SELECT count(), sum(cityHash64(tuple({names}))) FROM {self.full_name} WHERE {where}"


def staged_rows(staged_batch: str, tokens: Sequence[str]) -> str:
    """The condition on some pieces of a batch."""
    listed = ", ".join(map(quote_literal, tokens)) or "''"
    return f"_staged_batch = {quote_literal(staged_batch)} AND _staged_token IN ({listed})"


def count_staged(database: str, table: str, staged_batch: str, tokens: Sequence[str]) -> str:
    """The number of rows of some pieces."""
    return f"SELECT count() FROM {qualified_name(database, table)} WHERE {staged_rows(staged_batch, tokens)}"


def drop_staged(database: str, table: str, staged_batch: str) -> str:
    """Delete what a run has staged for a batch."""
    return f"ALTER TABLE {qualified_name(database, table)} DROP PARTITION {quote_literal(staged_batch)}"
