"""A pipeline's query and the engine that runs it: the fast path, or Spark's Structured Streaming.

The one rule: the engine follows from what was saved alone, so that status, workers and drivers name the same one, with the same
reason. What a query reads and computes is its identity: state and checkpoints of another query cannot be continued.
"""

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from holdfast.pipeline.model.stored import EARLIEST, StoredStruct
from holdfast.pipeline.model.value_format import CsvOptions, SchemaRegistry, ValueFormat

if TYPE_CHECKING:
    from holdfast.pipeline.model.definition import Revision

FAST: Final = "fast"
STREAMING: Final = "structured-streaming"
PLAIN_MAPPING: Final = "auto: records are mapped one by one"

OutputMode = Literal["append", "update", "complete"]


class EventTimeWatermark(StoredStruct, frozen=True):
    """How long events may be late, by a column that holds their time. No column: there is no watermark."""

    column: str = ""
    delay: str = "10 minutes"


class StreamSource(StoredStruct, frozen=True):
    """A topic of this cluster, as a view that the query names."""

    topic: str
    name: str = ""
    """Of the view; empty: the topic's, with `_` for what SQL does not allow in a name."""
    schema: str = ""
    """Fields of values with their types, as Spark writes them: `id BIGINT, at TIMESTAMP`. Empty: the records as they are."""
    watermark: EventTimeWatermark = EventTimeWatermark()
    start: str = EARLIEST
    """Where a new generation starts: `earliest`, `latest` or an ISO 8601 time."""
    format: ValueFormat = "json"
    schema_registry: SchemaRegistry = SchemaRegistry()
    """Where the schemas of values are that begin with a schema's id."""
    value_schema: str = ""
    """The one schema of all values, instead of a registry: Avro's JSON, or a .proto file."""
    message: str = ""
    """The full name of the message in `value_schema`, for `protobuf`."""
    csv: CsvOptions = CsvOptions()
    raw: Literal["utf-8", "base64"] = "utf-8"
    bad_records: Literal["dlq", "null"] = "dlq"
    """What becomes of a record whose value cannot be decoded, or has a field of another type: a dead letter, or nulls."""

    @property
    def has_dead_letters(self) -> bool:
        """Whether records may be rejected: without fields nothing is decoded."""
        return bool(self.schema) and self.bad_records == "dlq"


class QueryConfig(StoredStruct, frozen=True):
    """A query over topics. Either `sql` or `python`; neither: the pipeline maps records, and has no query."""

    engine: Literal["auto", "fast", "structured-streaming"] = "auto"
    sources: tuple[StreamSource, ...] = ()
    sql: str = ""
    """Spark SQL over the views of the sources."""
    python: str = ""
    """The text of a Python file with `def pipeline(spark, sources) -> DataFrame`; `sources` are the views by name."""
    output_mode: OutputMode = "append"
    rows_per_batch_max: int = 500_000
    """Of each source."""
    shuffle_partitions: int = 0
    """Partitions of the state, fixed when a generation begins; 0: one for each core that Spark has then."""


class ChosenEngine(NamedTuple):
    """Which engine runs a revision, and why."""

    engine: str
    reason: str


def chosen_engine(revision: "Revision") -> ChosenEngine:
    """The engine of a revision."""
    query = revision.query
    if query.engine == STREAMING:
        return ChosenEngine(STREAMING, "engine is structured-streaming")
    if query.engine == FAST:
        return ChosenEngine(FAST, "engine is fast")
    if query.python:
        return ChosenEngine(STREAMING, "auto: the query is a Python file")
    if len(query.sources) > 1:
        return ChosenEngine(STREAMING, f"auto: the query reads {len(query.sources)} sources")
    if query.sql or query.sources:
        return ChosenEngine(STREAMING, "auto: the query may aggregate, join or keep state")
    return ChosenEngine(FAST, PLAIN_MAPPING)


def is_streaming(revision: "Revision") -> bool:
    """Whether Structured Streaming runs it."""
    return chosen_engine(revision).engine == STREAMING


def topics_of(revision: "Revision") -> tuple[str, ...]:
    """The topics that a revision reads, each once."""
    if not is_streaming(revision):
        return (revision.source.topic,)
    return tuple(dict.fromkeys(source.topic for source in revision.query.sources))


def query_identity(revision: "Revision") -> tuple[object, ...]:
    """What progress and state belong to: a revision with another identity begins a new generation.

    Other brokers may be of the same Kafka: see `generations.with_brokers`.
    """
    query, source = revision.query, revision.source
    if not is_streaming(revision):
        return FAST, source.topic
    read = tuple((each.topic, each.name, each.schema, each.watermark, each.bad_records) for each in query.sources)
    formats = tuple((each.format, each.value_schema, each.message, each.csv, each.raw) for each in query.sources)
    return STREAMING, read, formats, query.sql, query.python, query.output_mode, query.shuffle_partitions
