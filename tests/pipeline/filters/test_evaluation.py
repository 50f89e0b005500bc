"""Filters at work: what they keep, what they drop, and what they cannot say."""

from typing import Any

import pytest
from hypothesis import given
from tests.support.examples import examples
from tests.support.filter_trees import NODES
from tests.support.pipeline_values import JSON, OBJECTS, records_of

from holdfast.pipeline.filters.config import condition_of, read_filters
from holdfast.pipeline.filters.evaluation import EvaluationFailure, Filter, compiled, make_filter, select
from holdfast.pipeline.filters.lexer import FilterError
from holdfast.pipeline.filters.syntax_tree import Node
from holdfast.pipeline.filters.trial import try_on
from holdfast.pipeline.model.definition import FiltersConfig
from holdfast.pipeline.model.records import SourceRecord
from holdfast.vocabulary.errors import InvalidError

RECORD = SourceRecord(
    fields={
        "status": "paid",
        "amount": 12.5,
        "n": 7,
        "ok": True,
        "none": None,
        "user": {"name": "Ann", "tags": ["a", "b"]},
        "big": 2**70,
        "created": "2025-11-15T10:00:00Z",
        "odd name": 1,
    },
    key="k-1",
    headers={"trace": "t"},
    topic="orders",
    partition=3,
    offset=42,
    timestamp=1_763_200_800_000,
)

TRUE = [
    "status = 'paid'",
    "status != 'new' and amount > 10",
    "amount >= 12.5 and amount <= 12.5",
    "ok",
    "not not ok",
    "ok = true",
    "n in (1, 7)",
    "n not in [1, 2]",
    "'a' in user.tags",
    "'name' in user",
    "user.tags[1] = 'b'",
    "none is null and absent is null and user.absent.deeper is null",
    "none = null",
    "status != null",
    "n + 1 = 8 and n - 1 = 6 and n * 2 = 14 and n / 2 = 3.5 and n % 4 = 3",
    "-n % 4 = -3",
    "2 + 3 * 4 = 14 and (2 + 3) * 4 = 20 and 10 - 3 - 2 = 5",
    "lower(user.name) = 'ann' and user.name.upper() = 'ANN'",
    "length(user.name) = 3 and size(user.tags) = 2",
    "startsWith(status, 'pa') and endsWith(status, 'id') and contains(status, 'ai')",
    "contains(user.tags, 'b')",
    "matches(status, '^p[a-z]+d$')",
    "user.name + '!' = 'Ann!'",
    "trim('  x ') = 'x'",
    "abs(-5) = 5 and floor(2.7) = 2 and ceil(2.1) = 3 and round(2.6) = 3",
    "number('12') = 12 and number('1.5') = 1.5 and text(12) = '12' and text(true) = 'true'",
    "coalesce(none, absent, 5) = 5",
    "exists(status) and not exists(none) and has(fields.user)",
    "typeOf(amount) = 'number' and typeOf(absent) = 'null' and typeOf(user) = 'object'",
    "key = 'k-1' and headers.trace = 't' and topic = 'orders' and partition = 3 and offset = 42",
    "timestamp >= time('2025-11-15T10:00:00Z') and timestamp < time('2025-11-15T10:00:01Z')",
    "time(created) = timestamp",
    "`odd name` = 1 and fields['odd name'] = 1 and flat['user.name'] = 'Ann'",
    "absent = 1 or ok",
    "1 = 1.0",
    "big > 9007199254740993",
]
NOT_TRUE = [
    "status = 'new'",
    "absent = 1",
    "absent != 1",
    "not (absent = 1)",
    "absent > 1 and ok",
    "lower(none) = 'x'",
    "none in (1, 2)",
    "none + 1 = 1",
    "null",
    "matches(status, '^x')",
]
FAULTS = [
    ("status > 5", "> cannot compare text with number (at 1:1)"),
    ("ok and\n  n = 'x'", "= cannot compare number with text (at 2:3)"),
    ("ok > false", "> cannot compare bool with bool"),
    ("ok = 1", "= cannot compare bool with number"),
    ("n", "the filter is number, not true or false"),
    ("n and ok", "expected true or false, not number (at 1:1)"),
    ("not n", "expected true or false, not number"),
    ("status + 1 = 2", "+ takes two numbers, not text and number"),
    ("n / 0 = 1", "/ by zero"),
    ("n % 0 = 1", "% by zero"),
    ("-status = 1", "- takes a number, not text"),
    ("lower(n) = 'x'", "lower takes text, not number"),
    ("n in status", "in takes a list, array or object, not text"),
    ("number('x') = 1", "number takes the text of a number"),
    ("time('soon') = 1", "time takes ISO 8601"),
    ("big * big * big = 1", "more than 128 bits"),
    ("matches(n, 'x')", "matches takes text, not number"),
]


@pytest.mark.parametrize("text", TRUE)
def test_true_keeps(text: str) -> None:
    assert make_filter(text)(RECORD) is True


@pytest.mark.parametrize("text", NOT_TRUE)
def test_false_and_null_drop(text: str) -> None:
    assert make_filter(text)(RECORD) is False


@pytest.mark.parametrize(("text", "reason"), FAULTS)
def test_what_has_no_answer_has_a_reason(text: str, reason: str) -> None:
    answer = make_filter(text)(RECORD)
    assert isinstance(answer, EvaluationFailure)
    assert reason in answer.reason


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        ("true", "true", True, True),
        ("true", "false", False, True),
        ("true", "null", None, True),
        ("false", "null", False, None),
        ("null", "null", None, None),
        ("false", "false", False, False),
    ],
)
def test_and_and_or_are_three_valued(left: str, right: str, both: bool | None, either: bool | None) -> None:
    for one, other in ((left, right), (right, left)):
        assert make_filter(f"{one} and {other}").run(RECORD) is both
        assert make_filter(f"{one} or {other}").run(RECORD) is either


def test_the_first_answer_that_decides_ends_it() -> None:
    assert make_filter("typeOf(n) = 'text' and n = 'x'")(RECORD) is False
    assert make_filter("ok or n = 'x'")(RECORD) is True


@pytest.mark.slow
@examples(2)
@given(NODES, OBJECTS | JSON)
def test_evaluation_never_raises(node: Node, value: Any) -> None:
    answer = Filter(node, compiled(node))(SourceRecord(fields=value, key="k"))
    assert answer in (True, False) or isinstance(answer, EvaluationFailure)


def test_a_batch_is_kept_dropped_or_failed_row_by_row() -> None:
    found = select(make_filter("n > 1"), records_of({"n": 1}, {"n": 2}, {"n": "x"}, 5, {"n": None}))
    assert (found.kept, found.dropped) == ([1], [0, 3, 4])
    assert [(row, failed.reason) for row, failed in found.failed] == [(2, "> cannot compare text with number (at 1:1)")]


def test_a_trial_says_why_for_each_record() -> None:
    found = try_on(
        "ok and n > 1", records_of({"ok": True, "n": 2}, {"ok": True, "n": 1}, {"n": 5}, {"ok": True, "n": "x"})
    )
    assert (found.kept, found.dropped, found.errors) == (1, 2, 1)
    assert [(tried.verdict, tried.reason) for tried in found.rows] == [
        ("kept", ""),
        ("dropped", "not true: fields.n > 1 (fields.n is 1)"),
        ("dropped", "not true: fields.ok (fields.ok is null)"),
        ("error", "> cannot compare text with number (at 1:8)"),
    ]


def test_a_trial_of_what_is_no_filter_says_where() -> None:
    with pytest.raises(FilterError, match="column 4"):
        try_on("n >", records_of({}))


def test_the_config_is_click_sinks() -> None:
    config = read_filters(
        '{"enabled": true, "language": "Holdfast", "expression": "flat[\\"user.name\\"] == \\"Ann\\""}'
    )
    assert config == FiltersConfig(True, "holdfast", 'flat["user.name"] == "Ann"')
    for stored in (config, FiltersConfig(True, "cel", config.expression)):  # as 0.1.0 stored it
        condition = condition_of(stored)
        assert condition is not None
        assert condition(RECORD) is True


@pytest.mark.parametrize(
    "given_config", [{}, {"enabled": False, "expression": "n = 1"}, {"enabled": True, "expression": " "}]
)
def test_a_filter_that_is_off_or_empty_keeps_everything(given_config: dict[str, Any]) -> None:
    assert condition_of(read_filters(given_config)) is None


@pytest.mark.parametrize(
    "given_config",
    [
        "",
        "[]",
        {"enabled": "yes"},
        {"language": "python"},
        {"expression": "n ="},
        {"enabled": False, "expression": "("},
        {"x": 1},
    ],
)
def test_a_config_that_cannot_run_is_refused(given_config: Any) -> None:
    with pytest.raises(InvalidError):
        read_filters(given_config)


@pytest.mark.timeout(20)
def test_hostile_filters_and_records_are_bounded() -> None:
    text = " and ".join(["matches(a, '(x+x+)+y')"] * 20)
    answer = make_filter(text)(SourceRecord(fields={"a": "x" * 100_000}))
    assert answer is False
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert isinstance(make_filter("a = a")(SourceRecord(fields={"a": deep})), bool | EvaluationFailure)
    assert isinstance(make_filter("a + a + a = 1")(SourceRecord(fields={"a": 10**5000})), EvaluationFailure)
