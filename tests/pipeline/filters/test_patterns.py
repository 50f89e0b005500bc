"""Patterns: they say what Python's say, and always end."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.pipeline.filters.automaton import Automaton, TooMuchWork
from holdfast.pipeline.filters.patterns import BadPattern, read_pattern

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


def found(pattern: str, text: str) -> bool:
    return Automaton(read_pattern(pattern)).found_in(text)


@settings(max_examples=300, deadline=None)
@given(PATTERNS, st.lists(TEXTS, min_size=1, max_size=4), st.booleans())
def test_a_pattern_finds_what_pythons_finds(pattern: str, texts: list[str], any_case: bool) -> None:
    flags = re.ASCII | re.IGNORECASE if any_case else re.ASCII
    pythons = re.compile(pattern.replace("$", r"\Z"), flags)
    ours = Automaton(read_pattern(f"(?i){pattern}" if any_case else pattern))
    for text in texts:
        if any_case and not text.isascii():
            continue
        assert ours.found_in(text) is bool(pythons.search(text)), (pattern, text)


@settings(deadline=None)
@given(st.text(alphabet=r"ab()[]{}*+?|^$\d,1-:i", max_size=20) | st.text(max_size=20), TEXTS)
def test_any_text_is_a_pattern_or_refused(pattern: str, text: str) -> None:
    try:
        ours = Automaton(read_pattern(pattern))
    except BadPattern as bad:
        said = str(bad)
    else:
        said = str(ours.found_in(text))
    assert said


@pytest.mark.parametrize(
    ("pattern", "text", "is_found"),
    [
        ("^[a-z]+@[a-z.]+$", "ann@example.org", True),
        ("^[a-z]+@[a-z.]+$", "ann@", False),
        ("^(GET|POST) /api/v[0-9]+/", "GET /api/v12/x", True),
        ("(?i)^error", "ERROR: x", True),
        ("", "", True),
        ("^$", "", True),
        ("^$", "x", False),
        ("$^", "", True),
        ("a.c", "a\nc", False),
        ("x{3}", "axxxb", True),
        ("x{3}", "axxb", False),
        (r"\{x\}", "{x}", True),
        ("日+", "日日", True),
    ],
)
def test_the_usual(pattern: str, text: str, is_found: bool) -> None:
    assert found(pattern, text) is is_found


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "[", "[a", "*", "a**", "a{2}{3}", "a{1000}", "a{3,1}", "a{x}", r"(a)\1", "(?=a)", "(?<n>a)", r"\b", "\\", "[z-a]",
     "x" * 1001,
     "(" * 30 + ")" * 30, "((a{100}){100}){100}", "(((){200}){200}){200}", "(?i"],
)  # fmt: skip
def test_what_an_automaton_cannot_do_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        read_pattern(pattern)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)*$", "(a*)*b", "(.*)*x", "a*a*a*a*a*b", "(a|aa)+$"])
def test_what_makes_others_run_forever_ends(pattern: str) -> None:
    assert not found(pattern, "a" * 50_000 + "!")


@pytest.mark.timeout(10)
def test_a_pattern_that_would_need_too_many_states_gives_up() -> None:
    text = "".join("ab"[hash((n, n * n)) % 2] for n in range(20_000))
    with pytest.raises(TooMuchWork):
        found("(a|b)*a(a|b){180}c", text)


def test_what_is_remembered_is_bounded() -> None:
    ours = Automaton(read_pattern("x$"))
    for begin in range(0, 60_000, 1_000):
        ours.found_in("".join(chr(0x20000 + begin + n) for n in range(1_000)))
    assert ours._steps < 10_000
