"""A pipeline's filter as it is stored, `{enabled, language, expression}`, and what it does to a sample.

The one rule: a stored filter can be run. Whoever saves one reads it with `read_filters`, which refuses what does not parse.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from holdfast.pipeline.filters.evaluation import EvaluationFailure, Filter, compiled, make_filter
from holdfast.pipeline.filters.syntax_tree import BooleanOperation, Field, Node, children
from holdfast.pipeline.mapping.coercion import shown
from holdfast.pipeline.model.field_paths import follow
from holdfast.pipeline.model.records import SourceRecord, SourceRecords
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_one_of

LANGUAGES: Final = ("holdfast", "cel")
FIELDS_SHOWN_MAX: Final = 5


class FiltersConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether records are filtered, and how. `cel` is read as the part of CEL that the language has."""

    enabled: bool = False
    language: str = "holdfast"
    expression: str = ""

    def condition(self) -> Filter | None:
        """The filter to run; None keeps everything."""
        return make_filter(self.expression) if self.enabled and self.expression.strip() else None


def read_filters(given: bytes | str | dict[str, Any]) -> FiltersConfig:
    """A filter from its JSON (or the same decoded). One that does not parse is a `FilterError`, even if it is not enabled."""
    try:
        decoded = msgspec.json.decode(given) if isinstance(given, bytes | str) else given
        config = msgspec.convert(decoded, FiltersConfig)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidError("filters-config", str(given)[:100], str(error)) from None
    language = config.language.lower() or "holdfast"
    check_one_of("filters-config: language", language, LANGUAGES)
    if config.expression.strip():
        make_filter(config.expression)
    return FiltersConfig(config.enabled, language, config.expression)


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one record of a sample, and why."""

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
    """Run a filter over a sample and say for each record what became of it. A `FilterError` if it does not parse."""
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
    """The first condition that was not true, and the values it saw."""
    parts = node.parts if isinstance(node, BooleanOperation) and node.operator == "and" else (node,)
    for part in parts:
        answer = Filter(part, compiled(part))(record)
        if answer is not True:
            values = [f"{field} is {shown(_value(field, record))}" for field in dict.fromkeys(_fields(part))]
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
