"""Partitioners: from a message's key to its partition. Pure, and they never change: stored messages depend on them."""

from typing import Protocol

from holdfast.vocabulary.hashing import java_hash, kafka_partition
from holdfast.vocabulary.settings import check_at_least


class Partitioner(Protocol):
    """Where a key goes. The same key and count always give the same partition, in every process."""

    def partition(self, key: str, partitions: int) -> int:
        """A number from 0 to `partitions` - 1."""
        ...


class ModuloPartitioner:
    """Java's `Math.abs(key.hashCode() % n)`."""

    def partition(self, key: str, partitions: int) -> int:
        """A number from 0 to `partitions` - 1."""
        check_at_least("partitions", partitions, 1)
        # Java's remainder takes the sign of the hash, Python's does not: the magnitude first makes them agree.
        return abs(java_hash(key)) % partitions


class Murmur2Partitioner:
    """What Kafka's default partitioner gives the key's UTF-8 bytes."""

    def partition(self, key: str, partitions: int) -> int:
        """A number from 0 to `partitions` - 1."""
        check_at_least("partitions", partitions, 1)
        return kafka_partition(key.encode(), partitions)
