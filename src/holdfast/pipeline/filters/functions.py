"""The functions of the filter language. The number of arguments is checked when a filter is parsed, their kinds when it runs.

The one rule: a function is pure, takes time bounded by the size of its arguments, and raises nothing but `EvaluationError`. Unless
it `takes_null`, a null argument makes the result null.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from holdfast.pipeline.filters.lexer import FilterError
from holdfast.pipeline.filters.patterns import PatternError, compiled_pattern, pattern_matches
from holdfast.pipeline.filters.syntax_tree import FunctionCall, Literal
from holdfast.pipeline.model.timestamps import epoch_ns, parse_iso_ns

TEXT_MAX: Final = 4_000_000
NUMBER_BITS_MAX: Final = 128


class EvaluationError(Exception):
    """The filter cannot be evaluated for a record: why."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function, and how many arguments it takes."""

    least: int
    most: int | None
    run: Callable[..., Any]
    takes_null: bool = False


def kind_of(value: Any) -> str:
    """The kind of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "text"
        case list():
            return "array"
    return "object"


def need(what: str, value: Any, *kinds: str) -> Any:
    """The value, if it is of one of these kinds."""
    if kind_of(value) not in kinds:
        raise EvaluationError(f"{what} takes {' or '.join(kinds)}, not {kind_of(value)}")
    return value


def bounded(number: int | float) -> int | float:
    """A number, if it fits into `NUMBER_BITS_MAX`."""
    if isinstance(number, int) and number.bit_length() > NUMBER_BITS_MAX:
        raise EvaluationError(f"a number of more than {NUMBER_BITS_MAX} bits")
    return number


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal: of one kind and of one value."""
    return kind_of(one) == kind_of(other) and bool(one == other)


def _text(name: str, change: Callable[[str], Any]) -> Function:
    return Function(1, 1, lambda value: change(need(name, value, "text")))


def _two_texts(name: str, test: Callable[[str, str], bool]) -> Function:
    return Function(2, 2, lambda text, part: test(need(name, text, "text"), need(name, part, "text")))


def _length(value: Any) -> int:
    return len(need("length", value, "text", "array", "object"))


def _contains(value: Any, part: Any) -> bool:
    need("contains", value, "text", "array")
    if isinstance(value, str):
        return need("contains", part, "text") in value
    return any(same(each, part) for each in value)


def _matches(text: Any, pattern: Any) -> bool:
    need("matches", text, "text")
    if len(text) > TEXT_MAX:
        raise EvaluationError(f"matches takes at most {TEXT_MAX} characters")
    try:
        return pattern_matches(pattern, text)
    except UnicodeEncodeError:
        raise EvaluationError("matches takes Unicode text, not a lone surrogate") from None


def _whole(name: str, change: Callable[[float], int]) -> Function:
    def run(value: Any) -> int:
        number = need(name, value, "number")
        if not math.isfinite(number):
            raise EvaluationError(f"{name} takes a finite number")
        return change(number)

    return Function(1, 1, run)


def _number(value: Any) -> int | float:
    need("number", value, "number", "text")
    if not isinstance(value, str):
        return bounded(value)
    try:
        if len(value) > 40 or "_" in value:
            raise ValueError
        number = float(value)
        return int(value) if value.strip().lstrip("+-").isdigit() else number
    except ValueError:
        raise EvaluationError("number takes the text of a number") from None


def _string(value: Any) -> str:
    need("text", value, "text", "number", "bool")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(bounded(value)) if isinstance(value, int) else str(value)


def _time(value: Any) -> int:
    need("time", value, "text", "number")
    if isinstance(value, str):
        ns = parse_iso_ns(value)
        if ns is None:
            raise EvaluationError("time takes ISO 8601, such as 2026-11-15T08:30:00Z")
        return ns // 1_000_000
    if not math.isfinite(value):
        raise EvaluationError("time takes a finite number")
    return epoch_ns(bounded(value)) // 1_000_000


def _coalesce(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


_EXISTS: Final = Function(1, 1, lambda value: value is not None, takes_null=True)

FUNCTIONS: Final[dict[str, Function]] = {
    "lower": _text("lower", str.lower),
    "upper": _text("upper", str.upper),
    "trim": _text("trim", str.strip),
    "length": Function(1, 1, _length),
    "size": Function(1, 1, _length),
    "startsWith": _two_texts("startsWith", str.startswith),
    "endsWith": _two_texts("endsWith", str.endswith),
    "contains": Function(2, 2, _contains),
    "matches": Function(2, 2, _matches),
    "abs": Function(1, 1, lambda value: abs(need("abs", value, "number"))),
    "floor": _whole("floor", math.floor),
    "ceil": _whole("ceil", math.ceil),
    "round": _whole("round", round),
    "number": Function(1, 1, _number),
    "text": Function(1, 1, _string),
    "time": Function(1, 1, _time),
    "coalesce": Function(1, None, _coalesce, takes_null=True),
    "exists": _EXISTS,
    "has": _EXISTS,
    "typeOf": Function(1, 1, kind_of, takes_null=True),
}


def check_call(call: FunctionCall) -> None:
    """Reject a call with the wrong number of arguments or an invalid pattern. `FilterError`."""
    function, count = FUNCTIONS[call.name], len(call.arguments)
    if count < function.least or (function.most is not None and count > function.most):
        wanted = f"{function.least}" if function.most == function.least else f"{function.least} or more"
        raise FilterError(call.position, f"{count} arguments", f"{call.name} with {wanted}")
    if call.name == "matches":
        _check_pattern(call)


def _check_pattern(call: FunctionCall) -> None:
    pattern = call.arguments[1]
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        raise FilterError(pattern.position, str(pattern), "a pattern in quotes: it is checked before any record is")
    try:
        compiled_pattern(pattern.value)
    except PatternError as error:
        raise FilterError(pattern.position, str(pattern), f"a valid pattern: {error}") from None
