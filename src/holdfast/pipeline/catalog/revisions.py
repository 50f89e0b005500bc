"""From saved parts to a revision, or to the list of problems. No I/O.

The one rule: the parts of a revision fit together, so a contradiction is found when it is saved and not on a worker.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from holdfast.pipeline.catalog.parts import Part
from holdfast.pipeline.mapping.ddl import TableSpec, table_spec
from holdfast.pipeline.model.column_mapping import CHANGE_COLUMNS, VERSION_COLUMN
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
    has_changes,
)
from holdfast.pipeline.model.query import QueryConfig
from holdfast.vocabulary.errors import InvalidError

NEEDED: Final = ("source", "sink", "mapping")
REPLACING: Final = "ReplacingMergeTree"
NEEDED_BY_QUERY: Final = ("sink",)
"""The query has its own sources, and its columns are the table's."""


def compose(parts: Mapping[str, Part], version: int) -> Revision | tuple[str, ...]:
    """The revision of these parts, or everything that is missing or does not fit."""
    query = parts.get("query")
    if isinstance(query, QueryConfig) and query.sources:
        return _compose_query(parts, query, version)
    problems = [f"{name}: not saved yet" for name in NEEDED if name not in parts]
    source, sink, mapping = parts.get("source"), parts.get("sink"), parts.get("mapping")
    filters, sql, drift = parts.get("filters"), parts.get("sql"), parts.get("drift")
    if isinstance(sink, ClickHouseConfig | IcebergConfig) and not sink.table:
        problems.append("sink.table: missing")
    if problems or not isinstance(source, KafkaConfig) or not isinstance(mapping, ColumnMapping):
        return tuple(problems)
    assert isinstance(sink, SinkConfig)
    if isinstance(sink, ClickHouseConfig) and has_changes(source) and not sink.version_column:
        sink = msgspec.structs.replace(sink, version_column=VERSION_COLUMN)
    revision = Revision(
        version=version,
        source=source,
        sink=sink,
        mapping=mapping,
        filters=filters if isinstance(filters, FiltersConfig) else FiltersConfig(),
        sql=sql.sql if isinstance(sql, SqlConfig) else "",
        drift=drift if isinstance(drift, DriftPolicy) else DriftPolicy(),
        query=query if isinstance(query, QueryConfig) else QueryConfig(),
    )
    return tuple(_conflicts(revision)) or revision


def _compose_query(parts: Mapping[str, Part], query: QueryConfig, version: int) -> Revision | tuple[str, ...]:
    """Of a query. `source` and `mapping`, if they were saved before, are kept and not used."""
    problems = [f"{name}: not saved yet" for name in NEEDED_BY_QUERY if name not in parts]
    sink = parts.get("sink")
    filters, sql, drift = parts.get("filters"), parts.get("sql"), parts.get("drift")
    if isinstance(filters, FiltersConfig) and filters.enabled:
        problems.append("filters: cannot be combined with a query, which has WHERE")
    if isinstance(sql, SqlConfig) and sql.sql:
        problems.append("sql: cannot be combined with a query; it is query.sql there")
    if isinstance(drift, DriftPolicy) and drift.unknown_fields != DriftPolicy().unknown_fields:
        problems.append("drift: cannot be combined with a query, whose schemas say which fields are read")
    if sink is not None:
        problems += stream_sink_problems(sink, query)
    if problems or not isinstance(sink, ClickHouseConfig):
        return tuple(problems)
    first = query.sources[0]
    return Revision(
        version=version,
        source=KafkaConfig(topic=first.topic, start=first.start),
        sink=sink,
        mapping=ColumnMapping(()),
        drift=drift if isinstance(drift, DriftPolicy) else DriftPolicy(),
        query=query,
    )


def stream_sink_problems(sink: Part, query: QueryConfig) -> list[str]:
    """Why a sink cannot take the query's result exactly once."""
    if not isinstance(sink, ClickHouseConfig):
        kind = sink.__struct_config__.tag
        return [f"sink.kind: {kind} cannot be combined with a query, which writes to clickhouse"]
    found = [] if sink.table else ["sink.table: missing"]
    if sink.version_column:
        found.append("sink.versionColumn: cannot be combined with a query, whose batches are the version")
    if sink.engine.startswith(("Replicated", "Shared")) or sink.cluster:
        found.append("sink.engine: a query writes to a table of one server, where its fence is")
    if sink.deleted_column:
        found.append("sink.deletedColumn: cannot be combined with a query")
    replacing = sink.engine == "ReplacingMergeTree"
    if query.output_mode == "update" and not sink.order_by:
        found.append("sink.orderBy: missing; in output mode update it is the key whose last row counts")
    if query.output_mode != "update" and replacing:
        found.append(
            f"sink.engine: ReplacingMergeTree is for output mode update; in {query.output_mode} rows of equal keys would be lost"
        )
    return found


def _conflicts(revision: Revision) -> list[str]:
    """Contradictions between the parts."""
    if has_changes(revision.source) and (refused := _change_conflicts(revision)):
        return refused
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


def _change_conflicts(revision: Revision) -> list[str]:
    """Why changes of rows cannot be written to this sink."""
    sink, envelope = revision.sink, revision.source.envelope
    if not isinstance(sink, ClickHouseConfig):
        kind = sink.__struct_config__.tag
        return [
            f"source.envelope: {envelope} needs a ClickHouse sink: rows in a {kind} sink are never updated or deleted"
        ]
    found = []
    if not sink.engine.endswith(REPLACING):
        found.append(
            f"sink.engine: {envelope} needs {REPLACING}: a {sink.engine} keeps every version of a row, and deleted ones"
        )
    if sink.version_column != VERSION_COLUMN:
        found.append(f"sink.versionColumn: must be empty with {envelope}, whose changes have a version of their own")
    if sink.deleted_column:
        found.append(f"sink.deletedColumn: must be empty with {envelope}, whose changes say what is deleted")
    if not sink.order_by or not set(sink.order_by) <= {column.column for column in revision.mapping.columns}:
        found.append(
            f"sink.orderBy: {envelope} needs the columns of the primary key, which updates and deletes are found by"
        )
    if reserved := [column.column for column in revision.mapping.columns if column.column in CHANGE_COLUMNS]:
        found.append(f"mapping: {', '.join(reserved)} is a column of {envelope} itself")
    if revision.sql:
        found.append(f"sql: must be empty with {envelope}: a delete has no row that it could select from")
    return found


def table_of(revision: Revision) -> TableSpec:
    """The ClickHouse table that a revision without SQL writes. `InvalidError` if its parts do not fit."""
    sink = revision.sink
    if not isinstance(sink, ClickHouseConfig):
        raise InvalidError("sink.kind", sink.__struct_config__.tag, "clickhouse")
    overflow = revision.drift.unknown_fields == "overflow"
    database, changes = sink.database or "default", has_changes(revision.source)
    return table_spec(sink, revision.mapping.columns, database=database, overflow=overflow, changes=changes)
