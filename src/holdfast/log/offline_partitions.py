"""Partitions that the holder of their lease cannot open, marked in the store so that every node knows.

Without the mark, other nodes would name the holder as the leader, and clients would ask it in vain, again and again. A mark counts
for the epoch it names and goes with the holder's session; opening the partition removes it in the commit of the takeover.
"""

import msgspec

from holdfast.contracts.store import Absent, AtVersion, Entry, Put, Requirement, Store
from holdfast.kafka.special_offsets import NO_NODE
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.kernel.membership import known_node_id
from holdfast.log.errors import TailNotLocalError
from holdfast.log.keys import offline_key, state_key
from holdfast.log.model import PartitionId
from holdfast.log.wal_owners import last_wal_agent
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import Random


class OfflinePartition(msgspec.Struct, frozen=True):
    """What stands under `offline/…`. `node`: the numeric id of the agent that has its last records, -1 if that is unknown."""

    epoch: int
    node: int
    reason: str


def read_offline(entry: Entry) -> OfflinePartition:
    """The mark in a store entry."""
    return msgspec.json.decode(entry.value, type=OfflinePartition)


async def mark_offline(
    store: Store, lease: Lease, partition_id: PartitionId, error: HoldfastError, *, clock: Clock, random: Random
) -> None:
    """Mark the partition, for as long as this lease is ours and it is not opened. `FencedError`: the lease is lost."""
    key = state_key(partition_id.topic_id, partition_id.number)
    entry = await store.get(key)
    # Opening changes the record: a mark whose commit comes late cannot land after it.
    unopened: Requirement = Absent(key) if entry is None else AtVersion(key, entry.version)
    has_tail = await last_wal_agent(store, error.wal) if isinstance(error, TailNotLocalError) else lease.holder
    node = await known_node_id(store, has_tail) if has_tail is not None else None
    mark = OfflinePartition(lease.epoch, NO_NODE if node is None else node, str(error))
    put = Put(offline_key(lease.resource), msgspec.json.encode(mark), lease.session)
    await commit_fenced(store, lease, clock=clock, random=random, require=(unopened,), apply=(put,))
