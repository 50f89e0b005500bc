"""The syntax tree of a filter, and its canonical text.

The one rule: `parse(str(node)) == node`. The position of a node is for messages and does not count in comparisons.
"""

import re
from dataclasses import dataclass, field
from typing import Final, TypeAlias

ROOTS: Final = ("fields", "key", "headers", "topic", "partition", "offset", "timestamp")
WORDS: Final = frozenset({"and", "or", "not", "in", "is", "null", "true", "false"})

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_IN_TEXT: Final = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Line and column, from 1."""

    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, text, true, false or null."""

    value: str | int | float | bool | None
    position: SourcePosition = field(default=SourcePosition(), compare=False)

    def __eq__(self, other: object) -> bool:  # 1, 1.0 and true are three literals
        return isinstance(other, Literal) and (type(self.value), self.value) == (type(other.value), other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return quoted(self.value)
        if self.value is None or isinstance(self.value, bool):
            return {None: "null", True: "true", False: "false"}[self.value]
        return repr(self.value)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record: its root, then keys and indexes."""

    root: str
    steps: tuple[str | int, ...] = ()
    position: SourcePosition = field(default=SourcePosition(), compare=False)

    def __str__(self) -> str:
        text = self.root
        for step in self.steps:
            if isinstance(step, int):
                text += f"[{step}]"
            else:
                text += f".{step}" if _PLAIN.fullmatch(step) and step not in WORDS else f"[{quoted(step)}]"
        return text


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """Values in brackets, for `in`."""

    items: "tuple[Node, ...]"
    position: SourcePosition = field(default=SourcePosition(), compare=False)

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.items))}]"


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function and its arguments."""

    name: str
    arguments: "tuple[Node, ...]"
    position: SourcePosition = field(default=SourcePosition(), compare=False)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Negation:
    """A number with its sign changed."""

    of: "Node"
    position: SourcePosition = field(default=SourcePosition(), compare=False)

    def __str__(self) -> str:
        return f"-{inside(self.of, 6)}"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Operators of one precedence, from left to right: `a + b - c`."""

    first: "Node"
    rest: "tuple[tuple[str, Node], ...]"
    position: SourcePosition = field(default=SourcePosition(), compare=False)

    @property
    def precedence(self) -> int:
        """Its precedence: 4 for sums, 5 for products."""
        return 4 if self.rest[0][0] in "+-" else 5

    def __str__(self) -> str:
        tail = "".join(f" {operator} {inside(node, self.precedence + 1)}" for operator, node in self.rest)
        return inside(self.first, self.precedence + 1) + tail


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two values and one of = != < <= > >=."""

    operator: str
    left: "Node"
    right: "Node"
    position: SourcePosition = field(default=SourcePosition(), compare=False)

    def __str__(self) -> str:
        return f"{inside(self.left, 4)} {self.operator} {inside(self.right, 4)}"


@dataclass(frozen=True, slots=True)
class Membership:
    """Whether a value is one of a list, an element of an array or a key of an object."""

    item: "Node"
    among: "Node"
    negated: bool = False
    position: SourcePosition = field(default=SourcePosition(), compare=False)

    def __str__(self) -> str:
        return f"{inside(self.item, 4)} {'not ' if self.negated else ''}in {inside(self.among, 4)}"


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a value is null or absent."""

    of: "Node"
    negated: bool = False
    position: SourcePosition = field(default=SourcePosition(), compare=False)

    def __str__(self) -> str:
        return f"{inside(self.of, 4)} is {'not ' if self.negated else ''}null"


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    of: "Node"
    position: SourcePosition = field(default=SourcePosition(), compare=False)

    def __str__(self) -> str:
        return f"not {inside(self.of, 2)}"


@dataclass(frozen=True, slots=True)
class BooleanOperation:
    """Two or more conditions: all of them (`and`) or any of them (`or`)."""

    operator: str
    parts: "tuple[Node, ...]"
    position: SourcePosition = field(default=SourcePosition(), compare=False)

    def __str__(self) -> str:
        precedence = 1 if self.operator == "and" else 0
        return f" {self.operator} ".join(inside(part, precedence + 1) for part in self.parts)


Node: TypeAlias = (
    Literal
    | Field
    | ListLiteral
    | FunctionCall
    | Negation
    | Arithmetic
    | Comparison
    | Membership
    | IsNull
    | Not
    | BooleanOperation
)


def precedence_of(node: Node) -> int:
    """The precedence of a node: or, and, not, comparison, sum, product, sign, then operands."""
    match node:
        case BooleanOperation(operator):
            return 1 if operator == "and" else 0
        case Not():
            return 2
        case Comparison() | Membership() | IsNull():
            return 3
        case Arithmetic():
            return node.precedence
        case Negation():
            return 6
        case Literal(value) if isinstance(value, int | float) and str(node).startswith("-"):
            return 6
    return 7


def inside(node: Node, precedence: int) -> str:
    """A node's text inside another, in parentheses if its precedence is lower."""
    return str(node) if precedence_of(node) >= precedence else f"({node})"


def quoted(text: str) -> str:
    """A text as a literal of the language."""
    return "'" + "".join(_IN_TEXT.get(character, character) for character in text) + "'"


def children(node: Node) -> "tuple[Node, ...]":
    """The nodes directly inside a node."""
    match node:
        case ListLiteral(items):
            return items
        case FunctionCall(_, arguments):
            return arguments
        case Negation(of) | IsNull(of) | Not(of):
            return (of,)
        case Arithmetic(first, rest):
            return (first, *(part for _, part in rest))
        case Comparison(_, left, right):
            return left, right
        case Membership(item, among):
            return item, among
        case BooleanOperation(_, parts):
            return parts
    return ()


def depth_of(node: Node) -> int:
    """The depth of a tree."""
    deepest, waiting = 0, [(node, 1)]
    while waiting:
        inner, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting += [(child, depth + 1) for child in children(inner)]
    return deepest
