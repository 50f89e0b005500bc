"""DDL of a pipeline's table. Text only: nothing is run here.

The one rule: every name from a user goes through `quoting`; everything else in a statement comes from the constants below. An
existing table is compared by `table_diff`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.clickhouse.quoting import qualified_name, quote_identifier
from holdfast.clickhouse.types import INTEGERS, DateTime, DateTime64, Scalar, Type, is_sortable, parse_type
from holdfast.pipeline.mapping.inference import propose_order
from holdfast.pipeline.model.column_mapping import OVERFLOW_COLUMN, PROVENANCE, Column, Mapping
from holdfast.pipeline.model.definition import ClickHouseConfig
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_between, check_one_of

ENGINES: Final = ("MergeTree", "ReplacingMergeTree")
PARTITION_FUNCTIONS: Final = ("toYYYYMM", "toYYYYMMDD", "toMonday", "toYear")
DEDUP_WINDOW_SETTING: Final = "non_replicated_deduplication_window"
WINDOW_DEFAULT: Final = 10_000
"""Inserts whose tokens ClickHouse remembers. A MergeTree remembers none by default: a repeated insert would be stored twice."""
DEDUP_WINDOW_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A pipeline's table as it should be. `InvalidError` if its values are wrong."""

    database: str
    name: str
    mapping: Mapping
    order_by: tuple[str, ...]
    engine: str = "MergeTree"
    version_column: str | None = None
    """For ReplacingMergeTree: the row with the greatest value survives; without it, the last one inserted."""
    partition_by: tuple[str, str] | None = None
    """A function of time and a column: ('toYYYYMM', 'ts')."""
    window: int = WINDOW_DEFAULT
    overflow: bool = False
    """Whether there is a column for unmapped fields."""

    def __post_init__(self) -> None:
        quote_identifier(self.database), quote_identifier(self.name)
        check_one_of("engine", self.engine, ENGINES)
        check_between("window", self.window, 1, DEDUP_WINDOW_MAX)
        types = self.columns()
        if not self.order_by or len(set(self.order_by)) < len(self.order_by):
            raise InvalidError("order_by", self.order_by, "one or more columns, each once")
        for column in self.order_by:
            if not is_sortable(_known("order_by", column, types)):
                raise InvalidError("order_by", column, f"a column without null, array or map; this is {types[column]}")
        self._check_version(types)
        self._check_partition(types)

    def _check_version(self, types: dict[str, Type]) -> None:
        if self.version_column is None:
            return
        if self.engine != "ReplacingMergeTree":
            raise InvalidError("version_column", self.version_column, "empty: only ReplacingMergeTree has one")
        kind = _known("version_column", self.version_column, types)
        numbers = isinstance(kind, Scalar) and (
            (kind.name in INTEGERS and kind.name.startswith("U")) or kind.name == "Date"
        )
        if not numbers and not isinstance(kind, DateTime | DateTime64):
            raise InvalidError(
                "version_column", self.version_column, f"a UInt, Date, DateTime or DateTime64; this is {kind}"
            )

    def _check_partition(self, types: dict[str, Type]) -> None:
        if self.partition_by is None:
            return
        function, column = self.partition_by
        check_one_of("partition_by function", function, PARTITION_FUNCTIONS)
        kind = _known("partition_by", column, types)
        if not isinstance(kind, DateTime | DateTime64) and kind != Scalar("Date"):
            raise InvalidError("partition_by", column, f"a Date, DateTime or DateTime64 without null; this is {kind}")

    def columns(self) -> dict[str, Type]:
        """All columns in order: the mapping's, overflow, provenance."""
        kinds = {column.column: column.kind for column in self.mapping.columns}
        if self.overflow:
            kinds[OVERFLOW_COLUMN] = parse_type("String")
        return {**kinds, **{name: parse_type(text) for name, text in PROVENANCE.items()}}

    @property
    def full_name(self) -> str:
        """Database and name, quoted."""
        return qualified_name(self.database, self.name)


KEEPS_LAST_INSERT: Final = (
    "a ReplacingMergeTree without a version column keeps the row that was inserted last: set versionColumn "
    "(_offset, if a key is always in one partition), or old records would replace newer ones"
)


def keeps_last_insert(sink: ClickHouseConfig) -> bool:
    """Whether the order of inserts decides which row of a key survives: then old records must not be inserted again."""
    return sink.engine == "ReplacingMergeTree" and not sink.version_column


def table_spec(sink: ClickHouseConfig, columns: Sequence[Column], *, database: str, overflow: bool) -> TableSpec:
    """The table that a ClickHouse sink needs for these columns. `InvalidError` if they do not fit its settings."""
    return TableSpec(
        database=database,
        name=sink.table,
        mapping=Mapping(tuple(columns)),
        order_by=sink.order_by or propose_order(columns),
        engine=sink.engine,
        version_column=sink.version_column or None,
        window=sink.dedup_window,
        overflow=overflow,
    )


def _known(what: str, column: str, types: dict[str, Type]) -> Type:
    if column not in types:
        raise InvalidError(what, column, "one of " + ", ".join(types))
    return types[column]


def create_table(table: TableSpec) -> str:
    """CREATE TABLE IF NOT EXISTS."""
    columns = ",\n".join(f"    {quote_identifier(name)} {kind}" for name, kind in table.columns().items())
    version = f"({quote_identifier(table.version_column)})" if table.version_column else ""
    lines = [f"CREATE TABLE IF NOT EXISTS {table.full_name}\n(\n{columns}\n)", f"ENGINE = {table.engine}{version}"]
    if table.partition_by is not None:
        function, column = table.partition_by
        lines.append(f"PARTITION BY {function}({quote_identifier(column)})")
    lines.append(f"ORDER BY ({', '.join(map(quote_identifier, table.order_by))})")
    lines.append(f"SETTINGS {DEDUP_WINDOW_SETTING} = {table.window}")
    return "\n".join(lines)


def add_columns(table: TableSpec, names: Sequence[str]) -> str:
    """ALTER TABLE … ADD COLUMN for some of the table's columns."""
    kinds = table.columns()
    changes = ", ".join(f"ADD COLUMN IF NOT EXISTS {quote_identifier(name)} {kinds[name]}" for name in names)
    return f"ALTER TABLE {table.full_name} {changes}"


def change_type(table: TableSpec, name: str) -> str:
    """ALTER TABLE … MODIFY COLUMN to the type it should have."""
    return f"ALTER TABLE {table.full_name} MODIFY COLUMN {quote_identifier(name)} {table.columns()[name]}"


def set_window(table: TableSpec) -> str:
    """ALTER TABLE … MODIFY SETTING for the deduplication window."""
    return f"ALTER TABLE {table.full_name} MODIFY SETTING {DEDUP_WINDOW_SETTING} = {table.window}"
