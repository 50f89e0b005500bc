"""Whether the plan of a pipeline's SQL works row by row and is deterministic.

The one rule: refuse what was not shown. Classic Spark gives its plan as objects: every node and every expression must be of a class
that is listed. Spark Connect gives a text, written in full for this purpose: every node and every name in front of a parenthesis
must be listed, which is less than Spark can do.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.pipeline.driver.sql_functions import CLASSES, NAMES, PACKAGE, SPECIAL_TIMES, TIME_PARSERS
from holdfast.vocabulary.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FULL_TEXT: Final = {"spark.sql.debug.maxToStringFields": "1000000"}
"""Settings of a session in which plans are written in full."""
NO_SUBSTITUTION: Final = {"spark.sql.variable.substitute": "false"}
"""Settings of a session in which `${env:NAME}` in SQL is text, and not the driver's environment or a setting of Spark's."""

_NODES: Final = frozenset({"Project", "Filter", "SubqueryAlias", "View", "Generate", "LocalRelation", "LogicalRDD"})
_ROW_BY_ROW: Final = (
    "row by row: columns, conditions and LATERAL VIEW explode, nothing that joins, sorts, groups or limits"
)
_DETERMINISTIC: Final = "deterministic: the same result for the same record"
_SHOWN: Final = "shown to be deterministic: on Spark Connect only common functions are"
_TIME_KINDS: Final = frozenset({"date", "timestamp", "timestamp_ntz"})
_SPECIAL: Final = "|".join(SPECIAL_TIMES)
_TYPED_LITERAL: Final = re.compile(
    rf"\b(date|timestamp(?:_ntz|_ltz)?)(?:\s|/\*.*?\*/|--[^\n]*\n)*r?['\"]\s*({_SPECIAL})\b", re.IGNORECASE | re.DOTALL
)
_TEXT_NODE: Final = re.compile(r"^[\s:|+\-]*([A-Za-z]+)")
_TEXT_NAME: Final = re.compile(r"([A-Za-z_][\w.]*)\s*\(")
_TEXT_SUBQUERY: Final = re.compile(r"(scalar-subquery|exists|list|in)#\d+ \[")
_TEXT_TIME: Final = re.compile(rf"\w+\(\s*({_SPECIAL})\b", re.IGNORECASE)
_TEXT_CUT: Final = re.compile(r"\.\.\. \d+ more fields")


def check_text(sql: str) -> None:
    """Refuse what leaves no trace in the plan: `DATE 'today'` is a date by then."""
    if (found := _TYPED_LITERAL.search(sql)) is not None:
        raise InvalidError("sql", found[0], _DETERMINISTIC)


def check_plan(frame: "DataFrame") -> None:
    """Refuse SQL that is not row by row and deterministic."""
    if hasattr(type(frame), "_explain_string"):
        check_lines(analysed_lines(_explained(frame)))
        return
    analysed = _jvm_plan(frame)
    for node in nodes_of(analysed.toJSON()):
        _check_node(node)
    if not analysed.deterministic():
        raise InvalidError("sql", "a non-deterministic function", _DETERMINISTIC)


@dataclass(slots=True)
class PlanNode:
    """A node of a plan, or an expression in it: its class, its fields and its children."""

    kind: str
    fields: dict[str, Any]
    children: "list[PlanNode]" = field(default_factory=list)

    @property
    def name(self) -> str:
        """The class, without the package where it is that of expressions."""
        return self.kind.removeprefix(PACKAGE)

    def expressions(self) -> "Iterator[PlanNode]":
        """The roots of the expressions in its fields."""
        for value in self.fields.values():
            yield from _trees_in(value)


def nodes_of(text: str | bytes) -> list[PlanNode]:
    """The nodes of a plan in Spark's own JSON: every tree as a list, parents before their children."""
    return _flattened(_tree(iter(msgspec.json.decode(text))))


def _tree(items: Iterator[dict[str, Any]]) -> PlanNode:
    item = next(items)
    node = PlanNode(item["class"], item)
    node.children = [_tree(items) for _ in range(item["num-children"])]
    return node


def _flattened(node: PlanNode) -> list[PlanNode]:
    return [node, *(inner for child in node.children for inner in _flattened(child))]


def _trees_in(value: Any) -> Iterator[PlanNode]:
    """The trees in a field's value: a list of nodes, or whatever holds such lists."""
    if isinstance(value, list) and value and isinstance(value[0], dict) and "class" in value[0]:
        yield _tree(iter(value))
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _trees_in(inner)


def _check_node(node: PlanNode) -> None:
    name = node.kind.rpartition(".")[2]
    if name not in _NODES:
        raise InvalidError("sql", name, _ROW_BY_ROW)
    for root in node.expressions():
        for each in _flattened(root):
            _check_expression(each)


def _check_expression(node: PlanNode) -> None:
    if "Subquery" in node.name or node.name in ("Exists", "ListQuery"):
        raise InvalidError("sql", "a sub-query", "without sub-queries")
    if not node.kind.startswith(PACKAGE) or node.name not in CLASSES:
        raise InvalidError("sql", _function_name(node), f"{_DETERMINISTIC}; it is not known to be so")
    parses_time = node.name in TIME_PARSERS and (node.name != "Cast" or _has_time(node.fields.get("dataType")))
    if parses_time and any(map(_may_be_special_time, node.children)):
        raise InvalidError("sql", "a constant time such as 'today'", _DETERMINISTIC)
    for inner in node.expressions():  # arguments that are no children
        for each in _flattened(inner):
            _check_expression(each)


def _has_time(kind: Any) -> bool:
    """Whether a type is a time, or has one inside."""
    if isinstance(kind, dict):
        return any(map(_has_time, kind.values()))
    if isinstance(kind, list):
        return any(map(_has_time, kind))
    return isinstance(kind, str) and kind in _TIME_KINDS


def _may_be_special_time(node: PlanNode) -> bool:
    """Whether a constant may be a text for the time of the query. A constant that is computed may be any text."""
    if node.name == "Literal":
        text = str(node.fields.get("value", "")).strip().lower()
        return str(node.fields.get("dataType")).startswith("string") and text.startswith(SPECIAL_TIMES)
    inner = _flattened(node)
    return len(inner) > 1 and not any(each.name in ("AttributeReference", "NamedLambdaVariable") for each in inner)


def _function_name(node: PlanNode) -> str:
    """`CurrentTimestamp` as `current_timestamp()`, as it is written."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", node.name.rpartition(".")[2]).lower() + "()"


def _jvm_plan(frame: Any) -> Any:
    return frame._jdf.queryExecution().analyzed()


def _explained(frame: Any) -> str:
    text: str = frame._explain_string(extended=True)
    return text


def analysed_lines(explained: str) -> list[str]:
    """The lines of the analysed plan, without the one that lists its columns."""
    analysed = explained.partition("== Analyzed Logical Plan ==")[2].partition("== Optimized Logical Plan ==")[0]
    return [line for line in analysed.strip().splitlines() if line.strip()][1:]


def check_lines(lines: list[str]) -> None:
    """The same for a plan in Spark's words."""
    if not lines:
        raise InvalidError("sql", "a plan without text", _SHOWN)
    for line in lines:
        node = _TEXT_NODE.match(line)
        if node is None or node[1] not in _NODES:
            raise InvalidError("sql", node[1] if node is not None else line[:100], _ROW_BY_ROW)
        if _TEXT_CUT.search(line) is not None:
            raise InvalidError("sql", "a plan whose text is cut", _SHOWN)
        if _TEXT_SUBQUERY.search(line) is not None:
            raise InvalidError("sql", "a sub-query", "without sub-queries")
        if _TEXT_TIME.search(line) is not None:
            raise InvalidError("sql", "a constant time such as 'today'", _DETERMINISTIC)
        for name in _TEXT_NAME.findall(line[node.end() :]):
            if name.lower() not in NAMES:
                raise InvalidError("sql", f"{name}(…)", _SHOWN)
