"""What no statement may reach for: files, other hosts, programs, this interpreter.

The kernel and the engine's grants are the walls; this is the fence before them. It is needed where the engine checks no grant
(`file()` as a plain function, `INTO OUTFILE`, `eval`), and where it touches the outside before it does (`sqlite` makes its file).
"""

from itertools import pairwise
from typing import Final

from holdfast.gateways.clickhouse.errors import NOT_ALLOWED, refusal
from holdfast.gateways.clickhouse.lexing import Token

# Table functions that stay inside. All others the engine has are refused, those of a later engine too.
INSIDE: Final = frozenset(
    {
        *(
            "numbers",
            "numbers_mt",
            "zeros",
            "zeros_mt",
            "primes",
            "generate_series",
            "generateseries",
            "generaterandom",
        ),
        *(
            "values",
            "sqlstandardvalues",
            "null",
            "view",
            "viewexplain",
            "viewifpermitted",
            "merge",
            "format",
            "input",
            "loop",
        ),
        *(
            "dictionary",
            "fuzzjson",
            "mergetreeindex",
            "mergetreeprojection",
            "mergetreetextindex",
            "mergetreeanalyzeindexes",
        ),
    }
)
_CALLS: Final = {
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
_SOURCES: Final = frozenset(("clickhouse", "null"))
_MAKERS: Final = frozenset(("create", "insert", "attach", "replace", "rename", "exchange"))
_NAMED: Final = frozenset(("into", "table", "view", "dictionary", "exists", "."))


def learn(table_functions: frozenset[str]) -> None:
    """Refuse every table function of this engine that is not known to stay inside."""
    _CALLS.update(table_functions - INSIDE)


def refuse_forbidden(found: list[Token]) -> None:
    """Raise if the statement reaches out, or would take the floor away from under every connection."""
    words = [token.word for token in found]
    for at, (token, follows) in enumerate(pairwise(found)):
        named = token.kind in ("word", "quoted")
        if named and follows.word == "(" and not _is_a_name(words, at):
            _refuse_call(token.word, words[at + 2] if at + 2 < len(words) else "")
        if named and token.word in _CALLS and follows.word in (",", ")") and _is_a_function(words, at):
            raise refusal(NOT_ALLOWED, f"{token.word} as a function reaches beyond the tables and is not allowed here")
        if token.kind == "word" and token.word in ("outfile", "infile"):
            raise refusal(NOT_ALLOWED, f"{token.word.upper()} is not allowed here: send or take the data over HTTP")
        if token.word == "from" and follows.kind == "text" and words[0] in ("attach", "create"):
            raise refusal(NOT_ALLOWED, "ATTACH … FROM a path is not allowed here")
    if words[:2] in (["drop", "database"], ["detach", "database"], ["rename", "database"]) and "default" in words:
        raise refusal(NOT_ALLOWED, "the database default stays")


def _is_a_name(words: list[str], at: int) -> bool:
    """Whether a word before a parenthesis is a table's name and no call: `INSERT INTO url (a, b)`."""
    return words[0] in _MAKERS and at > 0 and words[at - 1] in _NAMED and "select" not in words[:at]


def _is_a_function(words: list[str], at: int) -> bool:
    """Whether a word may stand for a function that others call: `arrayMap(file, ['/etc/passwd'])`."""
    return at > 1 and words[at - 1] == "(" and words[at - 2].startswith(("array", "map"))


def _refuse_call(name: str, first: str) -> None:
    if name in _CALLS or name.startswith("ai"):
        raise refusal(NOT_ALLOWED, f"{name}() reaches beyond the tables and is not allowed here")
    if name == "source" and first not in _SOURCES:
        raise refusal(NOT_ALLOWED, f"a dictionary's SOURCE({first}) is not allowed here, only CLICKHOUSE and NULL")
