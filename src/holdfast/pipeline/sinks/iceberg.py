"""An Iceberg table of a catalog (SQL, REST, Glue): tasks stage Parquet files, the driver adds them in one commit.

The one rule: the commit that adds a range's files also sets, as a property of the table, where the range of its partition ends. A
range whose end is at or below that is committed already. A commit must be based on the state that was checked: the client's own
retries, which would append to a newer one, are off.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from holdfast.contracts.executors import Executors
from holdfast.pipeline.model.definition import IcebergConfig
from holdfast.pipeline.model.partition_fields import parse_partition_field
from holdfast.pipeline.sinks.contract import (
    EXACTLY_ONCE,
    BlockedError,
    DeadLetterRow,
    FencedRange,
    SinkTarget,
    WriteResult,
)
from holdfast.pipeline.sinks.files import parquet_bytes, parse_location
from holdfast.pipeline.sinks.iceberg_partitions import check_fields, check_spec, create_spec, split_rows
from holdfast.pipeline.sinks.lake import (
    StagedFile,
    lake_schema,
    put_dead_letters,
    staged_files,
    staged_text,
    to_lake,
)
from holdfast.pipeline.sinks.roots import check_below_roots
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import HoldfastError, InvalidError
from holdfast.vocabulary.installation import NotInstalledError
from holdfast.vocabulary.random import Random, SystemRandom

TRIES_MAX: Final = 20
PROPERTY: Final = "holdfast.end."
SNAPSHOT_PROPERTY: Final = "holdfast.ranges"

_log: Final = logging.getLogger(__name__)


class IcebergSink:
    """One target in one process."""

    guarantee = EXACTLY_ONCE
    stages = True

    def __init__(self, target: SinkTarget, *, random: Random | None = None) -> None:
        config = target.revision.sink
        if not isinstance(config, IcebergConfig):
            raise InvalidError("sink", type(config).__name__, "iceberg")
        if "." not in config.table:
            raise InvalidError("table", config.table, "namespace.table")
        self._target, self._config, self._random = target, config, random or SystemRandom()
        self._schema = lake_schema(target)
        self._partition_fields = [parse_partition_field(text) for text in config.partition_by]
        check_fields(self._partition_fields, self._schema)
        self._catalog: Any = None
        self._table: Any = None

    def prepare(self) -> tuple[str, ...]:
        from pyiceberg.exceptions import NamespaceAlreadyExistsError

        with _blocking(self._config.table):
            catalog = self._open_catalog()
            with suppress(NamespaceAlreadyExistsError):
                catalog.create_namespace(self._config.table.rpartition(".")[0])
            table = catalog.create_table_if_not_exists(self._config.table, self._schema)
            create_spec(table, self._partition_fields)
            self._fit(table)
        return ()

    def examine(self) -> str:
        """What there is, without a change. `BlockedError`: rows cannot be written to it."""
        with _blocking(self._config.table):
            catalog = self._open_catalog()
            if not catalog.table_exists(self._config.table):
                return "the table does not exist: it is created when the pipeline starts"
            table = catalog.load_table(self._config.table)
            check_spec(table, self._partition_fields)
            self._union(table)
        return "all columns fit, or can be added"

    def _fit(self, table: Any) -> None:
        """Add missing columns if the drift policy allows it. `BlockedError`: the table differs."""
        self._union(table).commit()

    def _union(self, table: Any) -> Any:
        """The schema with the columns that are missing, not committed yet."""
        existing = set(table.schema().column_names)
        missing = [name for name in self._schema.names if name not in existing]
        if missing and self._target.revision.drift.unknown_fields != "add-column":
            raise BlockedError(f"{self._config.table}: missing columns: {', '.join(missing)}")
        try:
            return table.update_schema().union_by_name(self._schema)
        except (TypeError, ValueError) as error:
            raise BlockedError(f"{self._config.table}: {error}") from None

    def fence(self, partition: int, epoch: int) -> int:
        """Not needed: the property of the partition fences."""
        return epoch

    def written_beyond(self, partition: int, end: int) -> int:
        with _blocking(self._config.table):
            last = self._committed_end(self._open_catalog().load_table(self._config.table), partition)
        return last if last > end else 0

    def begin(self, fenced_ranges: Sequence[FencedRange]) -> None:
        """A no-op: the commit of a range records its end."""

    def write(self, fenced_range: FencedRange, rows: Any, refused: Sequence[DeadLetterRow]) -> WriteResult:
        failpoints.reached("pipeline.inserting")
        with _blocking(self._config.table):
            table = self._staging_table()
            location = _TableFiles(table)
            stored = to_lake(rows, self._schema)
            parts = list(split_rows(stored, self._partition_fields)) if rows.num_rows else []
        files = []
        for part in parts:
            name = f"data/{fenced_range.identity(self._target).full_name}-{self._random.token()}.parquet"
            body = parquet_bytes(part)
            location.put(name, body)
            files.append(StagedFile(path=name, size=len(body), rows=part.num_rows))
        failpoints.reached("pipeline.inserted")
        put_dead_letters(location, self._target, fenced_range, refused)
        failpoints.reached("pipeline.dlq-inserted")
        return WriteResult(
            fenced_range=fenced_range, rows=rows.num_rows, refused=len(refused), staged=staged_text(files)
        )

    def commit(self, written: Sequence[WriteResult], executors: Executors | None = None) -> None:
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(TRIES_MAX):
            with _blocking(self._config.table):
                table = self._open_catalog().load_table(self._config.table)
                new = [each for each in written if not self._is_committed(table, each.fenced_range)]
                paths = [f"{table.location()}/{file.path}" for each in new for file in staged_files(each.staged)]
                if not paths:
                    return
                try:
                    self._append(table, new, paths)
                except CommitFailedException:
                    continue  # another commit came first: load the table again
                return
        raise BlockedError(f"{self._config.table}: {TRIES_MAX} commits lost to concurrent ones")

    def _append(self, table: Any, new: Sequence[WriteResult], paths: list[str]) -> None:
        from pyiceberg.table import TableProperties

        # In memory only. A retry by the client would commit on top of a state that was not checked.
        table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
        ends = {self._property(each.fenced_range.partition): str(each.fenced_range.end) for each in new}
        tokens = ",".join(each.fenced_range.identity(self._target).token for each in new)
        with table.transaction() as transaction:
            transaction.set_properties(ends)
            transaction.add_files(paths, snapshot_properties={SNAPSHOT_PROPERTY: tokens}, check_duplicate_files=False)

    def _property(self, partition: int) -> str:
        return PROPERTY + self._target.fence_key(partition)

    def _is_committed(self, table: Any, fenced_range: FencedRange) -> bool:
        return self._committed_end(table, fenced_range.partition) >= fenced_range.end

    def _committed_end(self, table: Any, partition: int) -> int:
        """Of the last range of a partition; -1: none."""
        return int(table.properties.get(self._property(partition), "-1"))

    def _staging_table(self) -> Any:
        if self._table is None:
            table = self._open_catalog().load_table(self._config.table)
            # Another may have made it.
            check_below_roots("location of the Iceberg table", table.location(), self._target.sink_roots)
            self._table = table
        return self._table

    def _open_catalog(self) -> Any:
        if self._catalog is None:
            try:
                from pyiceberg.catalog import load_catalog

                self._catalog = load_catalog("holdfast", **catalog_properties(self._config))
            except ModuleNotFoundError as missing:
                raise NotInstalledError("the Iceberg sink", missing.name or "pyiceberg", "lake") from None
        return self._catalog

    def close(self) -> None:
        catalog, self._catalog, self._table = self._catalog, None, None
        if catalog is not None and hasattr(catalog, "close"):
            catalog.close()


def catalog_properties(config: IcebergConfig) -> dict[str, str]:
    """What pyiceberg opens a catalog with. Options come last: they override."""
    warehouse = config.warehouse
    if config.catalog == "sql" and warehouse and (place := parse_location(warehouse)):
        warehouse = f"file://{place.url}" if place.local else place.url
    given = {"type": config.catalog, "uri": config.catalog_uri, "warehouse": warehouse}
    return {**{name: value for name, value in given.items() if value}, **config.catalog_options}


class _TableFiles:
    """Files below a table's location: durable on a disk, else through the table's own client, which has its credentials."""

    def __init__(self, table: Any) -> None:
        self._table, self._location = table, parse_location(table.location())

    def put(self, name: str, body: bytes) -> None:
        if self._location.local:
            self._location.put(name, body)
            return
        output = self._table.io.new_output(f"{self._table.location()}/{name}")
        with _blocking(name), output.create(overwrite=True) as stream:
            stream.write(body)


@contextmanager
def _blocking(table: str) -> Iterator[None]:
    """Errors of the catalog and its storage, of many classes, block the slot, which retries."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:
        _log.debug("Iceberg table %s", table, exc_info=error)
        raise BlockedError(f"{table}: {type(error).__name__}: {' '.join(str(error).split())[:400]}") from None
