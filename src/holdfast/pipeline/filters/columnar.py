"""Filters over Arrow columns: what `evaluation` decides record by record, for a batch at once. Needs `pyarrow`.

The one rule: the outcome equals that of `evaluation` on every record, none of which fails; where that is not certain there is none,
and the records are filtered one by one. So fields are compared with literals of one kind, and by operations that Arrow and Python
agree on; everything else is left to `evaluation`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, Literal, TypeAlias

from holdfast.pipeline.filters import syntax_tree as tree

Kind: TypeAlias = Literal["number", "text", "bool", "any"]
Steps: TypeAlias = tuple[str, ...]
ColumnAt: TypeAlias = Callable[[Steps], Any]
Mask: TypeAlias = Callable[[ColumnAt], Any]

_COMPARE: Final = {
    "=": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_TEXT_TESTS: Final = {"startsWith": "starts_with", "endsWith": "ends_with", "contains": "match_substring"}
_EXACT_MAX: Final = 2**53
"""Up to here every whole number is a Float64."""


class NotColumnarError(Exception):
    """This filter, or this batch, is filtered record by record."""


@dataclass(frozen=True, slots=True)
class ColumnarFilter:
    """A filter as a function of columns. `fields`: those of the record that it uses, and what they must be."""

    fields: dict[Steps, Kind]
    mask: Mask

    def kept(self, column_at: ColumnAt) -> Any | None:
        """Which records are kept, as booleans without nulls; None: filter them one by one."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            return pc.fill_null(self.mask(column_at), False)
        except (NotColumnarError, pa.ArrowException):
            return None


def columnar(node: tree.Node) -> ColumnarFilter | None:
    """The filter over columns; None: it has none."""
    compiler = _Compiler()
    try:
        return ColumnarFilter(compiler.fields, compiler.truth(node))
    except NotColumnarError:
        return None


class _Compiler:
    """Collects the fields of one filter."""

    def __init__(self) -> None:
        self.fields: dict[Steps, Kind] = {}

    def truth(self, node: tree.Node) -> Mask:
        """A node that is true, false or null."""
        match node:
            case tree.Field():
                return self._column(node, "bool")
            case tree.Comparison(sign, tree.Field() as field, tree.Literal(value)):
                return self._comparison(sign, field, value)
            case tree.Comparison(sign, tree.Literal(value), tree.Field() as field):
                return self._comparison(_MIRRORED.get(sign, sign), field, value)
            case tree.Membership(tree.Field() as field, tree.ListLiteral(items), negated):
                return self._membership(field, items, negated)
            case tree.FunctionCall(name, (tree.Field() as field, tree.Literal(str() as part))) if name in _TEXT_TESTS:
                return self._text_test(_TEXT_TESTS[name], field, part)
            case tree.IsNull(tree.Field() as field, negated):
                return self._null_test(field, negated)
            case tree.Not(of):
                inner = self.truth(of)
                return lambda at: _call("invert", inner(at))
            case tree.BooleanOperation(word, parts):
                masks = [self.truth(part) for part in parts]
                name = "or_kleene" if word == "or" else "and_kleene"
                return lambda at: reduce(lambda one, other: _call(name, one, other), (mask(at) for mask in masks))
        raise NotColumnarError

    def _comparison(self, sign: str, field: tree.Field, value: Any) -> Mask:
        kind = _kind_of(value)
        if kind == "bool" and sign not in ("=", "!="):
            raise NotColumnarError
        column, name = self._column(field, kind), _COMPARE[sign]

        def mask(at: ColumnAt) -> Any:
            found = column(at)
            return _call(name, found, _comparable(found, value))

        return mask

    def _membership(self, field: tree.Field, items: tuple[tree.Node, ...], negated: bool) -> Mask:
        values = [item.value if isinstance(item, tree.Literal) else None for item in items]
        kinds = {_kind_of(value) for value in values}
        if len(kinds) != 1:
            raise NotColumnarError
        column = self._column(field, kinds.pop())

        def mask(at: ColumnAt) -> Any:
            found = column(at)
            tests = [_call("equal", found, _comparable(found, value)) for value in values]
            among = reduce(lambda one, other: _call("or_kleene", one, other), tests)
            return _call("invert", among) if negated else among

        return mask

    def _text_test(self, name: str, field: tree.Field, part: str) -> Mask:
        column = self._column(field, "text")
        return lambda at: _call(name, column(at), pattern=part)

    def _null_test(self, field: tree.Field, negated: bool) -> Mask:
        column, name = self._column(field, "any"), "is_valid" if negated else "is_null"
        return lambda at: _call(name, column(at))

    def _column(self, field: tree.Field, kind: Kind) -> Mask:
        steps = tuple(step for step in field.steps if isinstance(step, str))
        if field.root != "fields" or len(steps) != len(field.steps) or not steps:
            raise NotColumnarError
        known = self.fields.get(steps, "any")
        if "any" not in (known, kind) and known != kind:
            raise NotColumnarError  # it fails for some records, or for all
        self.fields[steps] = kind if known == "any" else known

        def column(at: ColumnAt) -> Any:
            found = at(steps)
            if not _is_of(found, kind):
                raise NotColumnarError
            return found

        return column


def _kind_of(value: Any) -> Kind:
    match value:
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case str():
            return "text"
    raise NotColumnarError


def _is_of(column: Any, kind: Kind) -> bool:
    """Whether every value of the column is of the kind, and is the very value that the record has."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind == "number" and pa.types.is_floating(column.type):
        # A larger one may be a whole number of the record that was rounded.
        within = pc.all(pc.less(pc.abs(column), float(_EXACT_MAX))).as_py()
        return within is not False
    tests = {"number": pa.types.is_integer, "text": pa.types.is_string, "bool": pa.types.is_boolean}
    return kind == "any" or bool(tests[kind](column.type))


def _comparable(column: Any, value: Any) -> Any:
    """The literal as a scalar of the column's type, if it is the same value there."""
    import pyarrow as pa

    if isinstance(value, int | float) and not isinstance(value, bool):
        if abs(value) > _EXACT_MAX or (pa.types.is_integer(column.type) and value != int(value)):
            raise NotColumnarError
        value = float(value) if pa.types.is_floating(column.type) else int(value)
    try:
        return pa.scalar(value, column.type)
    except (pa.ArrowException, OverflowError, TypeError, UnicodeEncodeError):
        raise NotColumnarError from None


def _call(name: str, *arguments: Any, **options: Any) -> Any:
    import pyarrow.compute as pc

    return getattr(pc, name)(*arguments, **options)
