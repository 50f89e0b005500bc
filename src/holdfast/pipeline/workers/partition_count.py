"""How many partitions a pipeline's source has: from the store for a topic of this cluster, from its brokers for another Kafka."""

import asyncio
from typing import Final

from holdfast.log.topics import Topics
from holdfast.pipeline.catalog.secret_references import resolved
from holdfast.pipeline.catalog.source_topic import open_source_topic
from holdfast.pipeline.model.definition import KafkaConfig
from holdfast.pipeline.model.secret_references import SecretReferences
from holdfast.vocabulary.clock import Clock

_TIMEOUT_MS: Final = 5_000


async def count_partitions(source: KafkaConfig, topics: Topics, *, clock: Clock, secrets: SecretReferences) -> int:
    """`InvalidError`: the topic does not exist. `UnavailableError`: its brokers do not respond."""
    if not source.brokers:
        return (await topics.get(source.topic)).partitions
    return await asyncio.to_thread(_count_by_brokers, source, clock, secrets)


def _count_by_brokers(source: KafkaConfig, clock: Clock, secrets: SecretReferences) -> int:
    with open_source_topic(resolved("source", source, secrets), "", clock=clock, timeout_ms=_TIMEOUT_MS) as topic:
        return len(topic.partitions())
