"""Schema drift: what to do with records whose fields are not in the mapping, by the pipeline's policy.

The one rule: a decision is a value: the affected records, the new columns, the next mapping. The caller runs the DDL, saves the
mapping and only then plans new ranges. A range that was begun under one version of the mapping is finished under it.
"""

from collections.abc import Mapping as Dict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, TypeAlias

from holdfast.clickhouse.types import NO_NULL, nullable
from holdfast.pipeline.mapping.coercion import RejectedRecord, ValueRejection
from holdfast.pipeline.mapping.inference import ColumnNames, infer
from holdfast.pipeline.mapping.text_scalars import text_of
from holdfast.pipeline.model.column_mapping import COLUMNS_MAX, Column, Mapping, make_column
from holdfast.pipeline.model.field_paths import parse_path
from holdfast.pipeline.model.records import abbreviated
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_one_of

POLICIES: Final = ("ignore", "add_column", "overflow", "dlq", "stop")
NEW_COLUMNS_MAX: Final = 100
"""Columns that one batch may add: a broken producer must not create a thousand."""
FIELDS_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class NoDrift:
    """No unknown fields, or the policy ignores them."""


@dataclass(frozen=True, slots=True)
class AddColumns:
    """Add these to the table and continue with the next version of the mapping."""

    columns: tuple[Column, ...]
    mapping: Mapping


@dataclass(frozen=True, slots=True)
class Overflow:
    """Unknown fields as JSON by record, for the overflow column. Records without any have none."""

    texts: Dict[int, str]


@dataclass(frozen=True, slots=True)
class DivertToDlq:
    """These records go to the DLQ; the others continue."""

    refused: Sequence[tuple[int, RejectedRecord]]


@dataclass(frozen=True, slots=True)
class StopPipeline:
    """The pipeline stops before this batch."""

    fields: tuple[str, ...]
    reason: str


Decision: TypeAlias = NoDrift | AddColumns | Overflow | DivertToDlq | StopPipeline


class KnownFields:
    """The fields of a mapping, level by level."""

    def __init__(self, mapping: Mapping) -> None:
        self._top = _Level()
        for text in (*(column.field_path for column in mapping.columns), *mapping.ignored):
            path = parse_path(text)
            if path.root == "fields":
                # A path into an array covers the array.
                self._top.add(list(takewhile(lambda step: isinstance(step, str), path.steps)))

    def unknown(self, value: Any) -> dict[str, Any]:
        """The unmapped part of a record, in its own shape. A null is never unknown."""
        return self._top.unknown(value) if isinstance(value, dict) else {}


class _Level:
    """Known keys, and those of them of which only some fields are known."""

    __slots__ = ("inside", "keys")

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.inside: dict[str, _Level] = {}

    def add(self, steps: list[Any]) -> None:
        key, rest = steps[0], steps[1:]
        if not rest:
            self.keys.add(key)
            self.inside.pop(key, None)  # the whole object is known
        elif key in self.inside or key not in self.keys:
            self.keys.add(key)
            self.inside.setdefault(key, _Level()).add(rest)

    def unknown(self, value: dict[str, Any]) -> dict[str, Any]:
        found = {}
        if not value.keys() <= self.keys:
            found = {key: inner for key, inner in value.items() if key not in self.keys and inner is not None}
        for key, level in self.inside.items():
            inner = value.get(key)
            if isinstance(inner, dict) and (rest := level.unknown(inner)):
                found[key] = rest
        return found


def decide(policy: str, mapping: Mapping, values: Sequence[Any]) -> Decision:
    """The decision for a batch of decoded records under a policy."""
    check_one_of("drift policy", policy, POLICIES)
    if policy == "ignore":
        return NoDrift()
    known = KnownFields(mapping)
    unknown = {row: found for row, value in enumerate(values) if (found := known.unknown(value))}
    if not unknown:
        return NoDrift()
    if policy == "add_column":
        return _add_columns(mapping, list(unknown.values()))
    if policy == "overflow":
        return Overflow({row: text_of(found) for row, found in unknown.items()})
    if policy == "dlq":
        return DivertToDlq([(row, _refused(found)) for row, found in unknown.items()])
    return _stop(list(unknown.values()), "fields that are not in the mapping")


def _refused(found: dict[str, Any]) -> RejectedRecord:
    return RejectedRecord(
        tuple(ValueRejection("", abbreviated({key: found[key]}), "", "not in the mapping") for key in found)
    )


def _stop(unknown: list[dict[str, Any]], reason: str) -> StopPipeline:
    fields = sorted({key for found in unknown for key in found})
    return StopPipeline(tuple(fields[:FIELDS_SHOWN_MAX]), reason)


def _add_columns(mapping: Mapping, unknown: list[dict[str, Any]]) -> Decision:
    """Columns for the unknown fields, all nullable: existing rows have no value there."""
    try:
        proposal = infer(unknown)
    except InvalidError as error:
        return _stop(unknown, f"no column can be inferred: {error}")
    if proposal.left_out:
        return _stop(unknown, "no column can be inferred: " + "; ".join(proposal.left_out[:3]))
    count = len(proposal.mapping.columns)
    if count > NEW_COLUMNS_MAX or count + len(mapping.columns) > COLUMNS_MAX:
        return _stop(
            unknown,
            f"{count} new fields exceed the limit of {NEW_COLUMNS_MAX} per batch, or of {COLUMNS_MAX} columns in all",
        )
    names = ColumnNames([column.column for column in mapping.columns])
    added = tuple(_added(column, names) for column in proposal.mapping.columns)
    return AddColumns(added, Mapping((*mapping.columns, *added), mapping.version + 1, mapping.ignored))


def _added(column: Column, names: ColumnNames) -> Column:
    kind = column.kind
    empty = isinstance(kind, NO_NULL)
    name = names.add(parse_path(column.field_path))
    return make_column(column.field_path, name, nullable(kind), when_null="default" if empty else "refuse")
