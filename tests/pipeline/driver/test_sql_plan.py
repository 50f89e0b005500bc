"""Plans as Spark Connect gives them, as text: what was not shown to be deterministic is refused."""

import pytest

from holdfast.pipeline.driver.sql_plan import analysed_lines, check_lines, check_text
from holdfast.vocabulary.errors import InvalidError

EXPLAINED = """== Parsed Logical Plan ==
'Project ['rand(), *]
== Analyzed Logical Plan ==
id: bigint, shout: string
Project [c0#1L AS id#8L, {expression} AS shout#9]
+- Filter ((id#1L % cast(3 as bigint)) = cast(0 as bigint))
   +- SubqueryAlias rows
      +- View (`rows`, [id#1L, name#2])
         +- LocalRelation [id#1L, name#2]
== Optimized Logical Plan ==
Project [rand()]
"""


@pytest.mark.parametrize(
    "expression",
    [
        "upper(name#2)",
        "CASE WHEN (id#1L > cast(1 as bigint)) THEN concat(name#2, x) ELSE 3 END",
        "if ((id#1L > 5)) name#2 else null",
        "id#1L IN (1,2,3)",
    ],
)
def test_a_plan_of_known_functions_is_allowed(expression: str) -> None:
    check_lines(analysed_lines(EXPLAINED.format(expression=expression)))


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("current_timestamp()", "current_timestamp"),
        ("rand(5)", "rand"),
        ("my_function(name#2)#5", "my_function"),
        ("scalar-subquery#12 []", "sub-query"),
        ("cast(today as date)", "constant time"),
        ("c1#2, ... 15 more fields", "cut"),
        ("a\n+- Aggregate [x]", "Aggregate"),
    ],
)
def test_what_is_not_shown_to_be_deterministic_is_refused(expression: str, reason: str) -> None:
    with pytest.raises(InvalidError, match=reason):
        check_lines(analysed_lines(EXPLAINED.format(expression=expression)))


def test_a_plan_without_text_is_refused() -> None:
    with pytest.raises(InvalidError, match="without text"):
        check_lines(analysed_lines("something else"))


@pytest.mark.parametrize("text", ["select date 'today'", "select TIMESTAMP_NTZ\n'now'", 'select timestamp "tomorrow"'])
def test_a_literal_that_is_the_time_of_the_query_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="deterministic"):
        check_text(text)


def test_other_literals_are_not() -> None:
    check_text("select date '2026-01-01', 'today' as day, update_date from rows")
