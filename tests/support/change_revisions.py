"""Pipelines over change events."""

from typing import Any

from holdfast.pipeline.catalog.parts import read_parts
from holdfast.pipeline.catalog.revisions import compose
from holdfast.pipeline.model.definition import Revision

COLUMNS = [
    {"fieldPath": "id", "column": "id", "type": "Int64"},
    {"fieldPath": "name", "column": "name", "type": "String"},
]
SINK = {"table": "orders", "engine": "ReplacingMergeTree", "orderBy": ["id"]}


def composed(sink: dict[str, Any] | None = None, source: dict[str, Any] | None = None, **parts: Any) -> Any:
    """The revision, or its problems."""
    given = {
        "source": {"topic": "t", "envelope": "debezium", **(source or {})},
        "sink": SINK if sink is None else sink,
        "mapping": {"columns": COLUMNS},
    }
    return compose(read_parts({**given, **parts}), 1)


def change_revision(**given: Any) -> Revision:
    made = composed(**given)
    assert isinstance(made, Revision), made
    return made
