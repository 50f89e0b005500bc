"""Records, partitions, and what a broker answers. Data only."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.vocabulary.errors import HoldfastError, InvalidError

Header = tuple[str, bytes | None]


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ProducerRecord(msgspec.Struct, frozen=True):
    """A record to send. Without `partition`, Kafka's murmur2 hash of the key chooses it; without a key, any partition is chosen."""

    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[Header] = ()


class RecordMetadata(msgspec.Struct, frozen=True, gc=False):
    """Where a record was appended. It is durable as its topic promises."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class Record(msgspec.Struct, frozen=True):
    """A record that was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: tuple[Header, ...] = ()

    @property
    def topic_partition(self) -> TopicPartition:
        """Where it is from."""
        return TopicPartition(self.topic, self.partition)


class SerializationError(InvalidError):
    """A serializer refused a key or value. Nothing was sent."""


class DeserializationError(InvalidError):
    """A record cannot be read as asked. It stays next: `seek` past it, or read it as bytes."""

    def __init__(self, topic: str, partition: int, offset: int, field: str, reason: str) -> None:
        super().__init__(f"{field} of record {topic}-{partition}@{offset}", reason, "readable by the deserializer")
        self.args = (topic, partition, offset, field, reason)
        self.topic, self.partition, self.offset, self.field, self.reason = topic, partition, offset, field, reason

    def __str__(self) -> str:
        return f"cannot deserialize the {self.field} of {self.topic}-{self.partition} at offset {self.offset}: {self.reason}"


class PartlySentError(HoldfastError):
    """Some records of a `send_many` failed. `outcomes` has the metadata or the error of each, in their order."""

    def __init__(self, outcomes: Sequence[RecordMetadata | HoldfastError]) -> None:
        super().__init__(outcomes)
        self.outcomes = outcomes

    @property
    def errors(self) -> list[HoldfastError]:
        """The errors alone."""
        return [each for each in self.outcomes if isinstance(each, HoldfastError)]

    def __str__(self) -> str:
        errors = self.errors
        return f"{len(errors)} of {len(self.outcomes)} records were not acknowledged; the first: {errors[0]}"
