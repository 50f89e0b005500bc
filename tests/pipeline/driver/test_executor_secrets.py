"""What travels to executors: the URLs of store, objects and ClickHouse only where a task uses them."""

import pickle
from typing import Any, cast

import pytest
from tests.support.sink_values import COLUMNS

from holdfast.client.cluster_address import ClusterAddress
from holdfast.pipeline.driver.dataframes import range_job, target_of
from holdfast.pipeline.model.column_mapping import Mapping
from holdfast.pipeline.model.definition import (
    ClickHouseConfig,
    KafkaConfig,
    ParquetConfig,
    Revision,
    SinkConfig,
    TopicSinkConfig,
)
from holdfast.pipeline.sinks.contract import FencedRange

CLUSTER = ClusterAddress(
    bootstrap="b:1", store="postgresql://me:store-secret@db/x", objects="s3://b?secret_access_key=objects-secret"
)
EMBEDDED = "http://embedded:clickhouse-secret@127.0.0.1:8123/"
OURS, EXTERNAL = KafkaConfig(topic="t"), KafkaConfig(topic="t", brokers=("other:9092",))


def shipped(source: KafkaConfig, sink: SinkConfig) -> bytes:
    revision = Revision(version=1, source=source, sink=sink, mapping=Mapping(COLUMNS))
    target = target_of(
        cast(Any, None), revision, pipeline_id="p", generation=1, embedded=EMBEDDED, cluster_address=CLUSTER
    )
    return pickle.dumps(range_job(target, CLUSTER, [FencedRange(partition=0, start=0, end=9, epoch=1)]))


@pytest.mark.parametrize(
    ("source", "sink", "secrets"),
    [
        (EXTERNAL, ParquetConfig(url="/rows"), set()),
        (EXTERNAL, ClickHouseConfig(table="t", dsn="http://ann:own@ch/"), set()),
        (EXTERNAL, ClickHouseConfig(table="t"), {"clickhouse-secret"}),
        (EXTERNAL, TopicSinkConfig(topic="u"), {"store-secret", "objects-secret"}),
        (OURS, ParquetConfig(url="/rows"), {"store-secret", "objects-secret"}),
        (OURS, ClickHouseConfig(table="t"), {"store-secret", "objects-secret", "clickhouse-secret"}),
    ],
)
def test_a_task_gets_no_secret_that_it_does_not_use(source: KafkaConfig, sink: SinkConfig, secrets: set[str]) -> None:
    job = shipped(source, sink)
    found = {each for each in ("store-secret", "objects-secret", "clickhouse-secret") if each.encode() in job}
    assert found == secrets
