"""From a job to the DataFrame that runs it, and from a revision to its sink's target.

A Holdfast topic without SQL is `spark.range(n).mapInArrow(task)`: no record passes through the JVM. With SQL, the first task
emits mapped rows, Spark's own operators transform them, and a second task takes the result. Any other Kafka is read by
Spark's connector with explicit offsets. In all of them a partition of the frame is a range: nothing in between moves rows.

Where writing has an effect at once there are two jobs: the first maps, and its digests are recorded; the second writes.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.client.cluster_address import ClusterAddress
from holdfast.pipeline.driver import sql, task_outcomes
from holdfast.pipeline.driver.mapped_ranges import NOTHING, changed
from holdfast.pipeline.driver.sources import READ_COMMITTED
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.driver.sql_plan import check_plan
from holdfast.pipeline.driver.sql_tasks import HashRows, ViewRanges, ViewRecords, WriteRows
from holdfast.pipeline.driver.task_outcomes import TaskOutcome
from holdfast.pipeline.driver.tasks import (
    MapRanges,
    MapRecords,
    RangeJob,
    SurveyRanges,
    SurveyRecords,
    WriteRanges,
    WriteRecords,
)
from holdfast.pipeline.model.definition import ClickHouseConfig, KafkaConfig, Revision, TopicSinkConfig
from holdfast.pipeline.sinks.contract import FencedRange, SinkTarget
from holdfast.spark.ranges import PartitionRange
from holdfast.spark.read_grants import executor_address, grant_reads
from holdfast.vocabulary.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Frame = Callable[[SparkJobs, RangeJob], "DataFrame"]
Task = Callable[[Iterator[Any]], Iterator[Any]]


def target_of(
    jobs: SparkJobs,
    revision: Revision,
    *,
    pipeline_id: str,
    generation: int,
    embedded: str,
    cluster_address: ClusterAddress,
    sink_roots: tuple[str, ...] = (),
) -> SinkTarget:
    """The target of a revision. SQL is checked here: `InvalidError` says what is wrong with it."""
    columns = revision.mapping.columns
    if revision.sql:
        if isinstance(revision.sink, TopicSinkConfig):
            raise InvalidError(
                "sql", revision.sql[:200], "empty for a topic as the sink: it takes the mapped view as it is"
            )
        session = jobs.own_session()
        schema = sql.view_schema(columns, overflow=revision.drift.unknown_fields == "overflow")
        frame = sql.selected(session, session.createDataFrame([], schema), revision.sql)
        check_plan(frame)
        columns = sql.columns_of(frame, columns)
    sink = revision.sink  # a target travels to executors: it has the addresses that its sink uses, and no others
    return SinkTarget(
        pipeline_id=pipeline_id,
        generation=generation,
        revision=revision,
        columns=columns,
        embedded=embedded if isinstance(sink, ClickHouseConfig) and not sink.dsn else "",
        cluster_address=cluster_address if isinstance(sink, TopicSinkConfig) else None,
        sink_roots=sink_roots,
    )


def run_map(jobs: SparkJobs, job: RangeJob) -> "DataFrame":
    """The frame whose rows are the outcomes of mapping the job's ranges: what they are to be written as, and no effect."""
    if job.target.revision.sql:
        return _through_sql(jobs, job, writes=False).mapInArrow(HashRows(job), task_outcomes.SCHEMA)
    return _without_sql(jobs, job, MapRanges(job), MapRecords(job))


def run_map_refused(jobs: SparkJobs, job: RangeJob) -> "DataFrame":
    """The same for ranges of which SQL makes no row: their dead letters."""
    return _without_sql(jobs, job, MapRanges(job, rows=False), MapRecords(job, rows=False))


def run_write_kept(jobs: SparkJobs, job: RangeJob) -> "DataFrame":
    """The frame whose rows are the outcomes of writing ranges that were just mapped; `absent`: they are to be mapped again."""
    return _numbers(jobs.spark, job).mapInArrow(WriteRanges(job, maps=not through_frame(job)), task_outcomes.SCHEMA)


def range_job(target: SinkTarget, cluster_address: ClusterAddress, ranges: Sequence[FencedRange]) -> RangeJob:
    """The job that writes these ranges. Where records come through Spark's connector, tasks get no address of this cluster."""
    external = bool(target.revision.source.brokers)
    return RangeJob(target=target, cluster_address=None if external else cluster_address, fenced_ranges=tuple(ranges))


def without_credentials(job: RangeJob) -> RangeJob:
    """The job as executors get it: with grants instead of URLs of store and objects, where those can be signed."""
    if job.cluster_address is None or (address := executor_address(job.cluster_address)) is None:
        return job
    topic = job.target.revision.source.topic
    ranges = [PartitionRange(topic, each.partition, each.start, each.end) for each in job.fenced_ranges]
    grants = grant_reads(job.cluster_address, ranges)
    by_partition = {each.partition: grant for each, grant in zip(job.fenced_ranges, grants, strict=True)}
    return replace(job, cluster_address=address, grants=by_partition)


def run_write(jobs: SparkJobs, job: RangeJob) -> "DataFrame":
    """The frame whose rows are the outcomes of mapping and writing the job's ranges."""
    if job.target.revision.sql:
        return _through_sql(jobs, job, writes=True).mapInArrow(WriteRows(job), task_outcomes.SCHEMA)
    return _without_sql(jobs, job, WriteRanges(job), WriteRecords(job))


def run_survey(jobs: SparkJobs, job: RangeJob) -> "DataFrame":
    """The frame whose rows are the surveys of the job's ranges."""
    return _without_sql(jobs, job, SurveyRanges(job), SurveyRecords(job))


def through_frame(job: RangeJob) -> bool:
    """Whether records go through a frame, and not through a task alone."""
    return bool(job.target.revision.sql or job.target.revision.source.brokers)


def _without_sql(jobs: SparkJobs, job: RangeJob, of_ranges: Task, of_records: Task) -> "DataFrame":
    if job.target.revision.source.brokers:
        return _records(jobs.spark, job).mapInArrow(of_records, task_outcomes.SCHEMA)
    return _numbers(jobs.spark, job).mapInArrow(of_ranges, task_outcomes.SCHEMA)


def _through_sql(jobs: SparkJobs, job: RangeJob, *, writes: bool) -> "DataFrame":
    revision, session = job.target.revision, jobs.own_session()
    schema = sql.view_schema(revision.mapping.columns, overflow=job.target.overflow)
    mapped = (
        _records(session, job).mapInArrow(ViewRecords(job, writes=writes), schema)
        if revision.source.brokers
        else _numbers(session, job).mapInArrow(ViewRanges(job, writes=writes), schema)
    )
    return sql.selected(session, mapped, revision.sql)


def completed(job: RangeJob, outcomes: Sequence[TaskOutcome], *, frame: Frame) -> list[TaskOutcome]:
    """One outcome for every range.

    Where records go through a frame, a range without rows has no task and no outcome: it is done, and has no digest. A range with
    two outcomes was split between tasks, and the sink would take the second part for a repetition of the first.
    """
    by_number: dict[int, list[TaskOutcome]] = {fenced_range.partition: [] for fenced_range in job.fenced_ranges}
    for each in outcomes:
        by_number[each.partition].append(each)
    may_be_silent = through_frame(job) and frame is not run_write_kept
    found = []
    for fenced_range in job.fenced_ranges:
        of_range = by_number[fenced_range.partition]
        silent = not of_range and may_be_silent
        found.append(_silent_outcome(job, fenced_range) if silent else _single_outcome(fenced_range, of_range))
    return found


def _silent_outcome(job: RangeJob, fenced_range: FencedRange) -> TaskOutcome:
    """Of a range without rows. Its dead letters, where there is SQL, were compared by the task that had them."""
    recorded = fenced_range.digest or NOTHING
    refused = recorded.refused if job.target.revision.sql else 0
    if recorded.rows or recorded.refused != refused:
        reason = str(changed(fenced_range, NOTHING))
        return TaskOutcome(partition=fenced_range.partition, kind="blocked", reason=reason)
    return TaskOutcome(partition=fenced_range.partition, kind="done", refused=refused)


def _single_outcome(fenced_range: FencedRange, outcomes: list[TaskOutcome]) -> TaskOutcome:
    if len(outcomes) == 1:
        return outcomes[0]
    reason = f"{len(outcomes)} tasks wrote parts of one range" if outcomes else "its task returned no outcome"
    return TaskOutcome(partition=fenced_range.partition, kind="blocked", reason=reason)


def _numbers(session: "SparkSession", job: RangeJob) -> "DataFrame":
    count = len(job.fenced_ranges)
    return session.range(0, count, 1, count)


def _records(session: "SparkSession", job: RangeJob) -> "DataFrame":
    config = job.target.revision.source
    reader = session.read.format("kafka").option("failOnDataLoss", "true").option("includeHeaders", "true")
    for name, value in connector_options(config, job.fenced_ranges).items():
        reader = reader.option(name, value)
    return reader.load()


def connector_options(config: KafkaConfig, fenced_ranges: Sequence[FencedRange]) -> dict[str, str]:
    """Options of Spark's connector with explicit offsets: one partition of the frame for each range."""
    topic, security = config.topic, config.security
    options = {
        "kafka.bootstrap.servers": ",".join(config.brokers),
        "kafka.security.protocol": security.protocol,
        "kafka.isolation.level": READ_COMMITTED,
        "assign": json.dumps({topic: [each.partition for each in fenced_ranges]}),
        "startingOffsets": json.dumps({topic: {str(each.partition): each.start for each in fenced_ranges}}),
        "endingOffsets": json.dumps({topic: {str(each.partition): each.end for each in fenced_ranges}}),
    }
    if security.mechanism is not None:
        scram = security.mechanism.startswith("SCRAM")
        module = "scram.ScramLoginModule" if scram else "plain.PlainLoginModule"
        user, password = _quoted(security.username), _quoted(security.password)
        options["kafka.sasl.mechanism"] = security.mechanism
        options["kafka.sasl.jaas.config"] = (
            f"org.apache.kafka.common.security.{module} required username={user} password={password};"
        )
    if security.ca_file:
        options |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.location": security.ca_file}
    return options


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
