"""A Delta table: tasks stage Parquet files, the driver adds them in one commit.

The one rule: the commit that adds a range's files also records, as the application transaction of its partition, where the range
ends. A range whose end is at or below that is committed already. Two commits from the same version about the same partition exclude
each other: a zombie that read the table before its successor committed fails, reads again, and finds the range committed.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from holdfast.contracts.executors import Executors
from holdfast.pipeline.model.definition import DeltaConfig
from holdfast.pipeline.sinks.contract import (
    EXACTLY_ONCE,
    BlockedError,
    DeadLetterRow,
    FencedRange,
    SinkTarget,
    WriteResult,
)
from holdfast.pipeline.sinks.files import FileLocation, parquet_bytes, parse_location
from holdfast.pipeline.sinks.lake import (
    StagedFile,
    lake_schema,
    put_dead_letters,
    staged_files,
    staged_text,
    to_lake,
)
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.files import sync_directory, sync_file
from holdfast.vocabulary.random import Random, SystemRandom

TRIES_MAX: Final = 20
_POSITION: Final = "\0position"  # no name of a column


class DeltaSink:
    """One target in one process."""

    guarantee = EXACTLY_ONCE
    stages = True

    def __init__(self, target: SinkTarget, *, random: Random | None = None) -> None:
        config = target.revision.sink
        if not isinstance(config, DeltaConfig):
            raise InvalidError("sink", type(config).__name__, "delta")
        self._target, self._random = target, random or SystemRandom()
        self._location: FileLocation = parse_location(config.url)
        self._schema = lake_schema(target)
        self._partition_by = list(config.partition_by)
        for name in self._partition_by:
            if name not in self._schema.names:
                raise InvalidError("partition_by", name, "one of " + ", ".join(self._schema.names))

    def prepare(self) -> tuple[str, ...]:
        from deltalake import DeltaTable

        with _blocking(self._location):
            DeltaTable.create(
                self._location.url,
                self._schema,
                mode="ignore",
                partition_by=self._partition_by or None,
                storage_options=dict(self._location.options) or None,
            )
            self._fit(self._table())
        return ()

    def examine(self) -> str:
        """What there is, without a change. `BlockedError`: rows cannot be written to it."""
        from deltalake import DeltaTable

        with _blocking(self._location):
            if not DeltaTable.is_deltatable(self._location.url, dict(self._location.options) or None):
                return "the table does not exist: it is created when the pipeline starts"
            table = self._table()
            added = [each.name for each in self._missing(table)]
            if (found := table.metadata().partition_columns) != self._partition_by:
                raise BlockedError(f"{self._location.url}: partitioned by {found}, not by {self._partition_by}")
        return f"version {table.version()}; " + (f"to be added: {', '.join(added)}" if added else "all columns fit")

    def _fit(self, table: Any) -> None:
        """Add missing columns if the drift policy allows it. `BlockedError`: the table differs."""
        if missing := self._missing(table):
            table.alter.add_columns(missing)

    def _missing(self, table: Any) -> list[Any]:
        """Columns to add. `BlockedError`: others have another type, or none may be added."""
        from deltalake import Schema

        expected = {field.name: field for field in Schema.from_arrow(self._schema).fields}
        existing = {field.name: field for field in table.schema().fields}
        if differs := [
            name for name, field in expected.items() if name in existing and existing[name].type != field.type
        ]:
            raise BlockedError(f"{self._location.url}: columns have another type: {', '.join(differs)}")
        missing = [field for name, field in expected.items() if name not in existing]
        if missing and self._target.revision.drift.unknown_fields != "add-column":
            raise BlockedError(f"{self._location.url}: missing columns: {', '.join(each.name for each in missing)}")
        return missing

    def fence(self, partition: int, epoch: int) -> int:
        """Not needed: the application transaction of the partition fences."""
        return epoch

    def written_beyond(self, partition: int, end: int) -> int:
        with _blocking(self._location):
            last = self._committed_end(self._table(), partition)
        return last if last > end else 0

    def begin(self, fenced_ranges: Sequence[FencedRange]) -> None:
        """A no-op: the commit of a range records its end."""

    def write(self, fenced_range: FencedRange, rows: Any, refused: Sequence[DeadLetterRow]) -> WriteResult:
        failpoints.reached("pipeline.inserting")
        files = [self._stage(fenced_range, values, part) for values, part in self._parts(to_lake(rows, self._schema))]
        failpoints.reached("pipeline.inserted")
        put_dead_letters(self._location, self._target, fenced_range, refused)
        failpoints.reached("pipeline.dlq-inserted")
        return WriteResult(
            fenced_range=fenced_range, rows=rows.num_rows, refused=len(refused), staged=staged_text(files)
        )

    def _parts(self, rows: Any) -> list[tuple[dict[str, str | None], Any]]:
        """The rows by partition of the table; values of partition columns are in the commit, not in the file."""
        import numpy as np
        import pyarrow as pa

        if not rows.num_rows:
            return []
        if not self._partition_by:
            return [({}, rows)]
        keys = pa.table({name: _comparable(rows.column(name)) for name in self._partition_by})
        # By position and not by comparison with the value: NaN is equal to nothing, and 0.0 to -0.0.
        keys = keys.append_column(_POSITION, pa.array(np.arange(rows.num_rows)))
        groups = keys.group_by(self._partition_by, use_threads=False).aggregate([(_POSITION, "list")])
        parts = []
        for values in groups.to_pylist():
            chosen = rows.take(values.pop(f"{_POSITION}_list")).drop_columns(self._partition_by)
            parts.append(({name: _partition_text(value) for name, value in values.items()}, chosen))
        return parts

    def _stage(self, fenced_range: FencedRange, values: dict[str, str | None], rows: Any) -> StagedFile:
        path = f"{fenced_range.identity(self._target).full_name}-{self._random.token()}.parquet"
        body = parquet_bytes(rows)
        self._location.put(path, body)
        return StagedFile(path=path, size=len(body), rows=rows.num_rows, values=values)

    def commit(self, written: Sequence[WriteResult], executors: Executors | None = None) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError

        for _ in range(TRIES_MAX):
            with _blocking(self._location):
                table = self._table()
                new = [each for each in written if not self._is_committed(table, each.fenced_range)]
                actions = [_action(file) for each in new for file in staged_files(each.staged)]
                if not actions:
                    return
                ends = [
                    Transaction(self._target.fence_key(each.fenced_range.partition), each.fenced_range.end)
                    for each in new
                ]
                try:
                    table.create_write_transaction(
                        actions,
                        "append",
                        self._schema,
                        self._partition_by or None,
                        commit_properties=CommitProperties(app_transactions=ends),
                    )
                except CommitFailedError:
                    continue  # another commit came first: read the table again
                self._sync()
                return
        raise BlockedError(f"{self._location.url}: {TRIES_MAX} commits lost to concurrent ones")

    def _is_committed(self, table: Any, fenced_range: FencedRange) -> bool:
        return self._committed_end(table, fenced_range.partition) >= fenced_range.end

    def _committed_end(self, table: Any, partition: int) -> int:
        """Of the last range of a partition; -1: none."""
        end = table.transaction_version(self._target.fence_key(partition))
        return -1 if end is None else int(end)

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._location.url, storage_options=dict(self._location.options) or None)

    def _sync(self) -> None:
        """On a disk the Delta library does not sync its log."""
        if self._location.local:
            log = Path(self._location.url) / "_delta_log"
            with max(log.glob("*.json")).open("rb") as newest:
                sync_file(newest.fileno())
            sync_directory(log)

    def close(self) -> None:
        """Nothing is open."""


def _action(file: StagedFile) -> Any:
    from deltalake.transaction import AddAction

    return AddAction(file.path, file.size, file.values, 0, True, f'{{"numRecords": {file.rows}}}')


def _comparable(column: Any) -> Any:
    """Floats with one zero and one NaN, so that each is one partition."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_floating(column.type):
        return column
    one_zero = pc.if_else(pc.equal(column, 0.0), pa.scalar(0.0, column.type), column)
    return pc.if_else(pc.is_nan(one_zero), pa.scalar(float("nan"), column.type), one_zero)


def _partition_text(value: Any) -> str | None:
    """As Spark writes it."""
    if value is None:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def _blocking(location: FileLocation) -> Iterator[None]:
    """Errors of the table or its storage block the slot, which retries."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        raise BlockedError(f"{location.url}: {' '.join(str(error).split())[:500]}") from None
