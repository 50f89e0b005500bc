"""From a job to the DataFrame that runs it, and from a revision to its sink's target.

A Holdfast topic without SQL is `spark.range(n).mapInArrow(task)`: no record passes through the JVM. With SQL, the first task
emits mapped rows, Spark's own operators transform them, and a second task writes the result. Any other Kafka is read by
Spark's connector with explicit offsets. In all of them a partition of the frame is a range: nothing in between moves rows.
"""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.client.cluster_address import ClusterAddress
from holdfast.pipeline.driver import sql, task_outcomes
from holdfast.pipeline.driver.sources import READ_COMMITTED
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.driver.sql_tasks import MapRanges, MapRecords, WriteRows
from holdfast.pipeline.driver.task_outcomes import TaskOutcome
from holdfast.pipeline.driver.tasks import RangeJob, SurveyRanges, SurveyRecords, WriteRanges, WriteRecords
from holdfast.pipeline.model.definition import KafkaConfig, Revision, TopicSinkConfig
from holdfast.pipeline.sinks.contract import FencedRange, SinkTarget
from holdfast.vocabulary.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Frame = Callable[[SparkJobs, RangeJob], "DataFrame"]


def target_of(
    jobs: SparkJobs,
    revision: Revision,
    *,
    pipeline_id: str,
    generation: int,
    embedded: str,
    cluster_address: ClusterAddress,
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
        sql.check(frame)
        columns = sql.columns_of(frame, columns)
    return SinkTarget(
        pipeline_id=pipeline_id,
        generation=generation,
        revision=revision,
        columns=columns,
        embedded=embedded,
        cluster_address=cluster_address,
    )


def run_write(jobs: SparkJobs, job: RangeJob) -> "DataFrame":
    """The frame whose rows are the outcomes of writing the job's ranges."""
    revision = job.target.revision
    if revision.sql:
        session = jobs.own_session()
        schema = sql.view_schema(revision.mapping.columns, overflow=job.target.overflow)
        mapped = (
            _records(session, job).mapInArrow(MapRecords(job), schema)
            if revision.source.brokers
            else _numbers(session, job).mapInArrow(MapRanges(job), schema)
        )
        return sql.selected(session, mapped, revision.sql).mapInArrow(WriteRows(job), task_outcomes.SCHEMA)
    if revision.source.brokers:
        return _records(jobs.spark, job).mapInArrow(WriteRecords(job), task_outcomes.SCHEMA)
    return _numbers(jobs.spark, job).mapInArrow(WriteRanges(job), task_outcomes.SCHEMA)


def run_survey(jobs: SparkJobs, job: RangeJob) -> "DataFrame":
    """The frame whose rows are the surveys of the job's ranges."""
    if job.target.revision.source.brokers:
        return _records(jobs.spark, job).mapInArrow(SurveyRecords(job), task_outcomes.SCHEMA)
    return _numbers(jobs.spark, job).mapInArrow(SurveyRanges(job), task_outcomes.SCHEMA)


def completed(job: RangeJob, outcomes: Sequence[TaskOutcome]) -> list[TaskOutcome]:
    """One outcome for every range.

    Where records go through a frame, a range without rows has no task and no outcome: it is done. A range with two outcomes was
    split between tasks, and the sink would take the second part for a repetition of the first.
    """
    by_number: dict[int, list[TaskOutcome]] = {fenced_range.partition: [] for fenced_range in job.fenced_ranges}
    for each in outcomes:
        by_number[each.partition].append(each)
    through_frame = bool(job.target.revision.sql or job.target.revision.source.brokers)
    return [
        _single_outcome(fenced_range, by_number[fenced_range.partition], through_frame)
        for fenced_range in job.fenced_ranges
    ]


def _single_outcome(fenced_range: FencedRange, outcomes: list[TaskOutcome], through_frame: bool) -> TaskOutcome:
    if len(outcomes) == 1:
        return outcomes[0]
    if not outcomes and through_frame:
        return TaskOutcome(partition=fenced_range.partition, kind="done")
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
