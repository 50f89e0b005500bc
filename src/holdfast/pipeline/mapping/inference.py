"""Inference: from a sample of records to a proposed mapping, sorting key and table name, with the evidence for each column.

The one rule: same sample, same proposal, and every record of the sample fits it. A user or a policy accepts the proposal.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.clickhouse.quoting import NAME_BYTES_MAX
from holdfast.clickhouse.types import NO_NULL, DateTime, DateTime64, Scalar, Type, is_sortable, nullable, unwrap
from holdfast.pipeline.mapping.field_stats import FieldStats, collect_stats
from holdfast.pipeline.mapping.type_inference import guess_type, keys_are_data, snake
from holdfast.pipeline.model.column_mapping import COLUMNS_MAX, RESERVED, Column, Mapping, make_column
from holdfast.pipeline.model.field_paths import STEPS_MAX, TEXT_MAX, Path
from holdfast.pipeline.model.records import abbreviated
from holdfast.vocabulary.errors import InvalidError

FLATTEN_MAX: Final = 8
"""Objects nested deeper than this are stored as JSON."""
ORDER_BY_IDS_MAX: Final = 3
PROVENANCE_KEY: Final = ("_topic", "_partition", "_offset")

_TIME_NAMES: Final = ("event_time", "timestamp", "ts", "time", "occurred_at", "created_at", "date")
_ID_NAME: Final = re.compile(r"(^|_)(id|uuid|guid|key)$")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why a column is proposed as it is."""

    column: str
    type: str
    why: str
    seen: int
    """Records with a value."""
    nulls: int
    absent: int
    distinct: int | None
    """None if there were too many, or the values are not counted."""
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """The result of inference."""

    mapping: Mapping
    order_by: tuple[str, ...]
    table: str
    evidence: tuple[Evidence, ...]
    records: int
    not_objects: int
    left_out: tuple[str, ...]
    """Fields without a column, and why: a key that no path can have, or too many columns."""


def infer(values: Sequence[Any], topic: str = "") -> Proposal:
    """Propose a mapping for decoded records. A sample without a single field is an `InvalidError`."""
    objects = [value for value in values if isinstance(value, dict)]
    left_out: list[str] = []
    leaves = list(_leaves(collect_stats(objects), (), left_out))
    if not leaves:
        raise InvalidError("sample", f"{len(values)} records", "at least one JSON object with a field")
    if len(leaves) > COLUMNS_MAX:
        left_out += [f"{path}: more than {COLUMNS_MAX} columns" for path, _ in leaves[COLUMNS_MAX:]]
    names = ColumnNames()
    columns, evidence = [], []
    for path, seen in leaves[:COLUMNS_MAX]:
        column, found = _column(path, seen, names, len(objects))
        columns.append(column)
        evidence.append(found)
    return Proposal(
        mapping=Mapping(tuple(columns)),
        order_by=propose_order(columns),
        table=table_name(topic),
        evidence=tuple(evidence),
        records=len(values),
        not_objects=len(values) - len(objects),
        left_out=tuple(left_out),
    )


def _leaves(seen: FieldStats, steps: tuple[str, ...], left_out: list[str]) -> Iterator[tuple[Path, FieldStats]]:
    """Every field that becomes a column, in order of first occurrence."""
    for key, inner in seen.fields.items():
        path = Path((*steps, key))
        if not _addressable(key) or len(str(path)) > TEXT_MAX:
            left_out.append(f"{'.'.join(steps) or 'the record'}: the key {abbreviated(key)} cannot be part of a path")
        elif _is_flattened(inner, len(steps) + 1):
            yield from _leaves(inner, (*steps, key), left_out)
        else:
            yield path, inner


def _addressable(key: str) -> bool:
    return bool(key) and not any("\ud800" <= character <= "\udfff" for character in key)


def _is_flattened(seen: FieldStats, depth: int) -> bool:
    """Whether the fields of an object become columns. One with a key that no path can have stays whole."""
    if set(seen.kinds) != {"object"} or not seen.fields or depth >= min(FLATTEN_MAX, STEPS_MAX):
        return False
    return not keys_are_data(seen) and all(map(_addressable, seen.fields))


def _column(path: Path, seen: FieldStats, names: "ColumnNames", records: int) -> tuple[Column, Evidence]:
    last = path.steps[-1]
    found = guess_type(last if isinstance(last, str) else "", seen)
    missing = seen.values < records
    kind: Type = nullable(found.type) if missing else found.type
    empty = missing and isinstance(kind, NO_NULL)
    column = make_column(str(path), names.add(path), kind, when_null="default" if empty else "refuse")
    return column, Evidence(
        column=column.column,
        type=str(kind),
        why=found.why + _about_null(seen, records),
        seen=seen.values,
        nulls=seen.nulls,
        absent=records - seen.times,
        distinct=len(seen.distinct) if seen.distinct and set(seen.kinds) - {"bool", "float"} else None,
        examples=tuple(abbreviated(example) for example in seen.examples),
    )


def _about_null(seen: FieldStats, records: int) -> str:
    parts = []
    if seen.nulls:
        parts.append(f"null in {seen.nulls}")
    if absent := records - seen.times:
        parts.append(f"absent from {absent}")
    return f"; {' and '.join(parts)} of {records} records" if parts else ""


class ColumnNames:
    """Unique column names for paths."""

    def __init__(self, taken: Sequence[str] = ()) -> None:
        self._taken = {name.lower() for name in (*taken, *RESERVED)}

    def add(self, path: Path) -> str:
        """The path with everything but letters and digits as `_`; a number is appended if that is taken."""
        plain = re.sub(r"\W+", "_", "_".join(str(step) for step in path.steps))
        plain = plain.encode()[: NAME_BYTES_MAX - 8].decode(errors="ignore")
        if not plain.strip("_"):
            plain = "field"
        elif plain[0].isdigit():
            plain = f"_{plain}"
        name, number = plain, 2
        while name.lower() in self._taken:
            name, number = f"{plain}_{number}", number + 1
        self._taken.add(name.lower())
        return name


def propose_order(columns: Sequence[Column]) -> tuple[str, ...]:
    """A sorting key: the time, then identifiers; without either, the provenance. Never a Nullable."""
    fit = [column for column in columns if is_sortable(column.kind)]
    times = [
        column.column for column in fit if isinstance(unwrap(column.kind), DateTime | DateTime64) or _is_date(column)
    ]
    times.sort(key=lambda name: _TIME_NAMES.index(snake(name)) if snake(name) in _TIME_NAMES else len(_TIME_NAMES))
    ids = [column.column for column in fit if _ID_NAME.search(snake(column.column)) and column.column not in times]
    ids.sort(key=lambda name: (snake(name) not in ("id", "uuid"), name.count("_")))
    return (*times[:1], *ids[:ORDER_BY_IDS_MAX]) or PROVENANCE_KEY


def _is_date(column: Column) -> bool:
    return unwrap(column.kind) in (Scalar("Date"), Scalar("Date32"))


def table_name(topic: str) -> str:
    """A table name for a topic."""
    name = re.sub(r"[^A-Za-z0-9_]+", "_", topic).strip("_")[:NAME_BYTES_MAX]
    return f"t_{name}" if name[:1].isdigit() else name or "events"
