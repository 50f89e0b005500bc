"""Exactly once into ClickHouse: tokens make a repeated insert nothing, the fence makes a zombie's insert an error.

The one rule: after `fence` returns, no insert that was begun before runs or can begin. The server compares epochs before it reads
an insert's rows, so one that begins later is refused; those that were past the comparison are killed, and waited for.

A token is forgotten once as many inserts as the window holds came after it. So a range that may have been written already is
first looked for by its provenance, and only written if it is not there.
"""

from collections.abc import Sequence
from threading import Event
from typing import Any, Final

from holdfast.pipeline.driver import steps
from holdfast.pipeline.quoting import qualified
from holdfast.pipeline.sinks.clickhouse import statements, tables
from holdfast.pipeline.sinks.clickhouse.connection import AnswerError, Connection, RefusedByFenceError
from holdfast.pipeline.sinks.contract import EXACTLY_ONCE, BlockedError, Portion, RefusedRow, Target, Written
from holdfast.pipeline.sinks.refused import refused_rows
from holdfast.vocabulary.clock import Chance, Clock, RealChance, RealClock
from holdfast.vocabulary.errors import FencedError, InvalidError

_WAIT_BEYOND_MS: Final = 10_000
_POLL_MS: Final = 50


class ClickHouseSink:
    """One target in one process."""

    def __init__(self, target: Target, *, clock: Clock | None = None, chance: Chance | None = None) -> None:
        config = tables.config_of(target)
        dsn = config.dsn or target.embedded
        if not dsn:
            raise InvalidError("dsn", "", "a URL: there is no embedded ClickHouse here")
        self._target, self._table = target, tables.table_of(target)
        self._database = tables.database_of(target)
        self._timeout_ms = config.insert_timeout_ms
        self._connection = Connection(dsn, timeout_ms=config.insert_timeout_ms + _WAIT_BEYOND_MS)
        self._clock, self._chance = clock or RealClock(), chance or RealChance()
        self._looked: tables.Looked | None = None

    @property
    def guarantee(self) -> str:
        return self._looked.guarantee if self._looked is not None else EXACTLY_ONCE

    def prepare(self) -> tuple[str, ...]:
        self._looked = tables.make_ready(self._target, self._connection)
        return self._looked.warnings

    def fence(self, partition: int, epoch: int) -> int:
        key = self._target.fence_key(partition)
        number = statements.fence_number(epoch, self._newest(key))
        if number is None:
            raise FencedError(key, epoch, self._newest(key) // statements.TRIES)
        self._connection.command(statements.write_fence(self._database, key, number))
        self._connection.command(statements.kill_older(self._target, partition, number))
        self._wait_until_none_runs(partition, number)
        return number

    def _newest(self, key: str) -> int:
        return int(self._connection.value(statements.read_fence(self._database, key)))

    def _wait_until_none_runs(self, partition: int, number: int) -> None:
        """The server ends an insert at its time limit, so this ends too."""
        until_ms = self._clock.boot_ms() + self._timeout_ms + _WAIT_BEYOND_MS
        query = statements.count_older(self._target, partition, number)
        while running := int(self._connection.value(query)):
            if self._clock.boot_ms() >= until_ms:
                raise BlockedError(f"{running} earlier inserts of partition {partition} still run")
            Event().wait(_POLL_MS / 1_000)

    def write(self, portion: Portion, rows: Any, refused: Sequence[RefusedRow]) -> Written:
        steps.reached("inserting")
        token, warnings = portion.token(self._target), []
        if rows.num_rows:
            warnings += self._insert_once(portion, self._table.full_name, rows, token)
        steps.reached("inserted")
        if refused:
            name = qualified(self._database, self._table.name + statements.DLQ_SUFFIX)
            warnings += self._insert_once(portion, name, refused_rows(self._target, portion, refused), f"{token}:dlq")
        steps.reached("dlq-inserted")
        return Written(portion=portion, rows=rows.num_rows, refused=len(refused), warnings=tuple(warnings))

    def commit(self, written: Sequence[Written]) -> None:
        """Every insert was an effect of its own."""

    def close(self) -> None:
        self._connection.close()

    def _insert_once(self, portion: Portion, name: str, rows: Any, token: str) -> list[str]:
        if not portion.again:
            self._insert(portion, name, rows, token)
            return []
        made = rows.num_rows, distinct_offsets(rows)
        if self._there(portion, name) == made:
            return []
        self._insert(portion, name, rows, token)
        there = self._there(portion, name)
        if there == made or not self._counts_rows(name):
            return []
        place = f"offsets {portion.start} to {portion.end - 1} of partition {portion.partition} in {name}"
        return [
            f"provenance: {place} are {there[0]} rows of {there[1]} records; the recipe makes {made[0]} of {made[1]}"
        ]

    def _counts_rows(self, name: str) -> bool:
        return name != self._table.full_name or self._table.engine == "MergeTree"

    def _there(self, portion: Portion, name: str) -> tuple[int, int]:
        rows, records = self._connection.rows(statements.present(name, self._target, portion))[0]
        return int(rows), int(records)

    def _insert(self, portion: Portion, name: str, rows: Any, token: str) -> None:
        kinds = statements.DLQ_COLUMNS if token.endswith(":dlq") else self._kinds(rows)
        key = self._target.fence_key(portion.partition)
        number = statements.number_of(portion)
        statement = statements.fenced_insert(name, kinds, database=self._database, key=key, epoch=number)
        query = statements.query_id(self._target, portion, self._chance.token())
        settings = statements.insert_settings(token, query, timeout_ms=self._timeout_ms)
        try:
            self._connection.insert(statement, one_batch(rows), settings=settings)
        except RefusedByFenceError:
            raise FencedError(key, portion.epoch, self._newest(key) // statements.TRIES) from None
        except AnswerError as error:
            raise BlockedError(error.reason) from None

    def _kinds(self, rows: Any) -> dict[str, str]:
        return statements.kinds_of(self._table, rows.schema.names)


def one_batch(rows: Any) -> Any:
    """The rows as a stream of one Arrow batch, in a `pyarrow.Buffer`: one block for the server."""
    import pyarrow as pa

    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, rows.schema) as stream:
        stream.write_table(rows.combine_chunks(), max_chunksize=max(1, rows.num_rows))
    return buffer.getvalue()


def distinct_offsets(rows: Any) -> int:
    """Of how many records the rows are: SQL may make several of one."""
    import pyarrow.compute as pc

    return int(pc.count_distinct(rows.column("_offset")).as_py())
