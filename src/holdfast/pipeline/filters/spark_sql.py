"""A filter as a condition of Spark SQL, for projects that are exported. What Spark would decide otherwise is not translated.

Records are in the columns of `format("holdfast")`, and `record` is their value as a variant. Nulls mean the same in both languages.
"""

from typing import Final

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
)

RECORD: Final = "record"
_TEXT, _NUMBER, _BOOL = "string", "double", "boolean"
_ROOTS: Final = {
    "key": (_TEXT, "CAST(key AS STRING)"),
    "topic": (_TEXT, "topic"),
    "partition": (_NUMBER, "partition"),
    "offset": (_NUMBER, "offset"),
    "timestamp": (_NUMBER, "unix_millis(timestamp)"),
}
_TEXT_FUNCTIONS: Final = {"lower": "lower", "upper": "upper", "trim": "trim"}
_TEXT_CONDITIONS: Final = {"startsWith": "startswith", "endsWith": "endswith"}
_NUMBER_FUNCTIONS: Final = {"abs": "abs", "floor": "floor", "ceil": "ceil"}


class NotTranslatedError(Exception):
    """A part of a filter that has no equal in Spark SQL: its text."""


def filter_sql(node: Node) -> str:
    """The condition. `NotTranslatedError`."""
    match node:
        case BooleanOperation(operator, parts):
            return f" {operator.upper()} ".join(f"({filter_sql(part)})" for part in parts)
        case Not(of):
            return f"NOT ({filter_sql(of)})"
        case IsNull(Field() as of, negated):
            return f"{_field(of, _TEXT)} IS {'NOT ' if negated else ''}NULL"
        case FunctionCall("exists" | "has", (Field() as of,)):
            return f"{_field(of, _TEXT)} IS NOT NULL"
        case FunctionCall(name, (text, part)) if name in _TEXT_CONDITIONS:
            return f"{_TEXT_CONDITIONS[name]}({_value(text, _TEXT)}, {_value(part, _TEXT)})"
        case Comparison("=", left, Literal(None)):
            return filter_sql(IsNull(left))
        case Comparison("!=", left, Literal(None)):
            return filter_sql(IsNull(left, negated=True))
        case Comparison(operator, left, right):
            kind = _kind(left) or _kind(right)
            if kind is None or {_kind(left), _kind(right)} - {None, kind}:
                raise NotTranslatedError(str(node))
            return f"{_value(left, kind)} {operator} {_value(right, kind)}"
        case Membership(item, ListLiteral(items), negated) if items:
            kind = _kind(items[0])
            if kind is None or any(_kind(each) != kind for each in items):
                raise NotTranslatedError(str(node))
            listed = ", ".join(_value(each, kind) for each in items)
            return f"{_value(item, kind)} {'NOT ' if negated else ''}IN ({listed})"
        case Field():
            return _value(node, _BOOL)
        case Literal(bool() as truth):
            return str(truth).lower()
    raise NotTranslatedError(str(node))


def _kind(node: Node) -> str | None:
    """The type of a value, if it is known without a record."""
    match node:
        case Literal(bool()):
            return _BOOL
        case Literal(int() | float()) | Arithmetic() | Negation():
            return _NUMBER
        case Literal(str()):
            return _TEXT
        case Field(root) if root in _ROOTS:
            return _ROOTS[root][0]
        case FunctionCall(name):
            if name == "number" or name in _NUMBER_FUNCTIONS:
                return _NUMBER
            return _TEXT if name == "text" or name in _TEXT_FUNCTIONS else None
    return None


def _value(node: Node, kind: str) -> str:
    match node:
        case Literal(value) if value is not None and _kind(node) == kind:
            return sql_text(value) if isinstance(value, str) else str(node)
        case Field():
            return _field(node, kind)
        case FunctionCall("number", (of,)) if kind == _NUMBER:
            return _value(of, _NUMBER)
        case FunctionCall("text", (of,)) if kind == _TEXT:
            return _value(of, _TEXT)
        case FunctionCall(name, (of,)) if kind == _TEXT and name in _TEXT_FUNCTIONS:
            return f"{_TEXT_FUNCTIONS[name]}({_value(of, _TEXT)})"
        case FunctionCall(name, (of,)) if kind == _NUMBER and name in _NUMBER_FUNCTIONS:
            return f"{_NUMBER_FUNCTIONS[name]}({_value(of, _NUMBER)})"
        case Negation(of) if kind == _NUMBER:
            return f"-({_value(of, _NUMBER)})"
        case Arithmetic(first, rest) if kind == _NUMBER and all(operator in "+-*" for operator, _ in rest):
            tail = "".join(f" {operator} {_value(part, _NUMBER)}" for operator, part in rest)
            return f"({_value(first, _NUMBER)}{tail})"
    raise NotTranslatedError(str(node))


def _field(node: Field, kind: str) -> str:
    if node.root in _ROOTS:
        own, expression = _ROOTS[node.root]
        if own != kind and kind != _TEXT:
            raise NotTranslatedError(str(node))
        return expression
    if node.root != "fields":
        raise NotTranslatedError(str(node))
    return variant_field(node.steps, kind)


def variant_field(steps: tuple[str | int, ...], kind: str) -> str:
    """A field of the record, in one of Spark's types; null if it is absent or of another."""
    path = "$" + "".join(f"[{step}]" if isinstance(step, int) else _key(step) for step in steps)
    return f"try_variant_get({RECORD}, {sql_text(path)}, {sql_text(kind)})"


def _key(key: str) -> str:
    if '"' in key or "\\" in key:
        raise NotTranslatedError(key)
    return f".{key}" if key.isascii() and key.isidentifier() else f'["{key}"]'


def sql_text(text: str) -> str:
    """A text as a literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"'{escaped}'"
