"""Columns and mappings, their JSON, and their validation.

The JSON is `{"columns": [{"fieldPath", "column", "type", "nullable"}]}`, and optionally `whenNull` per column, `version` and
`ignored`. The one rule: a `Mapping` that came through `read_mapping` is valid; no code behind it checks again.
"""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from holdfast.clickhouse.quoting import invalid_name_reason
from holdfast.clickhouse.types import (
    NO_NULL,
    LowCardinality,
    Nullable,
    Type,
    is_nullable,
    nullable,
    parse_type,
    zones_of,
)
from holdfast.pipeline.model.errors import Mistakes
from holdfast.pipeline.model.field_paths import parse_path
from holdfast.pipeline.model.shapes import read_object, read_struct
from holdfast.pipeline.model.timestamps import load_zone
from holdfast.vocabulary.errors import InvalidError

COLUMNS_MAX: Final = 1_000
PROVENANCE: Final = {
    "_pipeline": "LowCardinality(String)",
    "_generation": "UInt32",
    "_topic": "LowCardinality(String)",
    "_partition": "UInt32",
    "_offset": "UInt64",
}
"""Columns that every table of a pipeline has: where a row came from, checked when a range is written again."""

OVERFLOW_COLUMN: Final = "_overflow"
"""The column for unmapped fields, as JSON, under the drift policy `overflow`."""

VERSION_COLUMN: Final = "_version"
DELETED_COLUMN: Final = "_deleted"
CHANGE_COLUMNS: Final = {VERSION_COLUMN: "UInt64", DELETED_COLUMN: "UInt8"}
"""The columns of a table that change events are written to: which row of a key survives, and whether it is deleted."""

RESERVED: Final = frozenset(PROVENANCE) | {OVERFLOW_COLUMN} | {
    "_block_number", "_block_offset", "_database", "_disk_name", "_distance", "_part", "_part_data_version", "_part_granule_offset",
    "_part_index", "_part_offset", "_part_starting_offset", "_part_uuid", "_partition_id", "_partition_value", "_row_exists",
    "_sample_factor", "_table",
}  # fmt: skip
"""Reserved names: ours, and the virtual columns of ClickHouse."""


class Column(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One column: path of its value in a record, name, type."""

    field_path: str
    column: str
    type: str
    nullable: bool = False
    when_null: Literal["refuse", "default"] = "refuse"
    """What becomes of a null in a column that is not nullable: the record is rejected, or the type's zero is stored."""

    @property
    def kind(self) -> Type:
        """The type with its Nullable."""
        return _kind(self.type, self.nullable)


class Mapping(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The columns of a pipeline. `version` goes up with every change; `ignored` are known paths without a column."""

    columns: tuple[Column, ...]
    version: int = 1
    ignored: tuple[str, ...] = ()


@lru_cache(maxsize=1_000)
def _kind(text: str, null: bool) -> Type:
    kind = parse_type(text)
    return nullable(kind) if null else kind


def make_column(
    field_path: str, column: str, kind: Type, *, when_null: Literal["refuse", "default"] = "refuse"
) -> Column:
    """A column of a type: `nullable` is a field of its own, not part of the type's text."""
    return Column(field_path, column, str(_without_null(kind)), is_nullable(kind), when_null)


def _without_null(kind: Type) -> Type:
    if isinstance(kind, LowCardinality):
        return LowCardinality(_without_null(kind.of))
    return kind.of if isinstance(kind, Nullable) else kind


def read_mapping(given: bytes | str | dict[str, Any]) -> Mapping:
    """A mapping from its JSON (or the same decoded). All mistakes at once: `InvalidError`, `InvalidValuesError` if several."""
    mistakes = Mistakes()
    mapping = read_struct("mapping", read_object("mapping", given), Mapping, mistakes)
    for error in mapping_errors(mapping):
        mistakes.add(error)
    mistakes.raise_if_any()
    columns = tuple(
        make_column(column.field_path, column.column, column.kind, when_null=column.when_null)
        for column in mapping.columns
    )
    return Mapping(columns, mapping.version, mapping.ignored)


def mapping_json(mapping: Mapping) -> dict[str, Any]:
    """The mapping as JSON values. What has its default is left out, except for the four fields every column has."""
    columns = []
    for column in mapping.columns:
        plain: dict[str, Any] = msgspec.to_builtins(column)
        if column.when_null == "refuse":
            del plain["whenNull"]
        columns.append(plain)
    shown: dict[str, Any] = {"columns": columns, "version": mapping.version}
    return {**shown, "ignored": list(mapping.ignored)} if mapping.ignored else shown


def mapping_errors(mapping: Mapping) -> Iterator[InvalidError]:
    """Every mistake of a mapping, in its order."""
    if not 1 <= len(mapping.columns) <= COLUMNS_MAX:
        yield InvalidError("mapping.columns", f"{len(mapping.columns)} columns", f"1 to {COLUMNS_MAX} columns")
    if mapping.version < 1:
        yield InvalidError("mapping.version", mapping.version, "at least 1")
    names = Counter[str]()
    for number, column in enumerate(mapping.columns):
        where = f"mapping.columns[{number}]"
        yield from _column_errors(where, column)
        names[column.column] += 1
        if names[column.column] == 2:
            yield InvalidError(f"{where}.column", column.column, "unique: another column has this name")
    for number, path in enumerate(mapping.ignored):
        yield from _path_errors(f"mapping.ignored[{number}]", path)


def _column_errors(where: str, column: Column) -> Iterator[InvalidError]:
    yield from _path_errors(f"{where}.fieldPath", column.field_path)
    if (allowed := invalid_name_reason(column.column)) is not None:
        yield InvalidError(f"{where}.column", column.column, allowed)
    elif column.column in RESERVED:
        yield InvalidError(f"{where}.column", column.column, "a name that neither ClickHouse nor the pipeline reserves")
    try:
        kind = parse_type(column.type)
    except InvalidError as error:
        yield InvalidError(f"{where}.type", column.type, error.allowed)
        return
    try:
        for zone in zones_of(kind):
            load_zone(zone)
    except InvalidError:
        yield InvalidError(f"{where}.type", column.type, "with a time zone of the IANA database")
    if column.nullable and isinstance(kind, NO_NULL):
        yield InvalidError(f"{where}.nullable", True, f'false: {kind} has no null (whenNull "default" makes it empty)')


def _path_errors(where: str, path: str) -> Iterator[InvalidError]:
    try:
        parse_path(path)
    except InvalidError as error:
        yield InvalidError(where, path[:100], error.allowed)
