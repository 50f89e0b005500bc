"""Ids of topics, as librdkafka reads them from any Kafka."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Uuid
from tests.support.broker import serving

from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.kafka_topic_ids import KafkaTopicIds, hex_id
from holdfast.client.loop_thread import close as close_loop
from holdfast.pipeline.driver.sources import KafkaSource
from holdfast.pipeline.model.definition import KafkaConfig
from holdfast.spark.ranges import Planner


def test_an_id_is_what_the_cluster_itself_calls_the_topic(tmp_path: Path) -> None:
    with serving(tmp_path, "--roles", "api,agent") as broker:
        topic = broker.create_topic("orders", 2)
        ids = KafkaTopicIds({"bootstrap.servers": broker.bootstrap, "log_level": 2}, timeout_s=10)
        assert ids.of(topic) == Planner(ClusterAddress(bootstrap=broker.bootstrap)).topic(topic).id
        source = KafkaSource(KafkaConfig(topic=topic, brokers=(broker.bootstrap,)))
        assert source.bounds().topic_id == ids.of(topic)
        with pytest.raises(KafkaException):
            ids.of("nowhere")
        source.close()
        close_loop()


def test_a_topic_without_an_id_has_none() -> None:
    assert hex_id(None) == hex_id(Uuid(0, 0)) == ""
    assert hex_id(Uuid(1, -1)) == "0000000000000001ffffffffffffffff"
