"""A pipeline's query and the engine that runs it: the fast path, or Spark's Structured Streaming.

The one rule: the engine follows from what was saved alone, so that status, workers and drivers name the same one, with the same
reason. What a query reads and computes is its identity: state and checkpoints of another query cannot be continued.
"""

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from holdfast.pipeline.model.stored import EARLIEST, StoredStruct

if TYPE_CHECKING:
    from holdfast.pipeline.model.definition import Revision

FAST: Final = "fast"
STREAMING: Final = "structured-streaming"
PLAIN_MAPPING: Final = "auto: records are mapped one by one"

OutputMode = Literal["append", "update", "complete"]


class Watermark(StoredStruct, frozen=True):
    """How long events may be late, by a column that holds their time. No column: there is no watermark."""

    column: str = ""
    delay: str = "10 minutes"


class StreamSource(StoredStruct, frozen=True):
    """A topic of this cluster, as a view that the query names."""

    topic: str
    name: str = ""
    """Of the view; empty: the topic's, with `_` for what SQL does not allow in a name."""
    schema: str = ""
    """Fields of JSON values with their types, as Spark writes them: `id BIGINT, at TIMESTAMP`. Empty: the records as they are."""
    watermark: Watermark = Watermark()
    start: str = EARLIEST
    """Where a new generation starts: `earliest`, `latest` or an ISO 8601 time."""


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


def query_identity(revision: "Revision") -> tuple[object, ...]:
    """What progress and state belong to: a revision with another identity begins a new generation."""
    query, source = revision.query, revision.source
    if not is_streaming(revision):
        return FAST, source.topic, source.brokers
    read = tuple((each.topic, each.name, each.schema, each.watermark) for each in query.sources)
    return STREAMING, read, query.sql, query.python, query.output_mode, query.shuffle_partitions
