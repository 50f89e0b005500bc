"""Parser of filters, by recursive descent: one method per precedence. The grammar is in docs/pipelines.md.

The one rule: a parsed filter can be evaluated. Functions exist and have the right number of arguments, patterns compile, and the
limits on depth and size hold.
"""

from collections.abc import Callable
from typing import Final

from holdfast.pipeline.filters.functions import FUNCTIONS, check_call
from holdfast.pipeline.filters.lexer import FilterError, FilterToken, tokens
from holdfast.pipeline.filters.syntax_tree import (
    ROOTS,
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
    depth_of,
)

DEPTH_MAX: Final = 30
TREE_DEPTH_MAX: Final = 60
NODES_MAX: Final = 2_000
INDEX_MAX: Final = 1_000_000

_COMPARISONS: Final = ("=", "!=", "<", "<=", ">", ">=")


def parse(text: str) -> Node:
    """Parse a filter. `FilterError`."""
    return _Parser(tokens(text)).whole()


class _Parser:
    def __init__(self, found: list[FilterToken]) -> None:
        self._tokens, self._at, self._depth, self._nodes = found, 0, 0, 0

    def whole(self) -> Node:
        node = self._any()
        if self._now.kind != "end":
            raise self._expected("an operator or the end")
        if depth_of(node) > TREE_DEPTH_MAX:
            raise FilterError(node.position, "more", f"operators nested at most {TREE_DEPTH_MAX} deep")
        return node

    @property
    def _now(self) -> FilterToken:
        return self._tokens[self._at]

    def _expected(self, what: str) -> FilterError:
        return FilterError(self._now.position, str(self._now), what)

    def _next(self) -> FilterToken:
        token = self._now
        self._at += 1
        self._nodes += 1
        if self._nodes > NODES_MAX:
            raise FilterError(token.position, "more", f"at most {NODES_MAX} words and signs")
        return token

    def _is(self, *values: str) -> bool:
        return self._now.kind in ("word", "sign") and self._now.value in values

    def _take(self, *values: str) -> bool:
        if self._is(*values):
            self._next()
            return True
        return False

    def _need(self, value: str) -> None:
        if not self._take(value):
            raise self._expected(f"'{value}'")

    def _deeper(self, read: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise FilterError(self._now.position, "more", f"expressions nested at most {DEPTH_MAX} deep")
        node = read()
        self._depth -= 1
        return node

    def _any(self) -> Node:
        return self._joined("or", lambda: self._joined("and", self._not))

    def _joined(self, operator: str, read: Callable[[], Node]) -> Node:
        position, parts = self._now.position, [read()]
        while self._take(operator):
            parts.append(read())
        return parts[0] if len(parts) == 1 else BooleanOperation(operator, tuple(parts), position)

    def _not(self) -> Node:
        position = self._now.position
        if self._take("not"):
            return Not(self._deeper(self._not), position)
        return self._comparison()

    def _comparison(self) -> Node:
        left, position = self._sum(), self._now.position
        if self._is(*_COMPARISONS):
            operator = str(self._next().value)
            return self._compared(operator, left, self._sum(), self._tokens[self._at - 1])
        if self._take("is"):
            negated = self._take("not")
            self._need("null")
            return IsNull(left, negated, position)
        if self._is("not") and self._tokens[self._at + 1].value == "in":
            self._next(), self._next()
            return Membership(left, self._among(), True, position)
        if self._take("in"):
            return Membership(left, self._among(), False, position)
        return left

    def _compared(self, operator: str, left: Node, right: Node, last: FilterToken) -> Node:
        """`x = null` is read as `x is null`; other comparisons with null are errors."""
        for one, other in ((left, right), (right, left)):
            if other == Literal(None):
                if operator not in ("=", "!="):
                    raise FilterError(last.position, "null", "a value: nothing is greater or less than null")
                return IsNull(one, operator == "!=", left.position)
        return Comparison(operator, left, right, left.position)

    def _among(self) -> Node:
        """The right side of `in`: a list in parentheses or brackets, or a field that is an array or object."""
        position = self._now.position
        if not self._is("("):
            return self._sum()
        self._next()
        return ListLiteral(self._items(")"), position)

    def _items(self, end: str) -> tuple[Node, ...]:
        items = [self._deeper(self._any)]
        while self._take(","):
            items.append(self._deeper(self._any))
        self._need(end)
        return tuple(items)

    def _sum(self) -> Node:
        return self._chain(("+", "-"), lambda: self._chain(("*", "/", "%"), self._signed))

    def _chain(self, operators: tuple[str, ...], read: Callable[[], Node]) -> Node:
        position, first, rest = self._now.position, read(), list[tuple[str, Node]]()
        while self._is(*operators):
            rest.append((str(self._next().value), read()))
        return Arithmetic(first, tuple(rest), position) if rest else first

    def _signed(self) -> Node:
        position = self._now.position
        if not self._take("-"):
            return self._postfix()
        of = self._deeper(self._signed)
        if isinstance(of, Literal) and isinstance(of.value, int | float) and not isinstance(of.value, bool):
            return Literal(-of.value, position)
        return Negation(of, position)

    def _postfix(self) -> Node:
        """A value and its methods: `fields.name.lower()` is `lower(fields.name)`."""
        node = self._single()
        while self._is(".") and self._tokens[self._at + 1].kind == "name":
            self._next()
            name = self._next()
            if not self._is("("):
                raise self._expected("'(': only fields have parts")
            node = self._call(name, (node,))
        return node

    def _single(self) -> Node:
        token = self._now
        if token.kind in ("number", "text"):
            self._next()
            return Literal(token.value, token.position)
        if token.kind == "word" and token.value in ("null", "true", "false"):
            self._next()
            return Literal({"null": None, "true": True, "false": False}[token.value], token.position)
        if token.kind == "quoted":
            self._next()
            return self._steps("fields", [token.value], token)
        if token.kind == "name":
            self._next()
            return self._call(token, ()) if self._is("(") else self._field(token)
        if self._take("("):
            node = self._deeper(self._any)
            self._need(")")
            return node
        if self._take("["):
            return ListLiteral(self._items("]"), token.position)
        raise self._expected("a value or field")

    def _call(self, name: FilterToken, before: tuple[Node, ...]) -> Node:
        if name.value not in FUNCTIONS:
            raise FilterError(name.position, f"'{name.value}'", "one of the functions " + ", ".join(FUNCTIONS))
        self._need("(")
        behind = () if self._take(")") else self._items(")")
        call = FunctionCall(str(name.value), (*before, *behind), name.position)
        check_call(call)
        return call

    def _field(self, name: FilterToken) -> Node:
        """A bare name is a field of the value; `flat['a.b']` is click-sink's way to write `fields.a.b`."""
        root, steps = str(name.value), list[str | int]()
        if root not in (*ROOTS, "flat"):
            root, steps = "fields", [root]
        return self._steps(root, steps, name)

    def _steps(self, root: str, steps: list[str | int], name: FilterToken) -> Node:
        while True:
            following = self._tokens[self._at + 1] if self._is(".", "[") else None
            if following is None:
                break
            if self._is("."):
                if following.kind not in ("name", "quoted") and not following.raw:
                    self._next()
                    raise self._expected("a name")
                if self._tokens[self._at + 2].value == "(" and self._tokens[self._at + 2].kind == "sign":
                    break  # a method
                self._next()
                token = self._next()
                steps.append(token.raw if token.kind == "word" else str(token.value))
            else:
                steps.extend(self._index(flat=root == "flat" and not steps))
        root = "fields" if root == "flat" else root
        if steps and root not in ("fields", "headers"):
            raise FilterError(name.position, f"'{Field(root, tuple(steps))}'", f"{root} alone: it has no parts")
        return Field(root, tuple(steps), name.position)

    def _index(self, *, flat: bool) -> list[str | int]:
        self._need("[")
        token = self._now
        if token.kind not in ("number", "text") or isinstance(token.value, float):
            raise self._expected("a whole number or a text in quotes")
        if isinstance(token.value, int) and token.value > INDEX_MAX:
            raise self._expected(f"an index up to {INDEX_MAX}")
        self._next()
        self._need("]")
        return list(token.value.split(".")) if flat and isinstance(token.value, str) else [token.value]
