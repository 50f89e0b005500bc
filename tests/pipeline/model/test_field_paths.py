"""Paths: text to steps and back, and what they find."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.pipeline_values import JSON

from holdfast.pipeline.model.field_paths import EACH, Path, find, parse_path
from holdfast.pipeline.model.records import SourceRecord
from holdfast.vocabulary.errors import InvalidError

KEYS = st.text(min_size=1, max_size=8)
STEPS = st.builds(
    lambda first, rest: (first, *rest), KEYS, st.lists(KEYS | st.integers(0, 99) | st.just(EACH), max_size=5)
)


@settings(deadline=None)
@given(STEPS)
def test_a_path_is_read_back_from_its_text(steps: Any) -> None:
    path = Path(steps)
    assert parse_path(str(path)) == path


@settings(deadline=None)
@given(st.text(max_size=30))
def test_a_text_is_a_path_or_refused(text: str) -> None:
    try:
        path = parse_path(text)
    except InvalidError:
        return
    assert parse_path(str(path)) == path


@settings(deadline=None)
@given(STEPS, JSON)
def test_following_a_path_never_fails(steps: Any, value: Any) -> None:
    find(Path(steps), SourceRecord(fields=value))


RECORD = SourceRecord(
    fields={"a": {"b": 1, "b.c": 2}, "l": [{"x": 1}, {"y": 2}, 3], "$d": 4, "n": None},
    key="k",
    headers={"trace.id": "t"},
    offset=7,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b", 1),
        (r"a.b\.c", 2),
        ("a", {"b": 1, "b.c": 2}),
        ("a.b.c", None),
        ("n.x", None),
        ("l[1].y", 2),
        ("l[9].y", None),
        ("l[].x", [1, None, None]),
        ("a[].x", None),
        (r"\$d", 4),
        ("$key", "k"),
        (r"$headers.trace\.id", "t"),
        ("$offset", 7),
        ("$timestamp", 0),
    ],
)
def test_what_paths_find(text: str, value: Any) -> None:
    assert find(parse_path(text), RECORD) == value


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", "[0]", "a[x]", "a[-1]", "a[", "a]", "a[0]b", "a\\", "$", "$nothing", "$key.x",
             "$headers.a.b", "$headers[0]", "$headers[]", "x" * 1001,
             ".".join("a" * 33)]
)  # fmt: skip
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(InvalidError):
        parse_path(text)


def test_the_refusal_says_where() -> None:
    with pytest.raises(InvalidError, match="a key at character 3"):
        parse_path("a..b")
