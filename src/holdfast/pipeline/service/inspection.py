"""Inspection before anything runs: samples, inference, previews, filter trials, validation of servers, tables.

The one rule: parts may be unsaved. Every call takes parts besides the stored ones, so that an editor sees the effect of an edit
before saving it; `***` stands for the stored secret, under the same rule as when it is saved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.client.topic_reader import KafkaRecord, TopicReader
from holdfast.pipeline.catalog.edits import restored_parts
from holdfast.pipeline.catalog.parts import Given, Part, read_parts
from holdfast.pipeline.catalog.revisions import compose, table_of
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.filters.evaluation import make_filter
from holdfast.pipeline.filters.trial import Trial, Tried, try_on
from holdfast.pipeline.formats.decoders import declared_fields
from holdfast.pipeline.mapping import ddl
from holdfast.pipeline.mapping.inference import table_name
from holdfast.pipeline.model.definition import ClickHouseConfig, KafkaConfig, Revision, SqlConfig, TopicSinkConfig
from holdfast.pipeline.model.errors import MissingFieldError, NotReadyError
from holdfast.pipeline.model.query import QueryConfig, is_streaming
from holdfast.pipeline.service import previews, samples, sink_validation, validation
from holdfast.pipeline.service.connections import ServerConnections
from holdfast.pipeline.service.responses import Inferred, Preview, Sample, TableDiff, TableSchema, Validation
from holdfast.pipeline.service.samples import Where
from holdfast.pipeline.sinks.clickhouse.expressions import normalized
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_between

Validated = Literal["kafka", "sink", "clickhouse", "clickhouse-table"]
VALIDATED: tuple[Validated, ...] = ("kafka", "sink", "clickhouse", "clickhouse-table")
OF_QUERY = "a query's columns are known to Spark alone: its worker creates or checks the table"
INFERRED = "no mapping is saved yet: this one was inferred from the sample"


@dataclass(frozen=True, slots=True)
class _RawSample:
    """A sample, raw and decoded."""

    records: Sequence[KafkaRecord]
    sample: Sample


class PipelineInspection:
    """Inspection of the pipelines of one catalog. Writes nothing, except for `create_table`."""

    def __init__(self, catalog: PipelineStore, connections: ServerConnections) -> None:
        self._catalog, self._connections = catalog, connections

    async def sample(
        self,
        pipeline_id: str,
        *,
        limit: int = 100,
        where: Where = "last",
        unsaved: Mapping[str, Given] | None = None,
    ) -> Sample:
        """Some records of the source."""
        parts = await self._parts(pipeline_id, unsaved)
        return (await self._read_sample(_source(parts), limit, where)).sample

    async def infer(
        self,
        pipeline_id: str,
        *,
        limit: int = 100,
        where: Where = "last",
        unsaved: Mapping[str, Given] | None = None,
    ) -> Inferred:
        """A mapping proposed from a sample. Nothing is saved."""
        source = _source(await self._parts(pipeline_id, unsaved))
        return await self._inferred(source, await self._read_sample(source, limit, where))

    async def try_filter(
        self,
        pipeline_id: str,
        expression: str,
        *,
        limit: int = 100,
        where: Where = "last",
        values: Sequence[Any] | None = None,
    ) -> Trial:
        """A filter applied to a sample, or to the values given instead. `FilterError`."""
        if values is not None:
            check_between("number of values", len(values), 0, self._connections.settings.sample_records_max)
            given = samples.records_of("", 0, samples.synthetic_records(values))
            return await self._connections.work(lambda: try_on(expression, given))
        sample = await self.sample(pipeline_id, limit=limit, where=where)
        return await self._connections.work(lambda: _tried(expression, sample))

    async def preview(
        self,
        pipeline_id: str,
        *,
        limit: int = 20,
        where: Where = "last",
        unsaved: Mapping[str, Given] | None = None,
    ) -> Preview:
        """Sample, filter, map: rows, rejected records and why, the DDL, and the difference to the existing table."""
        parts = await self._parts(pipeline_id, unsaved)
        taken = await self._read_sample(_source(parts), limit, where)
        notes = []
        if "mapping" not in parts:
            inferred = await self._inferred(_source(parts), taken)
            parts["mapping"] = inferred.mapping
            notes.append(INFERRED)
        revision = _revision(parts)
        shown = await self._connections.work(lambda: previews.preview(revision, taken.records))
        shown = msgspec.structs.replace(shown, notes=(*notes, *shown.notes))
        if not isinstance(revision.sink, ClickHouseConfig) or revision.sql or "sink" not in parts:
            return shown
        return msgspec.structs.replace(shown, table=await self._diff(revision))

    async def validate(self, pipeline_id: str, what: str, *, unsaved: Mapping[str, Given] | None = None) -> Validation:
        """Check the source, the server or the table, step by step."""
        parts = await self._parts(pipeline_id, unsaved)
        if what == "kafka":
            source = _source(parts)
            return await self._connections.topic(source, lambda topic: validation.validate_source(source, topic))
        if what == "sink" and not isinstance(parts.get("sink"), ClickHouseConfig):
            return await self._validate_sink(parts)
        sink = _clickhouse(parts)
        if what == "sink":
            server = await self.validate(pipeline_id, "clickhouse", unsaved=unsaved)
            table_checks = (
                await self.validate(pipeline_id, "clickhouse-table", unsaved=unsaved) if server.ok else server
            )
            both = (*server.checks, *(each for each in table_checks.checks if each not in server.checks))
            return Validation(ok=server.ok and table_checks.ok, checks=both)
        if what == "clickhouse":
            return await self._connections.clickhouse(
                sink, lambda connection: validation.validate_clickhouse(sink, connection)
            )
        if what == "clickhouse-table":
            comparable = sink.table and "mapping" in parts and "source" in parts and not _sql(parts)
            comparable = comparable and not (isinstance(query := parts.get("query"), QueryConfig) and query.sources)
            table = table_of(_revision(parts)) if comparable else None
            return await self._connections.clickhouse(
                sink, lambda connection: validation.validate_table(sink, table, connection)
            )
        raise InvalidError("validation", what, "one of " + ", ".join(VALIDATED))

    async def _validate_sink(self, parts: Mapping[str, Part]) -> Validation:
        """A sink that is no ClickHouse."""
        sink = parts.get("sink")
        if sink is None:
            raise MissingFieldError("sink")
        if isinstance(sink, TopicSinkConfig):
            config = sink
            dead_letters = KafkaConfig(topic=sink_validation.dead_letter_topic(config))

            exists = await self._connections.topic(KafkaConfig(topic=config.topic), sink_validation.topic_partitions)
            refused = await self._connections.topic(dead_letters, sink_validation.topic_partitions)
            return sink_validation.validate_topic(config, exists, refused)
        made = compose(parts, 1)
        if not isinstance(made, Revision):
            raise NotReadyError("validating the sink of", str(sink.__struct_config__.tag), made)
        return await self._connections.work(lambda: sink_validation.validate_files(made))

    async def databases(self, pipeline_id: str, *, unsaved: Mapping[str, Given] | None = None) -> list[str]:
        """The databases on the sink's server."""
        return await self._connections.clickhouse(
            _clickhouse(await self._parts(pipeline_id, unsaved)), validation.databases
        )

    async def tables(
        self, pipeline_id: str, database: str = "", *, unsaved: Mapping[str, Given] | None = None
    ) -> list[str]:
        """The tables of a database; by default the sink's."""
        sink = _clickhouse(await self._parts(pipeline_id, unsaved))
        name = database or sink.database
        return await self._connections.clickhouse(sink, lambda connection: validation.tables(connection, name))

    async def schema(
        self, pipeline_id: str, database: str = "", table: str = "", *, unsaved: Mapping[str, Given] | None = None
    ) -> TableSchema:
        """The columns of a table; by default the sink's."""
        sink = _clickhouse(await self._parts(pipeline_id, unsaved))
        place, name = database or sink.database, table or sink.table
        if not name:
            raise InvalidError("table", "", "given: the sink has none yet")
        return await self._connections.clickhouse(sink, lambda connection: validation.schema(connection, place, name))

    async def diff(self, pipeline_id: str) -> TableDiff:
        """The difference between the sink's table and the one the pipeline needs, with the statements that would close it."""
        return await self._diff(self._composed(pipeline_id, await self._parts(pipeline_id, None)))

    async def create_table(self, pipeline_id: str) -> TableDiff:
        """Create the sink's table if it does not exist, then compare. An existing table is never changed."""
        revision = self._composed(pipeline_id, await self._parts(pipeline_id, None))
        table = table_of(revision)

        def create(connection: ClickHouseClient) -> None:
            connection.command(ddl.create_table(normalized(connection, table)))

        await self._connections.clickhouse(_sink(revision), create)
        return await self._diff(revision)

    async def _parts(self, pipeline_id: str, unsaved: Mapping[str, Given] | None) -> dict[str, Part]:
        stored = {name: part.value for name, part in (await self._catalog.parts(pipeline_id)).items()}
        parts = {**stored, **restored_parts(read_parts(unsaved or {}), stored)}
        return {name: await self._connections.resolved(name, part) for name, part in parts.items()}

    async def _inferred(self, source: KafkaConfig, taken: _RawSample) -> Inferred:
        payloads = [record.value for record in taken.records]
        return await self._connections.work(lambda: samples.inferred(taken.sample, declared_fields(source, payloads)))

    async def _read_sample(self, source: KafkaConfig, limit: int, where: Where) -> _RawSample:
        check_between("limit", limit, 1, self._connections.settings.sample_records_max)
        if where not in ("first", "last"):
            raise InvalidError("where", where, "first or last")

        def read(topic: TopicReader) -> _RawSample:
            bounds = topic.bounds()
            records = topic.records(samples.shares(bounds, limit, where))
            return _RawSample(records, samples.sample(source, len(bounds), records))

        return await self._connections.topic(source, read)

    async def _diff(self, revision: Revision) -> TableDiff:
        table = table_of(revision)

        def compare(connection: ClickHouseClient) -> TableDiff:
            return previews.table_diff(validation.compare(connection, table))

        return await self._connections.clickhouse(_sink(revision), compare)

    def _composed(self, pipeline_id: str, parts: dict[str, Part]) -> Revision:
        made = compose(parts, 1)
        if not isinstance(made, Revision):
            raise NotReadyError("comparing the table of", pipeline_id, made)
        if is_streaming(made):
            raise NotReadyError("comparing the table of", pipeline_id, (OF_QUERY,))
        return made


def _tried(expression: str, sample: Sample) -> Trial:
    """A filter tried on a sample; rows are numbered like its records. A record that is no JSON is an error."""
    make_filter(expression)  # a filter that does not parse is an error on an empty sample, too
    rows: list[Tried] = [Tried(at, "error", record.error) for at, record in enumerate(sample.records) if record.error]
    for partition in sorted({record.partition for record in sample.records}):
        mine = [
            at for at, record in enumerate(sample.records) if record.partition == partition and samples.has_row(record)
        ]
        records = samples.records_of(sample.topic, partition, [sample.records[at] for at in mine])
        rows += [Tried(mine[each.row], each.verdict, each.reason) for each in try_on(expression, records).rows]
    rows.sort(key=lambda each: each.row)
    verdicts = [each.verdict for each in rows]
    return Trial(verdicts.count("kept"), verdicts.count("dropped"), verdicts.count("error"), tuple(rows))


def _sql(parts: Mapping[str, Part]) -> str:
    part = parts.get("sql")
    return part.sql if isinstance(part, SqlConfig) else ""


def _source(parts: Mapping[str, Part]) -> KafkaConfig:
    source, query = parts.get("source"), parts.get("query")
    if isinstance(query, QueryConfig) and query.sources:
        return KafkaConfig(topic=query.sources[0].topic)
    if not isinstance(source, KafkaConfig):
        raise MissingFieldError("source")
    return source


def _clickhouse(parts: Mapping[str, Part]) -> ClickHouseConfig:
    sink = parts.get("sink")
    if not isinstance(sink, ClickHouseConfig):
        if sink is None:
            raise MissingFieldError("sink")
        raise InvalidError("sink.kind", str(sink.__struct_config__.tag), "clickhouse")
    return sink


def _sink(revision: Revision) -> ClickHouseConfig:
    return _clickhouse({"sink": revision.sink})


def _revision(parts: Mapping[str, Part]) -> Revision:
    """The parts as a revision; without a sink or its table, a table named after the topic stands in."""
    source = _source(parts)
    sink = parts.get("sink", ClickHouseConfig(table=table_name(source.topic)))
    if isinstance(sink, ClickHouseConfig) and not sink.table:
        sink = msgspec.structs.replace(sink, table=table_name(source.topic))
    made = compose({**parts, "sink": sink}, 1)
    if not isinstance(made, Revision):
        raise NotReadyError("previewing", source.topic, made)
    if is_streaming(made):
        raise NotReadyError("previewing", source.topic, (OF_QUERY,))
    return made
