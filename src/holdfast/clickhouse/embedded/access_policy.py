"""What a statement may use, decided on the engine's own syntax tree. There is no second parser: names are as the engine reads them.

The engine's grants deny most (`engine` has them). They come too late or not at all for a few things, which are refused here:
table functions that act before a grant is checked (`sqlite` creates its file) or need none (`python`, `executable`), table engines
the engine checks no grant for (`QueryRunner`, `Executable`), disks of a table's own, and files that the client side of the engine
reads or writes (`INTO OUTFILE`, `FROM INFILE`).

The one rule: a statement is run without a look at its tree only if its bytes can name none of these. A name in the tree is in the
bytes as it is, or in quotes with a backslash.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from holdfast.clickhouse.embedded.errors import QueryError, query_error
from holdfast.clickhouse.embedded.statement import Statement
from holdfast.clickhouse.error_codes import ClickHouseErrorCode

# Table functions without access to the outside. All others of the engine are refused, those of a later engine too.
_ALLOWED_TABLE_FUNCTIONS: Final = frozenset(
    {
        *("numbers", "numbers_mt", "zeros", "zeros_mt", "primes", "generate_series", "generateseries"),
        *("generaterandom", "values", "sqlstandardvalues", "null", "view", "viewexplain", "viewifpermitted"),
        *("merge", "format", "input", "loop", "fuzzjson", "mergetreeindex", "mergetreeprojection"),
        *("mergetreetextindex", "mergetreeanalyzeindexes"),
    }
)
_MERGE_TREE_VARIANTS: Final = (
    "",
    "Replacing",
    "Summing",
    "Aggregating",
    "Collapsing",
    "VersionedCollapsing",
    "Coalescing",
)
ALLOWED_ENGINES: Final = (
    *(f"{kind}MergeTree" for kind in _MERGE_TREE_VARIANTS),
    *("Memory", "Null", "Log", "TinyLog", "StripeLog", "Buffer", "Set", "Join", "Merge"),
    *("View", "MaterializedView", "Atomic"),
)
_DISK_SETTINGS: Final = frozenset(("disk", "table_disk"))
_FILE_CLAUSES: Final = frozenset(("out_file", "infile", "attach_from_path"))
# Statements the engine does not give a tree of. They contain no expressions and no table functions.
_WITHOUT_TREE: Final = (
    *("ShowCreate", "SHOW CREATE", "Exists", "Undrop", "ShowProcesslist", "ShowGrants", "ShowFunctions", "ShowEngine"),
    *("ShowAccess", "ShowSetting", "DropFunction"),
)
_NO_TREE: Final = re.compile(r"AST node of type '([^']*)' does not support JSON")
_FILE_KEYWORD: Final = re.compile(rb"\b(in|out)file\b", re.IGNORECASE)
_QUOTE: Final = re.compile(rb"[`\"\x80-\xff]")  # typographic quotes are quotes to the engine
_DESCRIBE: Final = b"DESCRIBE TABLE "
_ROWS_BYTES_MAX: Final = 64 * 1024  # of inline rows whose tree is looked at


class StatementPolicy:
    """Decides by the trees that `query`, a call into the engine, returns. `functions` are denied unless allowed above."""

    def __init__(self, query: Callable[[str, str], bytes], functions: Iterable[str]) -> None:
        self._query = query
        self._denied = frozenset(name.lower() for name in functions) - _ALLOWED_TABLE_FUNCTIONS
        words = sorted((*self._denied, *_DISK_SETTINGS, "engine", "attach", "infile", "outfile"), key=len, reverse=True)
        self._suspicious = re.compile("|".join(map(re.escape, words)).encode(), re.IGNORECASE)
        self._check_structure = lru_cache(maxsize=256)(self._check_structure_once)

    def check(self, statement: Statement) -> bool:
        """Raise if a statement is not allowed. Returns whether expressions in its inline rows may be evaluated."""
        if statement.structure:
            self._check_structure(statement.structure)
        text, rows = statement.text, b""
        if statement.rows_at:
            text, rows = text[: statement.rows_at], text[statement.rows_at :]
        elif statement.takes_data and not statement.structure:
            text += b"\nFORMAT " + statement.format.encode()
        if self._is_suspicious(text):
            self._check_text(text)
        return not self._is_suspicious(rows) or self._check_rows(rows)

    def changes_settings(self, text: bytes) -> bool:
        """Whether a statement has a SETTINGS clause."""
        return any(node.get("type") == "SetQuery" for node in _nodes(self._tree(text)))

    def _is_suspicious(self, text: bytes) -> bool:
        if b"\\" in text and _QUOTE.search(text):
            return True
        return self._suspicious.search(text) is not None

    def _check_text(self, text: bytes) -> None:
        # By a keyword and not by the tree alone: a statement without a tree may have the clause, too.
        if _FILE_KEYWORD.search(text) and any(word in ("infile", "outfile") for word in self._bare_words(text)):
            raise _denied("INFILE and OUTFILE are not allowed here: transfer the data over HTTP")
        try:
            self._check_tree(self._tree(text))
        except QueryError as error:
            found = _NO_TREE.search(error.text)
            if found is None:
                raise
            if found[1].startswith("DescribeQuery"):
                self._check_tree(self._tree(self._described(text)))
            elif not found[1].startswith(_WITHOUT_TREE):
                raise _denied(f"{found[1]} is not allowed here") from None

    def _check_rows(self, rows: bytes) -> bool:
        """Inline rows are a list of expressions. If they are too many, or are no such list, they are taken as plain data."""
        if len(rows) > _ROWS_BYTES_MAX:
            return False
        try:
            tree = self._tree(b"SELECT " + rows)
        except QueryError:
            return False
        self._check_tree(tree)
        return True

    def _check_structure_once(self, structure: bytes) -> None:
        """The structure of `input(…)` becomes the columns of a table: it must be columns, and nothing behind them."""
        tree = self._tree(input_table(b"t", structure))
        self._check_tree(tree)
        if not tree.keys().isdisjoint(("select", "as_table_function", "as_table")) or not _is_memory_table(tree):
            raise query_error(ClickHouseErrorCode.SYNTAX_ERROR, "the structure of input() must be names and types")

    def _described(self, text: bytes) -> bytes:
        """A SELECT from what a DESCRIBE is about, from the text as the engine formats it."""
        formatted = self._query(f"SELECT formatQuerySingleLine({_literal(text)})", "TSVRaw")
        return b"SELECT * FROM " + formatted.removeprefix(_DESCRIBE)

    def _tree(self, text: bytes) -> dict[str, Any]:
        answer = self._query(f"SELECT parseQueryToJSON({_literal(text)})", "TSVRaw")
        tree: dict[str, Any] = json.loads(answer.decode(errors="replace"))
        return tree

    def _bare_words(self, text: bytes) -> Iterator[str]:
        answer = self._query(f"SELECT tokenizeQuery({_literal(text)})", "JSONCompactEachRow")
        for token in json.loads(answer)[0]:
            if token["type"] == "BareWord":
                yield text[token["begin"] : token["end"]].decode(errors="replace").lower()

    def _check_tree(self, tree: dict[str, Any]) -> None:
        for node in _nodes(tree):
            for clause in _FILE_CLAUSES & node.keys():
                raise _denied(f"{clause} is not allowed here")
            name = str(node.get("func_name" if node.get("type") == "ColumnsApplyTransformer" else "name", ""))
            if node.get("kind") == "TABLE_ENGINE" or node.get("type") == "Storage":
                self._check_engine(node)
            elif node.get("type") in ("Function", "ColumnsApplyTransformer") and name.lower() in self._denied:
                raise _denied(f"{name}() accesses more than tables and is not allowed here")
            if node.get("type") == "SetQuery":
                for change in node.get("changes", ()):
                    if change.get("name") in _DISK_SETTINGS:
                        raise _denied(f"the setting {change['name']} is not allowed here")

    def _check_engine(self, node: dict[str, Any]) -> None:
        engine = node.get("engine") if node.get("type") == "Storage" else node
        name = str(engine.get("name", "")) if isinstance(engine, dict) else ""
        if name and name not in ALLOWED_ENGINES:
            raise _denied(f"the engine {name} is not allowed here")


def input_table(name: bytes, structure: bytes) -> bytes:
    """The statement that creates the table `input(structure)` reads."""
    return b"CREATE TEMPORARY TABLE " + name + b" (" + structure + b"\n) ENGINE = Memory"


def _is_memory_table(tree: dict[str, Any]) -> bool:
    return bool(tree.get("type") == "CreateQuery" and tree.get("storage", {}).get("engine", {}).get("name") == "Memory")


def _nodes(tree: object) -> Iterator[dict[str, Any]]:
    """Every object in a tree. Without recursion: trees may be as deep as the engine's parser allows."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            yield node
            waiting.extend(node.values())
        elif isinstance(node, list):
            waiting.extend(node)


def _literal(text: bytes) -> str:
    return f"unhex('{text.hex()}')"


def _denied(reason: str) -> QueryError:
    return query_error(ClickHouseErrorCode.ACCESS_DENIED, reason)
