"""From a job to the DataFrame that does it, and from a recipe to what its rows are.

A Holdfast topic without SQL is `spark.range(n).mapInArrow(task)`: no record passes through the JVM. With SQL, the first task
emits mapped rows, Spark's own operators transform them, and a second task writes what comes out. Any other Kafka is read by
Spark's connector with explicit offsets. In all of them a partition of the frame is a range: nothing in between moves rows.
"""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.pipeline.driver import outcomes, sql
from holdfast.pipeline.driver.jobs import Jobs
from holdfast.pipeline.driver.outcomes import Outcome
from holdfast.pipeline.driver.tasks import Job, SurveyPortions, SurveyRecords, WritePortions, WriteRecords
from holdfast.pipeline.driver.view_tasks import MapPortions, MapRecords, WriteRows
from holdfast.pipeline.nouns import KafkaConfig, Recipe, TopicConfig
from holdfast.pipeline.sinks.contract import Portion, Target
from holdfast.spark.reach import Reach
from holdfast.vocabulary.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Frame = Callable[[Jobs, Job], "DataFrame"]


def target_of(jobs: Jobs, recipe: Recipe, *, pipeline_id: str, generation: int, embedded: str, reach: Reach) -> Target:
    """What a recipe's rows are and where they go. SQL is checked here: `InvalidError` says what is wrong with it."""
    columns = recipe.mapping.columns
    if recipe.sql:
        if isinstance(recipe.sink, TopicConfig):
            raise InvalidError(
                "sql", "with a topic as its sink", "tables and files: a topic takes the mapped view as it is"
            )
        session = jobs.own_session()
        schema = sql.view_schema(columns, overflow=recipe.drift.unknown_fields == "overflow")
        frame = sql.selected(session, session.createDataFrame([], schema), recipe.sql)
        sql.check(frame)
        columns = sql.columns_of(frame, columns)
    return Target(
        pipeline_id=pipeline_id,
        generation=generation,
        recipe=recipe,
        columns=columns,
        embedded=embedded,
        reach=reach,
    )


def writing(jobs: Jobs, job: Job) -> "DataFrame":
    """The frame whose rows are the outcomes of writing the job's portions."""
    recipe = job.target.recipe
    if recipe.sql:
        session = jobs.own_session()
        schema = sql.view_schema(recipe.mapping.columns, overflow=job.target.overflow)
        mapped = (
            _records(session, job).mapInArrow(MapRecords(job), schema)
            if recipe.source.brokers
            else _numbers(session, job).mapInArrow(MapPortions(job), schema)
        )
        return sql.selected(session, mapped, recipe.sql).mapInArrow(WriteRows(job), outcomes.SCHEMA)
    if recipe.source.brokers:
        return _records(jobs.spark, job).mapInArrow(WriteRecords(job), outcomes.SCHEMA)
    return _numbers(jobs.spark, job).mapInArrow(WritePortions(job), outcomes.SCHEMA)


def surveying(jobs: Jobs, job: Job) -> "DataFrame":
    """The frame whose rows say what the job's portions ask of the mapping."""
    if job.target.recipe.source.brokers:
        return _records(jobs.spark, job).mapInArrow(SurveyRecords(job), outcomes.SCHEMA)
    return _numbers(jobs.spark, job).mapInArrow(SurveyPortions(job), outcomes.SCHEMA)


def completed(job: Job, said: Sequence[Outcome]) -> list[Outcome]:
    """One outcome for every portion.

    Where records go through a frame, a range of which nothing is left has nobody to speak for it: it is done. One that two tasks
    spoke of was torn apart, and its second part would be taken for a repetition of the first.
    """
    by_number: dict[int, list[Outcome]] = {portion.partition: [] for portion in job.portions}
    for each in said:
        by_number[each.partition].append(each)
    through_frame = bool(job.target.recipe.sql or job.target.recipe.source.brokers)
    return [_the_only(portion, by_number[portion.partition], through_frame) for portion in job.portions]


def _the_only(portion: Portion, said: list[Outcome], through_frame: bool) -> Outcome:
    if len(said) == 1:
        return said[0]
    if not said and through_frame:
        return Outcome(partition=portion.partition, kind="done")
    reason = "its task said nothing" if not said else f"{len(said)} tasks wrote parts of one range"
    return Outcome(partition=portion.partition, kind="blocked", reason=reason)


def _numbers(session: "SparkSession", job: Job) -> "DataFrame":
    count = len(job.portions)
    return session.range(0, count, 1, count)


def _records(session: "SparkSession", job: Job) -> "DataFrame":
    config = job.target.recipe.source
    reader = session.read.format("kafka").option("failOnDataLoss", "true").option("includeHeaders", "true")
    for name, value in connector_options(config, job.portions).items():
        reader = reader.option(name, value)
    return reader.load()


def connector_options(config: KafkaConfig, portions: Sequence[Portion]) -> dict[str, str]:
    """Spark's connector, told exactly which offsets: one partition of the frame for each range."""
    topic, security = config.topic, config.security
    options = {
        "kafka.bootstrap.servers": ",".join(config.brokers),
        "kafka.security.protocol": security.protocol,
        "assign": json.dumps({topic: [each.partition for each in portions]}),
        "startingOffsets": json.dumps({topic: {str(each.partition): each.start for each in portions}}),
        "endingOffsets": json.dumps({topic: {str(each.partition): each.end for each in portions}}),
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
