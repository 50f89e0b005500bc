"""Filters: text to tree and back, and what is wrong with a text that is none."""

import pickle
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.filter_trees import NODES

from holdfast.pipeline.filters.lexer import FilterError
from holdfast.pipeline.filters.parser import TREE_DEPTH_MAX, parse
from holdfast.pipeline.filters.syntax_tree import (
    Node,
    depth_of,
)


@pytest.mark.slow
@examples(3)
@given(NODES)
def test_a_filter_is_read_back_from_its_text(node: Node) -> None:
    if depth_of(node) <= TREE_DEPTH_MAX:
        assert parse(str(node)) == node, str(node)


@given(st.text(max_size=60) | st.text(alphabet="ab.='\"()[]<>!&|+-*/% \n\\`1notinrd,", max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    with suppress(FilterError):
        assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("status = 'paid'", "fields.status = 'paid'"),
        ('fields.status == "paid" && fields.amount > 10', "fields.status = 'paid' and fields.amount > 10"),
        ("a or b and not c", "fields.a or fields.b and not fields.c"),
        ("(a or b) and c", "(fields.a or fields.b) and fields.c"),
        ("!(a || b)", "not (fields.a or fields.b)"),
        ("a not in (1, 2)", "fields.a not in [1, 2]"),
        ("a in ['x']", "fields.a in ['x']"),
        ("a <> 1", "fields.a != 1"),
        ("a = null or b != null", "fields.a is null or fields.b is not null"),
        ("a IS NOT NULL", "fields.a is not null"),
        ("name.lower().startsWith('a')", "startsWith(lower(fields.name), 'a')"),
        ("fields.user['first name']", "fields.user['first name']"),
        ("`odd name` = 1", "fields['odd name'] = 1"),
        ("`key` = 1 and key = 'k'", "fields.key = 1 and key = 'k'"),
        ("items[0].sku = 'x'", "fields.items[0].sku = 'x'"),
        ("flat['user.name'] == 'x'", "fields.user.name = 'x'"),
        ("'user' in flat", "'user' in fields"),
        ("headers['trace-id'] is null", "headers['trace-id'] is null"),
        ("a - (b - c) - -1", "fields.a - (fields.b - fields.c) - -1"),
        ("-a * 2 + 1 >= .5e1", "-fields.a * 2 + 1 >= 5.0"),
        ("a # what is behind it is a comment\n= 1", "fields.a = 1"),
        ("fields.In = fields.null", "fields.In = fields['null']"),
        (r"'it\'s' = a", r"'it\'s' = fields.a"),
    ],
)
def test_usual_filters_parse(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("", "1:1", "a value or field"),
        ("a =", "1:4", "a value or field"),
        ("a = 'x", "1:5", "a closing '"),
        ("a =\n  = 1", "2:3", "a value or field"),
        ("(a = 1", "1:7", "')'"),
        ("a = 1)", "1:6", "an operator or the end"),
        ("a b", "1:3", "an operator or the end"),
        ("a = 1 = 2", "1:7", "an operator or the end"),
        ("a is 5", "1:6", "'null'"),
        ("a in ()", "1:7", "a value or field"),
        ("loud(a)", "1:1", "one of the functions"),
        ("lower()", "1:1", "lower with 1"),
        ("lower(a, b)", "1:1", "lower with 1"),
        ("matches(a, b)", "1:12", "a pattern in quotes"),
        ("matches(a, '(')", "1:12", "a valid pattern: missing ) in '('"),
        ("a.", "1:3", "a name"),
        ("a[x]", "1:3", "a whole number or a text in quotes"),
        ("a[9999999]", "1:3", "an index up to"),
        ("key.x = 1", "1:1", "key alone: it has no parts"),
        ("a < null", "1:5", "nothing is greater or less than null"),
        ("a ~ 1", "1:3", "a value, field or operator"),
        (r"a = '\d'", "1:5", "after a backslash"),
        ("'x'.y", "1:6", "only fields have parts"),
        ("a = 1e999", "1:5", "a number within range"),
        ("a = " + "1" * 50, "1:5", "at most 40"),
        ("(" * 40 + "a" + ")" * 40, "1:32", "nested at most 30 deep"),
        ("not " * 40 + "a", "1:125", "nested at most 30 deep"),
        ("a" + ".lower()" * 70, "1:1", ""),
        ("a = 1 or " * 900 + "b = 1", "1:", "at most 2000"),
        ("x" * 10_001, "1:1", "at most 10000"),
    ],
)
def test_an_error_says_what_was_expected_where(text: str, position: str, expected: str) -> None:
    with pytest.raises(FilterError) as refused:
        parse(text)
    assert str(refused.value.position).startswith(position) or "lower()" in text
    assert expected in str(refused.value)
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def test_an_error_reads_well() -> None:
    with pytest.raises(FilterError, match=r"^line 1, column 11: expected a value or field, found the end$"):
        parse("amount >  ")
