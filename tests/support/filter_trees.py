"""Random trees of filters."""

from typing import Any

from hypothesis import strategies as st

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
)

NAMES = st.sampled_from(
    ["a", "user", "in", "AND", "odd name", "it's", "x.y", "", "日", "back\\slash", "new\nline", "matches"]
)
LITERALS = st.builds(
    Literal,
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
)
FIELDS = st.builds(
    Field, st.sampled_from(["fields", "headers"]), st.lists(NAMES | st.integers(0, 99), max_size=3).map(tuple)
) | st.builds(Field, st.sampled_from([root for root in ROOTS if root not in ("fields", "headers")]))


def _minus(node: Node) -> Node:
    """A number with a sign is a number."""
    number = isinstance(node, Literal) and isinstance(node.value, int | float) and not isinstance(node.value, bool)
    return node if number else Negation(node)


def _compared(sign: str, left: Node, right: Node) -> Node:
    """A comparison with null is a test for null."""
    return IsNull(left) if Literal(None) in (left, right) else Comparison(sign, left, right)


def _inner(nodes: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    many = st.lists(nodes, min_size=1, max_size=3).map(tuple)
    two = st.lists(nodes, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(FunctionCall, st.sampled_from(["lower", "length", "exists"]), nodes.map(lambda node: (node,))),
        st.builds(FunctionCall, st.just("coalesce"), many),
        st.builds(FunctionCall, st.just("matches"), nodes.map(lambda node: (node, Literal("^a+$")))),
        st.builds(_minus, nodes),
        _chains(nodes, "+-"),
        _chains(nodes, "*/%"),
        st.builds(_compared, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), nodes, nodes),
        st.builds(Membership, nodes, st.builds(ListLiteral, many) | FIELDS, st.booleans()),
        st.builds(IsNull, nodes, st.booleans()),
        st.builds(Not, nodes),
        st.builds(BooleanOperation, st.sampled_from(["and", "or"]), two),
    )


def _chains(nodes: st.SearchStrategy[Any], signs: str) -> st.SearchStrategy[Any]:
    rest = st.lists(st.tuples(st.sampled_from(signs), nodes), min_size=1, max_size=3).map(tuple)
    return st.builds(Arithmetic, nodes, rest)


NODES: st.SearchStrategy[Node] = st.recursive(LITERALS | FIELDS, _inner, max_leaves=12)
