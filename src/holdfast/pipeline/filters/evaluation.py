"""Evaluation of filters: true, false, null, or a failure with its reason.

The logic is SQL's: a comparison with null is null, `and` and `or` are three-valued, and only true keeps a record. A comparison of
values of different kinds is a failure of the record, which goes to the DLQ with the reason.

The one rule: evaluation terminates and never raises. The language has no loops; every operation is bounded by its operands.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from holdfast.pipeline.filters.functions import FUNCTIONS, TEXT_MAX, EvaluationError, bounded, kind_of, same
from holdfast.pipeline.filters.parser import parse
from holdfast.pipeline.filters.syntax_tree import (
    Arithmetic,
    BooleanOperation,
    Comparison,
    Field,
    FunctionCall,
    IsNull,
    ListLiteral,
    Literal,
    Membership,
    Negation,
    Node,
    Not,
    SourcePosition,
)
from holdfast.pipeline.model.field_paths import follow
from holdfast.pipeline.model.records import SourceRecord, SourceRecords

Run: TypeAlias = Callable[[SourceRecord], Any]

_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ORDERED: Final = ("number", "text")


@dataclass(frozen=True, slots=True)
class EvaluationFailure:
    """The filter could not be evaluated for a record."""

    reason: str


@dataclass(frozen=True, slots=True)
class Filter:
    """A compiled filter. It does not pickle: send its text, and compile it where it is used."""

    node: Node
    run: Run

    def __call__(self, record: SourceRecord) -> bool | EvaluationFailure:
        """Whether to keep a record."""
        try:
            value = self.run(record)
        except EvaluationError as error:
            return EvaluationFailure(str(error))
        except (RecursionError, OverflowError) as error:
            return EvaluationFailure(f"a value too deep or too large ({type(error).__name__})")
        if value is None or isinstance(value, bool):
            return value is True
        return EvaluationFailure(f"the filter is {kind_of(value)}, not true or false")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records are kept, dropped, and failed."""

    kept: Sequence[int]
    dropped: Sequence[int]
    failed: Sequence[tuple[int, EvaluationFailure]]


def make_filter(text: str) -> Filter:
    """Parse and compile a filter. `FilterError`."""
    node = parse(text)
    return Filter(node, compiled(node))


def select(condition: Filter, records: SourceRecords) -> Selection:
    """Apply a filter to a batch."""
    kept, dropped, failed = list[int](), list[int](), list[tuple[int, EvaluationFailure]]()
    for row in range(len(records)):
        answer = condition(records.at(row))
        if answer is True:
            kept.append(row)
        elif answer is False:
            dropped.append(row)
        else:
            failed.append((row, answer))
    return Selection(kept, dropped, failed)


def compiled(node: Node) -> Run:
    """A node as a function of a record."""
    match node:
        case Literal(value):
            return lambda record: value
        case Field(root, steps):
            return _field(root, steps)
        case ListLiteral(items):
            runs = [compiled(item) for item in items]
            return lambda record: [run(record) for run in runs]
        case FunctionCall(name, arguments, position):
            return _call(name, [compiled(argument) for argument in arguments], position)
        case Negation(of, position):
            return _minus(compiled(of), position)
        case Arithmetic(first, rest, position):
            return _chain(compiled(first), [(sign, compiled(part)) for sign, part in rest], position)
        case Comparison(sign, left, right, position):
            return _compare(sign, compiled(left), compiled(right), position)
        case Membership(item, among, negated, position):
            return _in(compiled(item), compiled(among), negated, position)
        case IsNull(of, negated):
            run = compiled(of)
            return lambda record: (run(record) is None) is not negated
        case Not(of, position):
            return _not(compiled(of), position)
        case BooleanOperation(word, parts):
            return _both(word == "or", [(compiled(part), part.position) for part in parts])


def _field(root: str, steps: tuple[str | int, ...]) -> Run:
    if root == "headers" and steps:
        first, rest = steps[0], steps[1:]
        return lambda record: follow(rest, record.headers.get(first)) if isinstance(first, str) else None
    if root == "fields" and len(steps) == 1 and isinstance(steps[0], str):
        key = steps[0]
        return lambda record: record.fields.get(key) if type(record.fields) is dict else None
    return lambda record: follow(steps, getattr(record, root))


def _at(position: SourcePosition, why: str) -> EvaluationError:
    return EvaluationError(f"{why} (at {position})")


def _call(name: str, arguments: list[Run], position: SourcePosition) -> Run:
    function = FUNCTIONS[name]

    def run(record: SourceRecord) -> Any:
        values = [argument(record) for argument in arguments]
        if not function.takes_null and None in values:
            return None
        try:
            return function.run(*values)
        except EvaluationError as error:
            raise _at(position, str(error)) from None

    return run


def _minus(of: Run, position: SourcePosition) -> Run:
    def run(record: SourceRecord) -> Any:
        value = of(record)
        if value is None:
            return None
        if kind_of(value) != "number":
            raise _at(position, f"- takes a number, not {kind_of(value)}")
        return -value

    return run


def _chain(first: Run, rest: list[tuple[str, Run]], position: SourcePosition) -> Run:
    def run(record: SourceRecord) -> Any:
        value = first(record)
        for sign, part in rest:
            other = part(record)
            if value is None or other is None:
                value = None
                continue
            try:
                value = _calculated(sign, value, other)
            except EvaluationError as error:
                raise _at(position, str(error)) from None
        return value

    return run


def _calculated(sign: str, one: Any, other: Any) -> Any:
    kinds = kind_of(one), kind_of(other)
    if kinds == ("text", "text") and sign == "+":
        if len(one) + len(other) > TEXT_MAX:
            raise EvaluationError(f"a text of more than {TEXT_MAX} characters")
        return one + other
    if kinds != ("number", "number"):
        raise EvaluationError(f"{sign} takes two numbers, not {kinds[0]} and {kinds[1]}")
    try:
        match sign:
            case "+":
                return bounded(one + other)
            case "-":
                return bounded(one - other)
            case "*":
                return bounded(bounded(one) * bounded(other))
            case "/":
                return one / other
        left = abs(one) % abs(other)  # the sign is that of the left side, as in SQL
        return -left if one < 0 else left
    except ZeroDivisionError:
        raise EvaluationError(f"{sign} by zero") from None
    except OverflowError:
        raise EvaluationError(f"{sign} gives a number out of range") from None


def _compare(sign: str, left: Run, right: Run, position: SourcePosition) -> Run:
    test, equality = _COMPARE[sign], sign in ("=", "!=")

    def run(record: SourceRecord) -> Any:
        one, other = left(record), right(record)
        if one is None or other is None:
            return None
        if type(one) is not type(other) or not isinstance(one, str):
            kinds = kind_of(one), kind_of(other)
            if kinds[0] != kinds[1] or not (equality or kinds[0] in _ORDERED):
                raise _at(position, f"{sign} cannot compare {kinds[0]} with {kinds[1]}")
        return test(one, other)

    return run


def _in(item: Run, among: Run, negated: bool, position: SourcePosition) -> Run:
    def run(record: SourceRecord) -> Any:
        value, values = item(record), among(record)
        if value is None or values is None:
            return None
        if not isinstance(values, list | dict):
            raise _at(position, f"in takes a list, array or object, not {kind_of(values)}")
        return any(same(value, each) for each in values) is not negated

    return run


def _truth(value: Any, position: SourcePosition) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise _at(position, f"expected true or false, not {kind_of(value)}")


def _not(of: Run, position: SourcePosition) -> Run:
    def run(record: SourceRecord) -> Any:
        value = _truth(of(record), position)
        return None if value is None else not value

    return run


def _both(decisive: bool, parts: list[tuple[Run, SourcePosition]]) -> Run:
    """`and` ends at the first false, `or` at the first true; otherwise a null makes the result null."""

    def run(record: SourceRecord) -> Any:
        answer: bool | None = not decisive
        for part, position in parts:
            value = _truth(part(record), position)
            if value is decisive:
                return decisive
            if value is None:
                answer = None
        return answer

    return run
