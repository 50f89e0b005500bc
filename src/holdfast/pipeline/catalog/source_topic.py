"""The topic of a pipeline's source, through Kafka's protocol: a topic of this cluster and one of any other Kafka alike."""

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.client.broker_login import BrokerLogin
from holdfast.client.topic_reader import TopicReader, open_topic_reader
from holdfast.log.topics import UnknownTopicError
from holdfast.pipeline.model.definition import KafkaConfig
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError, UnavailableError


@contextmanager
def open_source_topic(
    config: KafkaConfig, bootstrap: str, *, clock: Clock, timeout_ms: int, login: BrokerLogin | None = None
) -> Iterator[TopicReader]:
    """A reader of the source's topic for the body. `bootstrap` and `login` are for a source without brokers: this cluster's own."""
    servers = ",".join(config.brokers) or bootstrap
    if not servers:
        raise UnavailableError("the topics of this cluster", "this process has no Kafka address of the cluster")
    ours = login if not config.brokers else None
    properties = ours.properties() if ours is not None else client_properties(config)
    try:
        with open_topic_reader(config.topic, servers, properties, clock=clock, timeout_ms=timeout_ms) as reader:
            yield reader
    except UnknownTopicError:
        raise unknown_topic(config) from None


def unknown_topic(config: KafkaConfig) -> InvalidError:
    """The error for a source whose topic does not exist."""
    place = f"that exists at {','.join(config.brokers)}" if config.brokers else "of this cluster"
    return InvalidError("source.topic", config.topic, f"a topic {place}")


def client_properties(config: KafkaConfig) -> dict[str, str]:
    """librdkafka's security properties for a source, its secrets included."""
    security = config.security
    properties: dict[str, str] = {"security.protocol": security.protocol}
    if security.mechanism:
        properties |= {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.username,
            "sasl.password": security.password,
        }
    if security.ca_file:
        properties["ssl.ca.location"] = security.ca_file
    return properties
