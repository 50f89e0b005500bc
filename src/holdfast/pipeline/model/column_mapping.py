"""Columns and mappings, their JSON, and what is wrong with one.

The JSON is `{"columns": [{"fieldPath", "column", "type", "nullable"}]}`, and optionally `whenNull` per column, `version` and
`ignored`. The one rule: a `Mapping` that came through `read_mapping` has no problems, so nobody behind it checks again.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from holdfast.clickhouse.quoting import invalid_name_reason
from holdfast.clickhouse.types import Array, LowCardinality, Map, Nullable, Type, is_nullable, nullable, parse_type
from holdfast.pipeline.model.field_paths import parse_path
from holdfast.vocabulary.errors import InvalidError

COLUMNS_MAX: Final = 1_000
PROVENANCE: Final = {
    "_generation": "UInt32",
    "_topic": "LowCardinality(String)",
    "_partition": "UInt32",
    "_offset": "UInt64",
}
"""Columns every table of a pipeline has besides its own: where a row came from, checked when a range is written again."""

OVERFLOW_COLUMN: Final = "_overflow"
"""Where a pipeline that wants it keeps what its mapping does not know, as JSON."""

RESERVED: Final = frozenset(PROVENANCE) | {OVERFLOW_COLUMN} | {
    "_block_number", "_block_offset", "_database", "_disk_name", "_distance", "_part", "_part_data_version", "_part_granule_offset",
    "_part_index", "_part_offset", "_part_starting_offset", "_part_uuid", "_partition_id", "_partition_value", "_row_exists",
    "_sample_factor", "_table",
}  # fmt: skip
"""Names that are taken: ours, and those ClickHouse gives to every table of this engine."""


class Column(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One column: where its value is in a record, what it is called, and what it is."""

    field_path: str
    column: str
    type: str
    nullable: bool = False
    when_null: Literal["refuse", "default"] = "refuse"
    """What a null does where the column has none: the record is refused, or the type's zero is stored."""

    @property
    def kind(self) -> Type:
        """The type with its Nullable."""
        return _kind(self.type, self.nullable)


class Mapping(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The columns of a pipeline. `version` goes up with every change; `ignored` are paths that are known and left out."""

    columns: tuple[Column, ...]
    version: int = 1
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MappingProblem:
    """One thing that is wrong: where in the JSON, what is there, what may be."""

    where: str
    given: object
    allowed: str


@lru_cache(maxsize=1_000)
def _kind(text: str, null: bool) -> Type:
    kind = parse_type(text)
    return nullable(kind) if null else kind


def make_column(
    field_path: str, column: str, kind: Type, *, when_null: Literal["refuse", "default"] = "refuse"
) -> Column:
    """A column of a type: `nullable` is said once, outside of the type's text."""
    return Column(field_path, column, str(_without_null(kind)), is_nullable(kind), when_null)


def _without_null(kind: Type) -> Type:
    if isinstance(kind, LowCardinality):
        return LowCardinality(_without_null(kind.of))
    return kind.of if isinstance(kind, Nullable) else kind


def read_mapping(given: bytes | str | dict[str, Any]) -> Mapping:
    """A mapping from its JSON (or the same decoded). The first problem is an `InvalidError`; `problems` lists all."""
    mapping = decode_mapping(given)
    for problem in mapping_problems(mapping):
        raise InvalidError(f"mapping: {problem.where}", problem.given, problem.allowed)
    columns = tuple(
        make_column(column.field_path, column.column, column.kind, when_null=column.when_null)
        for column in mapping.columns
    )
    return Mapping(columns, mapping.version, mapping.ignored)


def decode_mapping(given: bytes | str | dict[str, Any]) -> Mapping:
    """Only the shape is checked. What is wrong inside it is told by `problems`."""
    try:
        decoded = msgspec.json.decode(given) if isinstance(given, bytes | str) else given
        return msgspec.convert(decoded, Mapping)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidError("mapping", _short(given), str(error)) from None


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


def mapping_problems(mapping: Mapping) -> Iterator[MappingProblem]:
    """Everything that is wrong with a mapping, in its order."""
    if not 1 <= len(mapping.columns) <= COLUMNS_MAX:
        yield MappingProblem("columns", len(mapping.columns), f"1 to {COLUMNS_MAX} of them")
    if mapping.version < 1:
        yield MappingProblem("version", mapping.version, "1 or more")
    names = Counter[str]()
    for number, column in enumerate(mapping.columns):
        yield from _column_problems(f"columns[{number}]", column)
        names[column.column] += 1
        if names[column.column] == 2:
            yield MappingProblem(f"columns[{number}].column", column.column, "a name no other column has")
    for number, path in enumerate(mapping.ignored):
        yield from _path_problems(f"ignored[{number}]", path)


def _column_problems(where: str, column: Column) -> Iterator[MappingProblem]:
    yield from _path_problems(f"{where}.fieldPath", column.field_path)
    if (allowed := invalid_name_reason(column.column)) is not None:
        yield MappingProblem(f"{where}.column", column.column, allowed)
    elif column.column in RESERVED:
        yield MappingProblem(f"{where}.column", column.column, "a name ClickHouse or the pipeline does not use itself")
    try:
        kind = parse_type(column.type)
    except InvalidError as error:
        yield MappingProblem(f"{where}.type", column.type, error.allowed)
        return
    if column.nullable and isinstance(kind, Array | Map):
        yield MappingProblem(
            f"{where}.nullable", True, f'false: {kind} has no null (whenNull "default" makes it empty)'
        )


def _path_problems(where: str, path: str) -> Iterator[MappingProblem]:
    try:
        parse_path(path)
    except InvalidError as error:
        yield MappingProblem(where, path[:100], error.allowed)


def _short(given: bytes | str | dict[str, Any]) -> str:
    text = given.decode("utf-8", "replace") if isinstance(given, bytes) else str(given)
    return text if len(text) <= 100 else text[:100] + "…"
