"""From a revision's query to a streaming DataFrame: views over topics, Spark SQL or a Python file, and what is refused.

The one rule: what would make state or rows depend on chance is refused before anything runs. Rows of a batch are computed once and
stored, so chance in them is harmless; in state it is not, because a rerun of the batch would leave other state than its rows show.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from holdfast.clickhouse.quoting import invalid_name_reason
from holdfast.client.cluster_address import ClusterAddress
from holdfast.pipeline.driver.slot_revisions import PermanentError
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.driver.sql import column_of, first_line
from holdfast.pipeline.driver.sql_plan import NO_SUBSTITUTION, nodes_of
from holdfast.pipeline.driver.streaming.restricted_sql import check_reads, check_statement
from holdfast.pipeline.driver.streaming.source_view import source_view
from holdfast.pipeline.model.column_mapping import Column
from holdfast.pipeline.model.query import QueryConfig, StreamSource
from holdfast.pipeline.model.stored import EARLIEST, LATEST
from holdfast.pipeline.sinks.clickhouse.stream_sink import RESERVED_BY_STREAMS
from holdfast.spark.cluster_options import address_options
from holdfast.spark.ranges import Planner
from holdfast.spark.settings import HIDDEN_OPTIONS
from holdfast.spark.source.options import parse_source_options
from holdfast.spark.source.plan import initial_position
from holdfast.spark.source.positions import StreamPosition
from holdfast.vocabulary.errors import HoldfastError, InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SESSION: Final = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.runSQLOnFiles": "false",
    **NO_SUBSTITUTION,
    **HIDDEN_OPTIONS,
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    # State files get the name of their attempt: two owners, or two attempts of a task, never write one file.
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stopTimeout": "0",
}
_STATEFUL: Final = frozenset(
    {
        "Aggregate", "Distinct", "Join", "Deduplicate", "DeduplicateWithinWatermark", "GlobalLimit", "FlatMapGroupsWithState",
        "FlatMapGroupsInPandasWithState", "TransformWithState", "TransformWithStateInPySpark", "Window",
    }
)  # fmt: skip
_LIMITS: Final = frozenset({"GlobalLimit", "LocalLimit", "Offset"})


class QueryFailedError(HoldfastError):
    """Spark cannot start the query, or ended it. It is started again."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """A query that can be started. `columns`: those of its table; `not_null`: which of them the table's key needs."""

    frame: "DataFrame"
    columns: tuple[Column, ...]
    not_null: tuple[str, ...]
    stateful: bool
    reads_all: bool
    """Whether it reads every record of a batch."""


def stream_session(jobs: SparkJobs, config: QueryConfig) -> "SparkSession":
    """A session of the query's own."""
    if jobs.remote:
        raise PermanentError(
            "engine structured-streaming needs a Spark master; Spark Connect (spark.remote) is not enough"
        )
    session = jobs.spark.newSession()
    for name, value in SESSION.items():
        session.conf.set(name, value)
    partitions = config.shuffle_partitions or jobs.spark.sparkContext.defaultParallelism
    session.conf.set("spark.sql.shuffle.partitions", str(max(1, partitions)))
    return session


def start_position(source: StreamSource, address: ClusterAddress, given: Mapping[str, int]) -> StreamPosition:
    """Where a source begins now. `given`: offsets by partition that a rewind named."""
    options = {**address_options(address), "topics": source.topic}
    if given:
        options["startingOffsets"] = json.dumps({source.topic: dict(given)})
    elif source.start in (EARLIEST, LATEST):
        options["startingOffsets"] = source.start
    else:
        options |= {"startingTimestamp": source.start, "startingOffsetsByTimestampStrategy": "latest"}
    return initial_position(parse_source_options(options, streaming=True), Planner(address))


def build_query(
    session: "SparkSession",
    config: QueryConfig,
    *,
    order_by: tuple[str, ...],
    address: ClusterAddress,
    starts: tuple[dict[str, dict[str, int]], ...],
    python_allowed: bool,
) -> StreamQuery:
    """The query over its sources. `PermanentError`: it cannot run, or not exactly once."""
    if config.python and not python_allowed:
        raise PermanentError(
            "query.python runs code in the driver, which this worker does not allow: set worker.python_queries=true"
        )
    try:
        views = {
            source.name: source_view(session, source, address, start, config.rows_per_batch_max)
            for source, start in zip(config.sources, starts, strict=True)
        }
        for name, view in views.items():
            view.createOrReplaceTempView(name)
        frame = _from_python(session, config.python, views) if config.python else _from_sql(session, config.sql)
        names = check_streaming_plan(frame, restricted=not config.python)
        stateful = bool(names & _STATEFUL)
        if config.output_mode == "update" and not stateful:
            raise PermanentError(
                "query.outputMode: update needs a query that keeps state; without, rows have no versions"
            )
        columns = _columns(frame, order_by)
    except InvalidError as error:
        raise PermanentError(str(error)) from None
    except PermanentError:
        raise
    except Exception as error:
        reason = f"query: {type(error).__name__}: {first_line(error)}"
        raise (PermanentError(reason) if config.python or _is_users(error) else QueryFailedError(reason)) from None
    not_null = tuple(name for name in order_by if name in frame.columns)
    return StreamQuery(frame, columns, not_null, stateful, reads_all=not names & _LIMITS)


def _is_users(error: Exception) -> bool:
    from pyspark.errors import AnalysisException, IllegalArgumentException

    return isinstance(error, AnalysisException | IllegalArgumentException)


def _from_sql(session: "SparkSession", sql: str) -> "DataFrame":
    check_statement(session, sql)
    return session.sql(sql)


def _from_python(session: "SparkSession", text: str, views: Mapping[str, "DataFrame"]) -> "DataFrame":
    from pyspark.sql import DataFrame

    module = ModuleType("holdfast_pipeline")  # in no table of modules: Spark sends its functions by value
    exec(compile(text, "query.python", "exec"), module.__dict__)  # noqa: S102 (the operator allowed it)
    frame = module.pipeline(session, dict(views))
    if not isinstance(frame, DataFrame):
        raise PermanentError(f"query.python: pipeline() returned {type(frame).__name__}, not a DataFrame")
    return frame


def check_streaming_plan(frame: "DataFrame", *, restricted: bool) -> set[str]:
    """The kinds of nodes in the query's plan. Refuses one that cannot be exact and, if `restricted`, one that reads anything but
    its sources."""
    if not frame.isStreaming:
        raise PermanentError("query: it reads none of its sources as a stream")
    analysed: Any = frame._jdf.queryExecution().analyzed()
    text = analysed.toJSON()
    names = {node.kind.rpartition(".")[2] for node in nodes_of(text)}
    if restricted:
        check_reads(text)
    if names & _STATEFUL and not analysed.deterministic():
        raise PermanentError(
            "query: a function such as rand() or uuid() in a query that keeps state: a batch that is run again would leave "
            "other state than the rows that were written"
        )
    return names


def _columns(frame: "DataFrame", order_by: tuple[str, ...]) -> tuple[Column, ...]:
    """The columns of the result, as the table has them. Those of its key are never null."""
    found: list[Column] = []
    for field in frame.schema.fields:
        if (allowed := invalid_name_reason(field.name)) is not None or field.name in RESERVED_BY_STREAMS:
            raise InvalidError("query: column", field.name, allowed or "a name that the pipeline does not reserve")
        column = column_of(field.name, field.dataType, field.nullable and field.name not in order_by)
        if any(each.column == column.column for each in found):
            raise InvalidError("query: column", field.name, "unique")
        found.append(column)
    for name in order_by:
        if name not in frame.columns:
            raise InvalidError("sink.orderBy", name, "one of the query's columns: " + ", ".join(frame.columns))
    return tuple(found)
