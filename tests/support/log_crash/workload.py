"""What producers send: every batch follows from its producer and its number, so that a retry in another life is the same batch.

A value names its record and carries a checksum; nothing else has to be remembered to judge what is read back.
"""

from typing import Final, NamedTuple
from zlib import crc32

from holdfast.kernel.keys import partition_resource
from holdfast.log.batches import Record, encode
from holdfast.log.model import PartitionConfig, PartitionId
from holdfast.vocabulary.types import TopicPartition

TOPIC_ID: Final = "0123456789abcdef" * 2
PLACES: Final = tuple(PartitionId(topic="orders", topic_id=TOPIC_ID, number=number) for number in range(3))
# Two that acknowledge what is in the WAL, one that acknowledges what is in object storage.
TERMS: Final = tuple(
    PartitionConfig(level=level, roll_bytes=2_048, roll_ms=60) for level in ("local", "local", "object")
)


class Name(NamedTuple):
    """Which record: number `record` of the producer's batch number `batch`."""

    producer: int
    batch: int
    record: int

    def __str__(self) -> str:
        return f"{self.producer}/{self.batch}/{self.record}"


def resource_of(partition_id: PartitionId) -> str:
    """The lease of a partition."""
    return partition_resource(TopicPartition(partition_id.topic, partition_id.number))


def producers_of(number: int) -> tuple[int, ...]:
    """The producers that write to a partition."""
    return number * 10 + 1, number * 10 + 2


def records_in(producer: int, batch: int) -> int:
    """How many records a batch has: one to four."""
    return 1 + crc32(f"{producer}/{batch}".encode()) % 4


def value_of(name: Name) -> bytes:
    """The record's value: its name, a checksum, and some length."""
    body = f"{name} ".encode() + b"." * (crc32(str(name).encode()) % 120)
    return f"{crc32(body):08x} ".encode() + body


def name_in(value: bytes | None) -> Name | None:
    """Which record the value is of; None if it is none of ours, or damaged."""
    checksum, _, body = (value or b"").partition(b" ")
    if checksum != f"{crc32(body):08x}".encode():
        return None
    return Name(*map(int, body.partition(b" ")[0].split(b"/")))


class Sequences:
    """The sequence numbers of one producer's batches."""

    def __init__(self, producer: int) -> None:
        self._producer = producer
        self._firsts = [0]

    def payload(self, number: int) -> bytes:
        """The producer's batch with this number, as it is sent: first or again."""
        while len(self._firsts) <= number:
            self._firsts.append(self._firsts[-1] + records_in(self._producer, len(self._firsts) - 1))
        count = records_in(self._producer, number)
        records = [Record(at, 1_000 + number, None, value_of(Name(self._producer, number, at))) for at in range(count)]
        return encode(records, producer_id=self._producer, producer_epoch=0, base_sequence=self._firsts[number])
