"""Validation of sinks other than ClickHouse. Synchronous, for threads. Nothing is changed."""

from typing import TYPE_CHECKING

from holdfast.client.topic_reader import TopicReader
from holdfast.log.topics import UnknownTopicError
from holdfast.pipeline.model.definition import DeltaConfig, IcebergConfig, ParquetConfig, Revision, TopicSinkConfig
from holdfast.pipeline.service.responses import Validation
from holdfast.pipeline.service.validation import Checks
from holdfast.pipeline.sinks.contract import SinkTarget
from holdfast.pipeline.sinks.files import parse_location

if TYPE_CHECKING:
    from holdfast.pipeline.sinks.iceberg import IcebergSink

_DLQ_SUFFIX = ".dlq"  # of `sinks.topic`, which needs Spark


def topic_partitions(topic: TopicReader) -> int | None:
    """The number of partitions; None: there is no such topic."""
    try:
        return len(topic.partitions())
    except UnknownTopicError:
        return None


def validate_topic(config: TopicSinkConfig, partitions: int | None, dead_letters: int | None) -> Validation:
    """The topic exists, and one for dead letters."""
    checks = Checks()
    if partitions is None:
        checks.fail("topic", f"{config.topic} does not exist")
    else:
        checks.run("topic", lambda: f"{config.topic} has {partitions} partitions")
        if dead_letters is None:
            missing = f"{config.topic}{_DLQ_SUFFIX} does not exist"
            checks.warn("dead letters", f"{missing}: dead letters will block the pipeline")
    return checks.done()


def dead_letter_topic(config: TopicSinkConfig) -> str:
    """The topic of dead letters."""
    return config.topic + _DLQ_SUFFIX


def validate_files(revision: Revision) -> Validation:
    """The place can be written to; a table that exists has the columns."""
    checks = Checks()
    sink = revision.sink
    if isinstance(sink, DeltaConfig | ParquetConfig):
        location = parse_location(sink.url)
        checks.run("location", location.check)
    if revision.sql:
        checks.warn("table", "not compared: sql defines the columns")
        return checks.done()
    target = SinkTarget(pipeline_id="", generation=1, revision=revision, columns=revision.mapping.columns)
    if isinstance(sink, DeltaConfig):
        from holdfast.pipeline.sinks.delta import DeltaSink

        checks.run("table", lambda: DeltaSink(target).examine())
    elif isinstance(sink, IcebergConfig):
        from holdfast.pipeline.sinks.iceberg import IcebergSink

        checks.run("table", lambda: _examined(IcebergSink(target)))
    return checks.done()


def _examined(sink: "IcebergSink") -> str:
    try:
        return sink.examine()
    finally:
        sink.close()
