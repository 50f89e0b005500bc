"""Ids of topics of any Kafka. A broker before 2.8 has none, and cannot tell a recreated topic from the one before."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID


class KafkaTopicIds:
    """Asks the brokers with librdkafka, of which `settings` are. For one thread."""

    def __init__(self, settings: Mapping[str, Any], *, timeout_s: float) -> None:
        self._settings, self._timeout_s = settings, timeout_s
        self._admin: Any = None

    def of(self, topic: str) -> str:
        """The topic's id in hexadecimal digits; empty: it has none. `KafkaException`: the brokers do not respond."""
        from confluent_kafka import TopicCollection
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient(dict(self._settings))
        described = self._admin.describe_topics(TopicCollection([topic]), request_timeout=self._timeout_s)
        return hex_id(described[topic].result().topic_id)


def hex_id(uuid: Any) -> str:
    """A librdkafka UUID as brokers print ids of Holdfast; empty for none and for zero."""
    if uuid is None:
        return ""
    mask = (1 << 64) - 1
    value = (uuid.get_most_significant_bits() & mask) << 64 | (uuid.get_least_significant_bits() & mask)
    return UUID(int=value).hex if value else ""
