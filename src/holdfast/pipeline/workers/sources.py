"""How many partitions a pipeline's source has: from the store for a topic of this cluster, from its brokers for another Kafka."""

import asyncio
from typing import Final

from holdfast.log.topics import Topics
from holdfast.pipeline.nouns import KafkaConfig
from holdfast.vocabulary.errors import InvalidError, UnavailableError

_ANSWER_S: Final = 5.0


async def count_partitions(source: KafkaConfig, topics: Topics) -> int:
    """`InvalidError`: there is no such topic. `UnavailableError`: its brokers do not answer."""
    if not source.brokers:
        return (await topics.get(source.topic)).partitions
    return await asyncio.to_thread(_count_elsewhere, source)


def _count_elsewhere(source: KafkaConfig) -> int:
    from confluent_kafka import KafkaException  # only for pipelines that read another Kafka
    from confluent_kafka.admin import AdminClient

    where = ",".join(source.brokers)
    try:
        client = AdminClient({**_connection(source), "log_level": 0})
        topic = client.list_topics(source.topic, timeout=_ANSWER_S).topics.get(source.topic)
    except KafkaException as error:
        raise UnavailableError(f"Kafka at {where}", error.args[0].str()) from None
    if topic is None or topic.error is not None or not topic.partitions:
        why = "no answer" if topic is None or topic.error is None else topic.error.str()
        raise InvalidError("source topic", source.topic, f"a topic of {where} ({why})")
    return len(topic.partitions)


def _connection(source: KafkaConfig) -> dict[str, str]:
    security = source.security
    told = {
        "bootstrap.servers": ",".join(source.brokers),
        "security.protocol": security.protocol,
        "sasl.mechanism": security.mechanism or "",
        "sasl.username": security.username,
        "sasl.password": security.password,
        "ssl.ca.location": security.ca_file,
    }
    return {name: value for name, value in told.items() if value}
