"""Patterns match what Python's match, in time linear in the text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from holdfast.pipeline.filters.evaluation import EvaluationFailure, make_filter
from holdfast.pipeline.filters.lexer import FilterError
from holdfast.pipeline.filters.patterns import PatternError, compiled_pattern, pattern_matches
from holdfast.pipeline.model.records import SourceRecord

ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "c",
        ".",
        "[ab]",
        "[^ab]",
        "[a-c]",
        r"\d",
        r"\w",
        r"\S",
        r"[\d_-]",
        r"\.",
        "1",
        "ä",
        "^",
        "[]a]",
        "(?:)",
        r"\n",
        " ",
    ]
)
COUNTS = st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?"])


def _joined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    grouped = st.builds("({}){}".format, inner, COUNTS)
    return st.lists(grouped | inner, max_size=3).map("".join) | st.lists(inner, min_size=1, max_size=3).map("|".join)


PATTERNS = st.recursive(
    st.builds(lambda atom, count: atom if atom == "^" else atom + count, ATOMS, COUNTS) | st.just("$"),
    _joined,
    max_leaves=6,
)
TEXTS = st.text(alphabet="abcABC1_. -\näß", max_size=12)


@pytest.mark.slow
@examples(3)
@given(PATTERNS, st.lists(TEXTS, min_size=1, max_size=4), st.booleans())
def test_a_pattern_matches_what_pythons_matches(pattern: str, texts: list[str], any_case: bool) -> None:
    flags = re.ASCII | re.IGNORECASE if any_case else re.ASCII
    pythons = re.compile(pattern.replace("$", r"\Z"), flags)
    ours = f"(?i){pattern}" if any_case else pattern
    for text in texts:
        if any_case and not text.isascii():
            continue
        assert pattern_matches(ours, text) is bool(pythons.search(text)), (pattern, text)


@given(st.text(alphabet=r"ab()[]{}*+?|^$\d,1-:i", max_size=20) | st.text(max_size=20), TEXTS)
def test_any_text_is_a_pattern_or_rejected(pattern: str, text: str) -> None:
    try:
        outcome = str(pattern_matches(pattern, text))
    except PatternError as error:
        outcome = str(error)
    assert outcome


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^[a-z]+@[a-z.]+$", "ann@example.org", True),
        ("^[a-z]+@[a-z.]+$", "ann@", False),
        ("^(GET|POST) /api/v[0-9]+/", "GET /api/v12/x", True),
        ("(?i)^error", "ERROR: x", True),
        ("(?i)ä", "Ä", True),
        ("", "", True),
        ("^$", "", True),
        ("^$", "x", False),
        ("$^", "", True),
        ("a$", "a\n", False),
        ("a.c", "a\nc", False),
        ("(?s)a.c", "a\nc", True),
        ("x{3}", "axxxb", True),
        ("x{3}", "axxb", False),
        (r"\{x\}", "{x}", True),
        ("a{x}", "a{x}", True),
        ("日+", "日日", True),
        ("^.$", "日", True),
        (r"\d", "٣", False),
        (r"\w", "ä", False),
        (r"\s", "\v", False),
        (r"\bfox\b", "a fox", True),
        (r"^\pL+$", "Grün", True),
        ("(?P<year>[0-9]{4})", "2026", True),
        ("x{1000}", "x" * 1_000, True),
    ],
)
def test_the_syntax_is_re2s(pattern: str, text: str, matches: bool) -> None:
    assert pattern_matches(pattern, text) is matches


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing ) in '('"),
        (")", "unexpected ) in ')'"),
        ("[a", "missing ] in '[a'"),
        ("*", "no argument for repetition operator in '*'"),
        ("a**", "bad repetition operator in '**'"),
        ("a{2}{3}", "bad repetition operator"),
        ("a{1001}", "invalid repetition size"),
        ("a{3,1}", "invalid repetition size"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?=a)", "invalid perl operator in '(?='"),
        ("(?i", "invalid perl operator"),
        ("\\", "trailing \\"),
        ("[z-a]", "invalid character class range in 'z-a'"),
        ("((a{100}){100}){100}", "invalid repetition size"),
        ("(((){200}){200}){200}", "invalid repetition size"),
        ("x" * 1_001, "at most 1000 characters"),
        ("\ud800", "a lone surrogate is not Unicode"),
    ],
)
def test_an_invalid_pattern_is_rejected_with_the_reason(pattern: str, why: str) -> None:
    with pytest.raises(PatternError) as rejected:
        compiled_pattern(pattern)
    assert why in str(rejected.value)


def test_an_invalid_pattern_is_found_when_the_filter_is_parsed() -> None:
    with pytest.raises(FilterError, match=r"line 1, column 15: expected a valid pattern: missing \) in '\(a'"):
        make_filter("matches(name, '(a')")


@pytest.mark.timeout(10)
@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)*$", "(a*)*b", "(.*)*x", "a*a*a*a*a*b", "(a|aa)+$"])
def test_a_pattern_that_makes_backtracking_engines_run_forever_ends(pattern: str) -> None:
    assert not pattern_matches(pattern, "a" * 50_000 + "!")


@pytest.mark.timeout(10)
def test_a_pattern_with_many_states_gives_an_answer_whatever_was_matched_before() -> None:
    text = "".join("ab"[hash((n, n * n)) % 2] for n in range(20_000))
    pattern = "(a|b)*a(a|b){180}c"
    before = pattern_matches(pattern, text)
    assert pattern_matches(pattern, "a" + "b" * 180 + "c")
    assert pattern_matches(pattern, text) is before is False


def test_text_with_a_lone_surrogate_is_a_failure_of_the_record() -> None:
    outcome = make_filter("matches(name, 'x')")(SourceRecord(fields={"name": "\ud800x"}))
    assert isinstance(outcome, EvaluationFailure)
    assert "not a lone surrogate" in outcome.reason
