"""What the SQL of a query may do: read its sources, and compute.

The one rule: what is not listed is refused. Spark runs a statement (`INSERT`, `SET`, `ADD JAR`, a script) as soon as it gets the
text, so the text is parsed first; what it means once names are resolved is checked afterwards, sub-queries included.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.pipeline.driver.slot_revisions import PermanentError
from holdfast.pipeline.driver.sql_functions import PACKAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No TABLESAMPLE: its seed is drawn when the query starts. No TRANSFORM: it runs a program.
_COMPUTING: Final = frozenset(
    {
        "Project", "Filter", "Aggregate", "Distinct", "Sort", "GlobalLimit", "LocalLimit", "Offset", "Union", "Except",
        "Intersect", "Join", "LateralJoin", "SubqueryAlias", "Generate", "Window", "RepartitionByExpression", "Repartition",
        "RebalancePartitions",
    }
)  # fmt: skip
_PARSED: Final = _COMPUTING | {
    "UnresolvedWith", "UnresolvedRelation", "UnresolvedHaving", "UnresolvedHint", "UnresolvedInlineTable",
    "UnresolvedSubqueryColumnAliases", "UnresolvedTableValuedFunction", "UnresolvedTVFAliases", "WithWindowDefinition", "Pivot",
    "Unpivot", "PipeOperator", "LocalRelation", "OneRowRelation",
}  # fmt: skip
_ANALYSED: Final = _COMPUTING | {
    "View", "WithCTE", "CTERelationDef", "CTERelationRef", "Expand", "ResolvedHint", "Deduplicate", "DeduplicateWithinWatermark",
    "EventTimeWatermark", "UpdateEventTimeWatermarkColumn", "StreamingRelation", "StreamingRelationV2",
    "StreamingDataSourceV2Relation", "CollectMetrics", "MapInArrow", "LocalRelation", "OneRowRelation", "Range",
}  # fmt: skip
_REFLECTION: Final = ("CallMethodViaReflection", "TryReflect", "StaticInvoke", "Invoke")


def check_statement(session: "SparkSession", sql: str) -> None:
    """Refuse text that is no query, before Spark runs it, and one that names tables of other databases."""
    parsed: Any = session._jsparkSession.sessionState().sqlParser().parsePlan(sql)
    nodes = msgspec.json.decode(parsed.toJSON())
    for node in nodes:
        name = _short(node["class"])
        if name not in _PARSED:
            raise PermanentError(f"query.sql: {name} is not allowed: a query is one SELECT over its sources")
    for node in _classes_in(nodes):
        if _short(node["class"]) == "UnresolvedRelation" and "," in str(node.get("multipartIdentifier", "")):
            raise PermanentError(f"query.sql: {node['multipartIdentifier']} is not one of its sources")


def check_reads(analysed: str | bytes) -> None:
    """Refuse an analysed plan, in Spark's own JSON, that reads anything but its sources or runs code of the server's."""
    for node in _classes_in(msgspec.json.decode(analysed)):
        kind, name = node["class"], _short(node["class"])
        if not kind.startswith(PACKAGE) and name not in _ANALYSED:
            raise PermanentError(f"query.sql: {name} is not one of its sources, nor a computation that is allowed")
        if name in _REFLECTION:
            raise PermanentError(f"query.sql: {name} calls code of the server's, which a pipeline may not")


def _classes_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every node and expression, however deep: a sub-query is a field of an expression."""
    if isinstance(value, dict):
        if "class" in value:
            yield value
        for inner in value.values():
            yield from _classes_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _classes_in(inner)


def _short(kind: str) -> str:
    return kind.rpartition(".")[2]
