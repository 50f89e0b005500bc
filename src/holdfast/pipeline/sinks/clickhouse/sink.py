"""Exactly-once into ClickHouse: tokens deduplicate repeated inserts, the fence rejects a zombie's.

The one rule: after `fence` returns, no insert that was begun before runs or can begin. The server compares epochs before it reads
an insert's rows, so later ones are rejected; those past the comparison are killed, and waited for.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import Any, Final

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.clickhouse.errors import ClickHouseError, ClickHouseUnreachableError
from holdfast.clickhouse.replicas import count_queries, kill_queries
from holdfast.contracts.executors import Executors
from holdfast.pipeline.mapping.ddl import TableSpec
from holdfast.pipeline.model.range_identity import partition_key
from holdfast.pipeline.sinks.clickhouse import statements, tables
from holdfast.pipeline.sinks.clickhouse.fences import Fence, fence_of
from holdfast.pipeline.sinks.clickhouse.inserts import FencedInsert, insert_now, insert_resolved
from holdfast.pipeline.sinks.contract import (
    EXACTLY_ONCE,
    BlockedError,
    DeadLetterRow,
    FencedRange,
    SinkTarget,
    WriteResult,
)
from holdfast.pipeline.sinks.dead_letter_rows import dead_letter_rows
from holdfast.pipeline.sinks.provenance import with_pipeline
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock, RealClock
from holdfast.vocabulary.errors import FencedError, InvalidError
from holdfast.vocabulary.random import Random, SystemRandom

_WAIT_BEYOND_MS: Final = 10_000
_POLL_MS: Final = 50


@contextmanager
def blocked_by_server() -> Iterator[None]:
    """Errors of the server, and a server that does not answer, as the sink contract has them."""
    try:
        yield
    except (ClickHouseError, ClickHouseUnreachableError) as error:
        raise BlockedError(error.reason) from None


class ClickHouseSink:
    """One target in one process."""

    stages = False

    def __init__(
        self,
        target: SinkTarget,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        table: TableSpec | None = None,
    ) -> None:
        config = tables.config_of(target)
        dsn = config.dsn or target.embedded
        if not dsn:
            raise InvalidError("dsn", "", "a URL: no embedded ClickHouse is configured")
        self._target, self._table = target, table or tables.table_of(target)
        self._database = tables.database_of(target)
        self._timeout_ms = config.insert_timeout_ms
        self._connection = ClickHouseClient(dsn, timeout_ms=config.insert_timeout_ms + _WAIT_BEYOND_MS)
        self._clock, self._random = clock or RealClock(), random or SystemRandom()
        self._table_check: tables.TableCheck | None = None
        self._known_fence: Fence | None = None
        self._quorum = config.insert_quorum

    @property
    def guarantee(self) -> str:
        return self._table_check.guarantee if self._table_check is not None else EXACTLY_ONCE

    @blocked_by_server()
    def prepare(self) -> tuple[str, ...]:
        self._known_fence = None
        self._table_check = tables.prepare_tables(self._target, self._connection)
        return self._table_check.warnings

    @blocked_by_server()
    def fence(self, partition: int, epoch: int) -> int:
        key = self._target.fence_key(partition)
        number = statements.fence_number(epoch, self._newest_fence(key))
        if number is None:
            raise FencedError(key, epoch, self._newest_fence(key) // statements.TRIES)
        self._fence.raise_to(self._connection, [key], number)
        older = statements.older_queries(self._target, partition, number)
        self._connection.command(kill_queries(older, self._table.cluster))
        self._wait_until_none_runs(partition, number)
        return number

    @blocked_by_server()
    def written_beyond(self, partition: int, end: int) -> int:
        last = self._newest_fence(self._end_key(partition))
        return last if last > end else 0

    @blocked_by_server()
    def begin(self, fenced_ranges: Sequence[FencedRange]) -> None:
        """Record their ends beside the fence: a store that is older than the table would cut them otherwise."""
        self._fence.raise_each(self._connection, {self._end_key(each.partition): each.end for each in fenced_ranges})

    def _end_key(self, partition: int) -> str:
        target = self._target
        return partition_key(
            target.pipeline_id, target.generation, statements.END_NAME + target.revision.source.topic, partition
        )

    @property
    def _fence(self) -> Fence:
        if self._known_fence is None:
            self._known_fence = fence_of(self._connection, self._database, self._table.name)
        return self._known_fence

    def _newest_fence(self, key: str) -> int:
        return self._fence.newest(self._connection, key)

    def _wait_until_none_runs(self, partition: int, number: int) -> None:
        """Terminates: the server ends an insert at its time limit."""
        until_ms = self._clock.boot_ms() + self._timeout_ms + _WAIT_BEYOND_MS
        query = count_queries(statements.older_queries(self._target, partition, number), self._table.cluster)
        while running := int(self._connection.value(query)):
            if self._clock.boot_ms() >= until_ms:
                raise BlockedError(f"{running} earlier inserts of partition {partition} are still running")
            Event().wait(_POLL_MS / 1_000)

    @blocked_by_server()
    def write(self, fenced_range: FencedRange, rows: Any, refused: Sequence[DeadLetterRow]) -> WriteResult:
        failpoints.reached("pipeline.inserting")
        token, warnings = fenced_range.identity(self._target).token, []
        if rows.num_rows:
            rows = with_pipeline(rows, self._target.pipeline_id)
            kinds = statements.kinds_of(self._table, rows.schema.names)
            warnings += self._insert(fenced_range, self._table.name, kinds, rows, token)
        failpoints.reached("pipeline.inserted")
        if refused:
            dead_letters = dead_letter_rows(self._target, fenced_range, refused)
            dlq = self._table.name + statements.DLQ_SUFFIX
            warnings += self._insert(fenced_range, dlq, statements.DLQ_COLUMNS, dead_letters, f"{token}:dlq")
        failpoints.reached("pipeline.dlq-inserted")
        return WriteResult(
            fenced_range=fenced_range, rows=rows.num_rows, refused=len(refused), warnings=tuple(warnings)
        )

    def commit(self, written: Sequence[WriteResult], executors: Executors | None = None) -> None:
        """A no-op: every insert is visible once done."""

    def close(self) -> None:
        self._connection.close()

    def _insert(
        self, fenced_range: FencedRange, table: str, kinds: Mapping[str, str], rows: Any, token: str
    ) -> list[str]:
        identity = fenced_range.identity(self._target)
        insert = FencedInsert(
            database=self._database,
            table=table,
            kinds=kinds,
            rows=rows,
            token=token,
            place=statements.of_range(identity),
            unattributed=statements.of_range(replace(identity, pipeline_id="")) if identity.legacy else "",
            ttl=self._table.ttl if table == self._table.name else "",
            fence=identity.partition_key,
            epoch=statements.number_of(fenced_range),
            query=statements.query_id(self._target, fenced_range, self._random.token()),
            timeout_ms=self._timeout_ms,
            fence_in=self._fence,
            quorum=self._quorum if table in self._fence.replicated else "",
            replaces=self._table.changes and table == self._table.name,
        )
        try:
            if fenced_range.may_be_written:
                return self._difference(fenced_range, insert, insert_resolved(self._connection, insert))
            insert_now(self._connection, insert)
        except ClickHouseError as error:
            if not statements.is_fence_refusal(error):
                raise
            newest = self._newest_fence(insert.fence) // statements.TRIES
            raise FencedError(insert.fence, fenced_range.epoch, newest) from None
        return []

    def _difference(self, fenced_range: FencedRange, insert: FencedInsert, found: tuple[int, int]) -> list[str]:
        replaces = insert.table == self._table.name and self._table.engine.endswith("ReplacingMergeTree")
        if found == insert.made or replaces:
            return []
        offsets = f"offsets {fenced_range.start} to {fenced_range.end - 1} of partition {fenced_range.partition} in {insert.name}"
        expected = f"the revision makes {insert.made[0]} of {insert.made[1]}"
        return [f"provenance: {offsets} are {found[0]} rows of {found[1]} records; {expected}"]
