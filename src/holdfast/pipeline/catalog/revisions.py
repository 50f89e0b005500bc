"""From saved parts to a revision, or to the list of problems. No I/O.

The one rule: the parts of a revision fit together, so a contradiction is found when it is saved and not on a worker.
"""

from collections.abc import Mapping
from typing import Final

from holdfast.pipeline.catalog.parts import Part
from holdfast.pipeline.mapping.ddl import TableSpec, table_spec
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
    """The revision of these parts, or everything that is missing or does not fit."""
    problems = [f"{name}: not saved yet" for name in NEEDED if name not in parts]
    source, sink, mapping = parts.get("source"), parts.get("sink"), parts.get("mapping")
    filters, sql, drift = parts.get("filters"), parts.get("sql"), parts.get("drift")
    if isinstance(sink, ClickHouseConfig | IcebergConfig) and not sink.table:
        problems.append("sink.table: missing")
    if problems or not isinstance(source, KafkaConfig) or not isinstance(mapping, ColumnMapping):
        return tuple(problems)
    assert isinstance(sink, SinkConfig)
    revision = Revision(
        version=version,
        source=source,
        sink=sink,
        mapping=mapping,
        filters=filters if isinstance(filters, FiltersConfig) else FiltersConfig(),
        sql=sql.sql if isinstance(sql, SqlConfig) else "",
        drift=drift if isinstance(drift, DriftPolicy) else DriftPolicy(),
    )
    return tuple(_conflicts(revision)) or revision


def _conflicts(revision: Revision) -> list[str]:
    """Contradictions between the parts."""
    found = []
    columns = [column.column for column in revision.mapping.columns]
    match revision.sink:
        case ClickHouseConfig() if not revision.sql:
            try:
                table_of(revision)
            except InvalidError as error:
                found.append(f"sink and mapping: {error}")
        case TopicSinkConfig(topic=topic, key_column=key):
            if topic == revision.source.topic and not revision.source.brokers:
                found.append(f"sink.topic: {topic!r} is the source: the pipeline would read what it writes")
            if key and key not in columns:
                found.append(f"sink.keyColumn: {key!r} is not a column of the mapping")
    if revision.sql and revision.drift.unknown_fields == "add-column":
        found.append("drift.unknownFields: add-column cannot be combined with sql, which defines its columns")
    return found


def table_of(revision: Revision) -> TableSpec:
    """The ClickHouse table that a revision without SQL writes. `InvalidError` if its parts do not fit."""
    sink = revision.sink
    if not isinstance(sink, ClickHouseConfig):
        raise InvalidError("sink.kind", sink.__struct_config__.tag, "clickhouse")
    overflow = revision.drift.unknown_fields == "overflow"
    return table_spec(sink, revision.mapping.columns, database=sink.database or "default", overflow=overflow)
