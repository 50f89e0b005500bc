"""From saved parts to a recipe, or to the list of what is in the way. No I/O.

The one rule: a recipe can be carried out as it stands: its parts fit each other, so that nobody behind it finds out on a worker.
"""

from collections.abc import Mapping
from typing import Final

from holdfast.pipeline.catalog.parts import Part
from holdfast.pipeline.mapping.ddl import TableSpec
from holdfast.pipeline.mapping.inference import propose_order
from holdfast.pipeline.model.column_mapping import Mapping as ColumnMapping
from holdfast.pipeline.model.definition import (
    ClickHouseConfig,
    DriftPolicy,
    FiltersConfig,
    IcebergConfig,
    KafkaConfig,
    Revision,
    SinkConfig,
    SqlConfig,
    TopicSinkConfig,
)
from holdfast.vocabulary.errors import InvalidError

NEEDED: Final = ("source", "sink", "mapping")


def compose(parts: Mapping[str, Part], version: int) -> Revision | tuple[str, ...]:
    """The recipe these parts make; otherwise everything that is missing or does not fit, in words."""
    problems = [f"{name}: not saved yet" for name in NEEDED if name not in parts]
    source, sink, mapping = parts.get("source"), parts.get("sink"), parts.get("mapping")
    filters, sql, drift = parts.get("filters"), parts.get("sql"), parts.get("drift")
    if isinstance(sink, ClickHouseConfig | IcebergConfig) and not sink.table:
        problems.append("sink.table: missing")
    if problems or not isinstance(source, KafkaConfig) or not isinstance(mapping, ColumnMapping):
        return tuple(problems)
    assert isinstance(sink, SinkConfig)
    recipe = Revision(
        version=version,
        source=source,
        sink=sink,
        mapping=mapping,
        filters=filters if isinstance(filters, FiltersConfig) else FiltersConfig(),
        sql=sql.sql if isinstance(sql, SqlConfig) else "",
        drift=drift if isinstance(drift, DriftPolicy) else DriftPolicy(),
    )
    return tuple(_conflicts(recipe)) or recipe


def _conflicts(recipe: Revision) -> list[str]:
    """What of a complete set of parts contradicts itself."""
    found = []
    columns = [column.column for column in recipe.mapping.columns]
    match recipe.sink:
        case ClickHouseConfig() if not recipe.sql:
            try:
                table_of(recipe)
            except InvalidError as error:
                found.append(f"sink and mapping: {error}")
        case TopicSinkConfig(topic=topic, key_column=key):
            if topic == recipe.source.topic and not recipe.source.brokers:
                found.append(f"sink.topic: {topic!r} is the source, and the pipeline would read what it writes")
            if key and key not in columns:
                found.append(f"sink.keyColumn: {key!r} is not a column of the mapping")
    if recipe.sql and recipe.drift.unknown_fields == "add-column":
        found.append("drift.unknownFields: add-column does not go with sql, which names its columns itself")
    return found


def table_of(recipe: Revision) -> TableSpec:
    """The ClickHouse table this recipe writes, when it has no SQL of its own. `InvalidError` if its parts do not fit."""
    sink = recipe.sink
    if not isinstance(sink, ClickHouseConfig):
        raise InvalidError("sink", sink.__struct_config__.tag, "clickhouse")
    return TableSpec(
        database=sink.database or "default",
        name=sink.table,
        mapping=recipe.mapping,
        order_by=sink.order_by or propose_order(recipe.mapping.columns),
        engine=sink.engine,
        version_column=sink.version_column or None,
        window=sink.dedup_window,
        overflow=recipe.drift.unknown_fields == "overflow",
    )
