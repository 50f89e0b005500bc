"""A filter tried on a sample: for each record whether it is kept, dropped or an error, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast.pipeline.filters.evaluation import EvaluationFailure, Filter, compiled, make_filter
from holdfast.pipeline.filters.syntax_tree import BooleanOperation, Field, Node, children
from holdfast.pipeline.model.field_paths import follow
from holdfast.pipeline.model.records import SourceRecord, SourceRecords, abbreviated

FIELDS_SHOWN_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Tried:
    """The outcome for one record of a sample, and why."""

    row: int
    verdict: str
    """kept, dropped or error."""
    reason: str


@dataclass(frozen=True, slots=True)
class Trial:
    """A filter tried on a sample."""

    kept: int
    dropped: int
    errors: int
    rows: tuple[Tried, ...]


def try_on(expression: str, records: SourceRecords) -> Trial:
    """Run a filter over a sample. `FilterError` if it does not parse."""
    condition = make_filter(expression)
    rows = tuple(_tried(condition, row, records.at(row)) for row in range(len(records)))
    verdicts = [tried.verdict for tried in rows]
    return Trial(verdicts.count("kept"), verdicts.count("dropped"), verdicts.count("error"), rows)


def _tried(condition: Filter, row: int, record: SourceRecord) -> Tried:
    answer = condition(record)
    if isinstance(answer, EvaluationFailure):
        return Tried(row, "error", answer.reason)
    return Tried(row, "kept", "") if answer else Tried(row, "dropped", why_dropped(condition.node, record))


def why_dropped(node: Node, record: SourceRecord) -> str:
    """The first condition that was not true, and the values of its fields."""
    parts = node.parts if isinstance(node, BooleanOperation) and node.operator == "and" else (node,)
    for part in parts:
        answer = Filter(part, compiled(part))(record)
        if answer is not True:
            values = [f"{field} is {abbreviated(_value(field, record))}" for field in dict.fromkeys(_fields(part))]
            seen = ", ".join(values[:FIELDS_SHOWN_MAX])
            return f"not true: {part}" + (f" ({seen})" if seen else "")
    return f"not true: {node}"


def _fields(node: Node) -> Iterator[Field]:
    if isinstance(node, Field):
        yield node
    for child in children(node):
        yield from _fields(child)


def _value(field: Field, record: SourceRecord) -> Any:
    if field.root == "headers" and field.steps:
        return record.headers.get(str(field.steps[0]))
    return follow(field.steps, getattr(record, field.root))
