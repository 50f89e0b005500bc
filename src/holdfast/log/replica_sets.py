"""Which WALs keep a partition's tail, for those who show and place it: a short copy of the record, under a prefix of its own.

    replicas/{topic id}/{n:05d}     {"epoch", "replicas", "in_sync"}

Metadata, placement and listings mirror these keys. Records change with every publication, and those of partitions without replicas
are of no use to them; these change with an open commit and when a replica leaves the in-sync set or returns to it. The one rule:
whoever commits a record with another set, or another in-sync set, writes this in the same commit. Nothing is recovered from it.
"""

import msgspec

from holdfast.contracts.store import Delete, Entry, Operation, Put
from holdfast.log.keys import replica_set_key
from holdfast.log.metadata import PartitionRecord
from holdfast.log.model import QUORUM, PartitionConfig, PartitionId
from holdfast.log.replication.quorum import write_quorum


class ReplicaSet(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What stands under `replicas/…`: the last epoch that served, its WALs in the order of the plan, those that keep up."""

    epoch: int
    replicas: tuple[str, ...]
    in_sync: tuple[str, ...]


def replicas_needed(config: PartitionConfig) -> int:
    """How many replicas must keep up for appends to be taken, and have one before it is acknowledged."""
    return max(config.min_insync, write_quorum(config.replicas)) if config.level == QUORUM else 1


def read_replica_set(entry: Entry) -> ReplicaSet:
    """The set in a store entry."""
    return msgspec.json.decode(entry.value, type=ReplicaSet)


def replica_set_write(partition_id: PartitionId, record: PartitionRecord) -> Operation:
    """What to write along with the record of a partition whose set or in-sync set has changed."""
    key = replica_set_key(partition_id.topic_id, partition_id.number)
    if not record.opened_replicas:
        return Delete(key)
    shown = ReplicaSet(epoch=record.opened_epoch, replicas=record.opened_replicas, in_sync=record.in_sync)
    return Put(key, msgspec.json.encode(shown))
