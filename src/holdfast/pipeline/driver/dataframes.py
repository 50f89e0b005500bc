"""From a job to the DataFrame that does it, and from a recipe to what its rows are.

A Holdfast topic without SQL is `spark.range(n).mapInArrow(task)`: no record passes through the JVM. With SQL, the first task
emits mapped rows, Spark's own operators transform them, and a second task writes what comes out. Any other Kafka is read by
Spark's connector with explicit offsets. In all of them a partition of the frame is a range: nothing in between moves rows.
"""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.client.cluster_address import ClusterAddress
from holdfast.pipeline.driver import sql, task_outcomes
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
    recipe: Revision,
    *,
    pipeline_id: str,
    generation: int,
    embedded: str,
    cluster_address: ClusterAddress,
) -> SinkTarget:
    """What a recipe's rows are and where they go. SQL is checked here: `InvalidError` says what is wrong with it."""
    columns = recipe.mapping.columns
    if recipe.sql:
        if isinstance(recipe.sink, TopicSinkConfig):
            raise InvalidError(
                "sql", "with a topic as its sink", "tables and files: a topic takes the mapped view as it is"
            )
        session = jobs.own_session()
        schema = sql.view_schema(columns, overflow=recipe.drift.unknown_fields == "overflow")
        frame = sql.selected(session, session.createDataFrame([], schema), recipe.sql)
        sql.check(frame)
        columns = sql.columns_of(frame, columns)
    return SinkTarget(
        pipeline_id=pipeline_id,
        generation=generation,
        recipe=recipe,
        columns=columns,
        embedded=embedded,
        cluster_address=cluster_address,
    )


def run_write(jobs: SparkJobs, job: RangeJob) -> "DataFrame":
    """The frame whose rows are the outcomes of writing the job's portions."""
    recipe = job.target.recipe
    if recipe.sql:
        session = jobs.own_session()
        schema = sql.view_schema(recipe.mapping.columns, overflow=job.target.overflow)
        mapped = (
            _records(session, job).mapInArrow(MapRecords(job), schema)
            if recipe.source.brokers
            else _numbers(session, job).mapInArrow(MapRanges(job), schema)
        )
        return sql.selected(session, mapped, recipe.sql).mapInArrow(WriteRows(job), task_outcomes.SCHEMA)
    if recipe.source.brokers:
        return _records(jobs.spark, job).mapInArrow(WriteRecords(job), task_outcomes.SCHEMA)
    return _numbers(jobs.spark, job).mapInArrow(WriteRanges(job), task_outcomes.SCHEMA)


def run_survey(jobs: SparkJobs, job: RangeJob) -> "DataFrame":
    """The frame whose rows say what the job's portions ask of the mapping."""
    if job.target.recipe.source.brokers:
        return _records(jobs.spark, job).mapInArrow(SurveyRecords(job), task_outcomes.SCHEMA)
    return _numbers(jobs.spark, job).mapInArrow(SurveyRanges(job), task_outcomes.SCHEMA)


def completed(job: RangeJob, said: Sequence[TaskOutcome]) -> list[TaskOutcome]:
    """One outcome for every portion.

    Where records go through a frame, a range of which nothing is left has nobody to speak for it: it is done. One that two tasks
    spoke of was torn apart, and its second part would be taken for a repetition of the first.
    """
    by_number: dict[int, list[TaskOutcome]] = {fenced_range.partition: [] for fenced_range in job.fenced_ranges}
    for each in said:
        by_number[each.partition].append(each)
    through_frame = bool(job.target.recipe.sql or job.target.recipe.source.brokers)
    return [
        _the_only(fenced_range, by_number[fenced_range.partition], through_frame) for fenced_range in job.fenced_ranges
    ]


def _the_only(fenced_range: FencedRange, said: list[TaskOutcome], through_frame: bool) -> TaskOutcome:
    if len(said) == 1:
        return said[0]
    if not said and through_frame:
        return TaskOutcome(partition=fenced_range.partition, kind="done")
    reason = "its task said nothing" if not said else f"{len(said)} tasks wrote parts of one range"
    return TaskOutcome(partition=fenced_range.partition, kind="blocked", reason=reason)


def _numbers(session: "SparkSession", job: RangeJob) -> "DataFrame":
    count = len(job.fenced_ranges)
    return session.range(0, count, 1, count)


def _records(session: "SparkSession", job: RangeJob) -> "DataFrame":
    config = job.target.recipe.source
    reader = session.read.format("kafka").option("failOnDataLoss", "true").option("includeHeaders", "true")
    for name, value in connector_options(config, job.fenced_ranges).items():
        reader = reader.option(name, value)
    return reader.load()


def connector_options(config: KafkaConfig, fenced_ranges: Sequence[FencedRange]) -> dict[str, str]:
    """Spark's connector, told exactly which offsets: one partition of the frame for each range."""
    topic, security = config.topic, config.security
    options = {
        "kafka.bootstrap.servers": ",".join(config.brokers),
        "kafka.security.protocol": security.protocol,
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
