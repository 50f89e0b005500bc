"""Statements that are refused: those that use files, other hosts, programs or this interpreter.

The kernel and the engine's grants protect; this comes before them. It is needed where the engine checks no grant (`file()` as a
plain function, `INTO OUTFILE`, `eval`), and where it has an effect before it checks one (`sqlite` creates its file).
"""

from itertools import pairwise
from typing import Final

from holdfast.clickhouse.embedded.errors import query_error
from holdfast.clickhouse.embedded.lexer import SqlToken
from holdfast.clickhouse.error_codes import ClickHouseErrorCode

# Table functions without access to the outside. All others of the engine are refused, those of a later engine too.
ALLOWED_TABLE_FUNCTIONS: Final = frozenset(
    {
        *("numbers", "numbers_mt", "zeros", "zeros_mt", "primes", "generate_series", "generateseries"),
        *("generaterandom", "values", "sqlstandardvalues", "null", "view", "viewexplain", "viewifpermitted"),
        *("merge", "format", "input", "loop", "dictionary", "fuzzjson", "mergetreeindex", "mergetreeprojection"),
        *("mergetreetextindex", "mergetreeanalyzeindexes"),
    }
)
_DENIED_FUNCTIONS: Final = {
    *("file", "eval", "executable", "executablepool", "python", "dataframe", "catboostevaluate", "disk", "filesystem"),
    *(
        "sqlite",
        "url",
        "s3",
        "hdfs",
        "remote",
        "remotesecure",
        "mysql",
        "postgresql",
        "mongodb",
        "redis",
        "odbc",
        "jdbc",
    ),
}
_ALLOWED_DICTIONARY_SOURCES: Final = frozenset(("clickhouse", "null"))
_WRITE_KEYWORDS: Final = frozenset(("create", "insert", "attach", "replace", "rename", "exchange"))
_BEFORE_TABLE_NAME: Final = frozenset(("into", "table", "view", "dictionary", "exists", "."))


def deny_table_functions(table_functions: frozenset[str]) -> None:
    """Refuse every table function of this engine that is not allowed above."""
    _DENIED_FUNCTIONS.update(table_functions - ALLOWED_TABLE_FUNCTIONS)


def check_restrictions(tokens: list[SqlToken]) -> None:
    """Raise if the statement accesses the outside, or would remove the database every connection starts in."""
    words = [token.word for token in tokens]
    for at, (token, follows) in enumerate(pairwise(tokens)):
        named = token.kind in ("word", "quoted")
        if named and follows.word == "(" and not _is_table_name(words, at):
            _check_call(token.word, words[at + 2] if at + 2 < len(words) else "")
        if (
            named
            and token.word in _DENIED_FUNCTIONS
            and follows.word in (",", ")")
            and _is_function_reference(words, at)
        ):
            raise query_error(
                ClickHouseErrorCode.ACCESS_DENIED,
                f"{token.word} as a function accesses more than tables and is not allowed here",
            )
        if token.kind == "word" and token.word in ("outfile", "infile"):
            raise query_error(
                ClickHouseErrorCode.ACCESS_DENIED,
                f"{token.word.upper()} is not allowed here: transfer the data over HTTP",
            )
        if token.word == "from" and follows.kind == "text" and words[0] in ("attach", "create"):
            raise query_error(ClickHouseErrorCode.ACCESS_DENIED, "ATTACH … FROM a path is not allowed here")
    if words[:2] in (["drop", "database"], ["detach", "database"], ["rename", "database"]) and "default" in words:
        raise query_error(
            ClickHouseErrorCode.ACCESS_DENIED, "the database default cannot be dropped, detached or renamed"
        )


def _is_table_name(words: list[str], at: int) -> bool:
    """Whether a word before a parenthesis is a table name and not a call: `INSERT INTO url (a, b)`."""
    return words[0] in _WRITE_KEYWORDS and at > 0 and words[at - 1] in _BEFORE_TABLE_NAME and "select" not in words[:at]


def _is_function_reference(words: list[str], at: int) -> bool:
    """Whether a word may be a function passed to another: `arrayMap(file, ['/etc/passwd'])`."""
    return at > 1 and words[at - 1] == "(" and words[at - 2].startswith(("array", "map"))


def _check_call(name: str, first: str) -> None:
    if name in _DENIED_FUNCTIONS or name.startswith("ai"):
        raise query_error(
            ClickHouseErrorCode.ACCESS_DENIED, f"{name}() accesses more than tables and is not allowed here"
        )
    if name == "source" and first not in _ALLOWED_DICTIONARY_SOURCES:
        raise query_error(
            ClickHouseErrorCode.ACCESS_DENIED,
            f"a dictionary's SOURCE({first}) is not allowed here, only CLICKHOUSE and NULL",
        )
