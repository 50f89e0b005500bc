"""What a batch leaves in logs and in the store, and what leaders send each other about it.

    log/{topic id}/{coordinator:05d}/batch/{batch}   {"partitions"}   committed; kept until every partition has resolved it

There is no record of an abort. A batch that is not committed can be committed only by its coordinator, under the epochs that its
partitions had when they prepared; once one of these has changed, a batch without a key is aborted for good. The key goes with its
topic, as all keys of the log do.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from holdfast.log.keys import partition_prefix
from holdfast.vocabulary.settings import check_between

PARTITIONS_MAX: Final = 64  # a commit has 100 operations at most, and requires an epoch of each

_PREPARED: Final = struct.Struct(">IIIH")
_LENGTH: Final = struct.Struct(">H")


class Prepared(NamedTuple):
    """A record: messages of a batch are reserved in this log, and wait for what the coordinator decides.

    `epoch`: of the leader of `partition` that wrote it. The coordinator leads the lowest partition, at `coordinator_epoch`.
    """

    batch: str
    partition: int
    epoch: int
    coordinator_epoch: int
    partitions: tuple[int, ...]

    @property
    def coordinator(self) -> int:
        """The partition whose leader decides."""
        return self.partitions[0]


class Resolved(NamedTuple):
    """A record: the messages of a batch are ready, or are no more."""

    batch: str
    committed: bool


class Forgotten(NamedTuple):
    """A record of the coordinator's partition: everybody has resolved the batch, and its key is gone."""

    batch: str


BatchRecord: TypeAlias = Prepared | Resolved | Forgotten


class Decision(msgspec.Struct, frozen=True):
    """The value of a batch's key: it is committed, in these partitions."""

    partitions: tuple[int, ...]


def decision_key(topic_id: str, coordinator: int, batch: str) -> str:
    """Where the decision about a batch is."""
    return f"{partition_prefix(topic_id, coordinator)}batch/{batch}"


def check_partitions(count: int) -> None:
    """`InvalidError`: a batch in so many partitions could not be decided by one commit."""
    check_between("partitions of a batch", count, 1, PARTITIONS_MAX)


def pack_batch_name(batch: str) -> bytes:
    """The name of a batch, as records have it."""
    name = batch.encode()
    return _LENGTH.pack(len(name)) + name


def unpack_batch_name(data: bytes, at: int = 0) -> tuple[str, int]:
    """The name of a batch, and where it ends."""
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    if at + length > len(data):
        raise IndexError(f"a name of {length} bytes at {at}")
    return data[at : at + length].decode(), at + length


def pack_prepared(record: Prepared) -> bytes:
    """The value of a PREPARE record."""
    numbers: Sequence[int] = (record.partition, record.epoch, record.coordinator_epoch, len(record.partitions))
    head = pack_batch_name(record.batch) + _PREPARED.pack(*numbers)
    return head + struct.pack(f">{len(record.partitions)}I", *record.partitions)


def unpack_prepared(value: bytes) -> Prepared:
    """The same read again."""
    batch, at = unpack_batch_name(value)
    partition, epoch, coordinator_epoch, count = _PREPARED.unpack_from(value, at)
    partitions = struct.unpack_from(f">{count}I", value, at + _PREPARED.size)
    if not partitions:
        raise IndexError("a batch without partitions")
    return Prepared(batch, partition, epoch, coordinator_epoch, partitions)


def pack_resolved(record: Resolved) -> bytes:
    """The value of a RESOLVE record."""
    return pack_batch_name(record.batch) + bytes((record.committed,))


def unpack_resolved(value: bytes) -> Resolved:
    """The same read again."""
    batch, at = unpack_batch_name(value)
    return Resolved(batch, bool(value[at]))
