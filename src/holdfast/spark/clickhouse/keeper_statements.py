"""The statements of a scope whose table is replicated: its runs and batches are in Keeper, where all replicas read them.

    holdfast_fence_keeper            the fence: the number of the newest run of each scope, beside those of pipelines
    holdfast_spark_runs_keeper       the runs of each scope; a number is claimed by the first that inserts it
    holdfast_spark_batches_keeper    the last batch of each generation

The one rule: rows in Keeper are changed by compare-and-set (`clickhouse.keeper`), so that no two runs have one number, and no
record of a batch is replaced by that of an older run. Staged rows stay at the server that the run writes to.
"""

# ruff: noqa: S608 (every name and text goes through `quoting`)

from dataclasses import dataclass

from holdfast.clickhouse.keeper import KEEPER_FENCE_TABLE, STRICT, create_fence_table, create_keeper_table, read_number
from holdfast.clickhouse.quoting import qualified_name, quote_literal
from holdfast.clickhouse.replicas import count_queries, kill_queries
from holdfast.spark.clickhouse.batches import BatchRecord, encode_plan
from holdfast.spark.clickhouse.runs import Run
from holdfast.spark.clickhouse.statements import ScopeKey, digest

RUNS_IN_KEEPER = "holdfast_spark_runs_keeper"
BATCHES_IN_KEEPER = "holdfast_spark_batches_keeper"
_INSERT_SETTINGS = f"SETTINGS {STRICT}, async_insert = 0, wait_for_async_insert = 1"


@dataclass(frozen=True, slots=True)
class KeeperScopeKey(ScopeKey):
    """A scope of writes to a replicated table."""

    cluster: str = ""
    """Where older inserts are killed; empty: at the server alone."""

    @property
    def runs_table(self) -> str:
        return RUNS_IN_KEEPER

    @property
    def fence_key(self) -> str:
        """The key of its fence number."""
        return f"spark:{self.table}:{self.scope}"

    def add_run(self, run: Run) -> str:
        """Claim the run's epoch. Refused if another run has it."""
        number = f"{digest(self.table, self.scope)}:{run.epoch}"
        values = [*map(quote_literal, (number, self.table, self.scope)), str(run.generation), str(run.epoch)]
        values += map(quote_literal, (run.run, run.query))
        return (
            f"INSERT INTO {qualified_name(self.database, RUNS_IN_KEEPER)} (k, target, scope, generation, epoch, run, query) "
            f"{_INSERT_SETTINGS} VALUES ({', '.join(values)})"
        )

    def is_newest(self, run: Run) -> str:
        return f"({read_number(self.database, self.fence_key)}) <= {run.epoch}"

    def last_batch(self, generation: int) -> str:
        return f"SELECT batch, done, epoch, run, rows, hash, plan FROM {self._batches} WHERE k = {self._batch_key(generation)}"

    def record_batch(self, run: Run, record: BatchRecord) -> str:
        """Record the first batch of a generation. Refused if there is one."""
        values = _values(run, record)
        return (
            f"INSERT INTO {self._batches} (k, {', '.join(values)}) SELECT {self._batch_key(run.generation)}, "
            f"{', '.join(values.values())} WHERE {self.fence(run)} {_INSERT_SETTINGS}"
        )

    def record_next_batch(self, run: Run, record: BatchRecord) -> str:
        """Record a batch in place of an earlier one. Refused if that was changed meanwhile."""
        changes = ", ".join(f"{name} = {value}" for name, value in _values(run, record).items())
        where = f"k = {self._batch_key(run.generation)} AND epoch <= {run.epoch} AND {self.fence(run)}"
        return f"ALTER TABLE {self._batches} UPDATE {changes} WHERE {where} SETTINGS {STRICT}, mutations_sync = 1"

    def kill_inserts(self) -> str:
        return kill_queries(self._of_inserts, self.cluster)

    def count_inserts(self) -> str:
        return f"SELECT ({count_queries(self._of_inserts, self.cluster)}) + ({self.count_mutations()})"

    @property
    def _of_inserts(self) -> str:
        return f"startsWith(query_id, {quote_literal(self.queries)})"

    @property
    def _batches(self) -> str:
        return qualified_name(self.database, BATCHES_IN_KEEPER)

    def _batch_key(self, generation: int) -> str:
        return quote_literal(f"{digest(self.batches_of, self.scope)}:{generation}")


def _values(run: Run, record: BatchRecord) -> dict[str, str]:
    return {
        "batch": f"toUInt64({record.batch})",
        "done": f"toUInt8({int(record.done)})",
        "epoch": f"toUInt64({run.epoch})",
        "run": quote_literal(run.run),
        "rows": f"toUInt64({record.content.rows})",
        "hash": f"toUInt64({record.content.hash})",
        "plan": quote_literal(encode_plan(record.plan)),
    }


def create_in_keeper(database: str, cluster: str) -> dict[str, str]:
    """The tables in Keeper by name, and the statements that create them."""
    runs = "target String, scope String, generation UInt32, epoch UInt64, run String, query String"
    batches = "batch UInt64, done UInt8, epoch UInt64, run String, rows UInt64, hash UInt64, plan String"
    return {
        KEEPER_FENCE_TABLE: create_fence_table(database, cluster),
        RUNS_IN_KEEPER: create_keeper_table(database, RUNS_IN_KEEPER, runs, path="spark_runs", cluster=cluster),
        BATCHES_IN_KEEPER: create_keeper_table(
            database, BATCHES_IN_KEEPER, batches, path="spark_batches", cluster=cluster
        ),
    }
