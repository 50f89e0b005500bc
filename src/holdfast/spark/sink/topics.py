"""The topics that rows are written to: looked up in the store, and created by the brokers where they create topics.

The one rule: whether a topic is created is the server's decision (`kafka.auto_create_topics`), as for every producer of Kafka.
"""

import logging
from typing import Final

from holdfast.client.cluster_access import ClusterAccess, DirectAccess
from holdfast.log.topics import UnknownTopicError
from holdfast.spark.sink.encoder import SinkTopic
from holdfast.vocabulary.errors import InvalidError

_log: Final = logging.getLogger(__name__)


class TopicNotCreatedError(UnknownTopicError):
    """The topic does not exist, and the server does not create it. Create it, or let the server do so."""

    def __str__(self) -> str:
        return (
            f"topic {self.topic[:300]!r} does not exist, and the server creates none (kafka.auto_create_topics is false): "
            f"create it with `holdfast topic create {self.topic[:300]}`"
        )


def direct_access(cluster: ClusterAccess) -> DirectAccess:
    """Store and objects. `InvalidError` where they are not known."""
    if cluster.direct is None:
        raise InvalidError(
            "options store and objects",
            "",
            "given: the brokers do not advertise them, and the sink's plans are kept there",
        )
    return cluster.direct


async def find_or_create_topic(cluster: ClusterAccess, name: str) -> SinkTopic:
    """The topic; created if it does not exist and the server allows it. `TopicNotCreatedError`."""
    direct, brokers = direct_access(cluster), cluster.brokers
    try:
        found = await direct.topics.get(name)
    except UnknownTopicError:
        if brokers is None:
            raise
        try:
            created = await brokers.topic(name, create=True)
        except UnknownTopicError:
            raise TopicNotCreatedError(name) from None
        _log.warning("topic %s did not exist: created with %d partitions", name, created.partitions)
        found = await direct.topics.get(name)
    config = found.config
    return SinkTopic(found.name, found.id, found.partitions, config.max_message_bytes, config.compacted)
