"""No name and no text can end its own quotes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.clickhouse.quoting import invalid_name_reason, qualified_name, quote_identifier, quote_literal
from holdfast.vocabulary.errors import InvalidError


def inside(quoted: str, quote: str) -> str:
    """What stands between the quotes, read as ClickHouse reads it; fails if a quote inside is free."""
    assert quoted[0] == quoted[-1] == quote
    plain, body = [], iter(quoted[1:-1])
    for character in body:
        assert character != quote
        if character == "\\":
            escaped = next(body)
            character = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "b": "\b", "f": "\f"}.get(escaped, escaped)
        plain.append(character)
    return "".join(plain)


@settings(deadline=None)
@given(st.text())
def test_a_name_is_quoted_so_that_it_reads_back_or_refused(name: str) -> None:
    if invalid_name_reason(name) is None:
        assert inside(quote_identifier(name), "`") == name
    else:
        with pytest.raises(InvalidError):
            quote_identifier(name)


@settings(deadline=None)
@given(st.text())
def test_a_text_reads_back(text: str) -> None:
    assert inside(quote_literal(text), "'") == text


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("a", "`a`"),
        ("a`; DROP TABLE x; --", "`a\\`; DROP TABLE x; --`"),
        ("a\\", "`a\\\\`"),
        ("a\\`", "`a\\\\\\``"),
        ("größe", "`größe`"),
        ('a"b', '`a"b`'),
    ],
)
def test_hostile_names_stay_names(name: str, quoted: str) -> None:
    assert quote_identifier(name) == quoted


@pytest.mark.parametrize(
    "name", ["", " a", "a ", "a\nb", "a\0", "a\u2028b", "\ud800", "x" * 128, "ä" * 64, "\u202eabc"]
)
def test_names_no_table_should_have_are_refused(name: str) -> None:
    with pytest.raises(InvalidError):
        quote_identifier(name)


def test_a_lone_surrogate_is_no_text() -> None:
    with pytest.raises(InvalidError):
        quote_literal("a\ud800")


def test_a_full_name_quotes_both_parts() -> None:
    assert qualified_name("de`fault", "t.x") == "`de\\`fault`.`t.x`"
