"""The number of shards of a kind of lease (`groups`, `cursors`): set once, by the first agent of a store, as a workload."""

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, Put, Store
from holdfast.kernel.keys import LeaseKind, kind_workload, workload_key
from holdfast.kernel.placement import ANY_GROUP, Workload
from holdfast.kernel.planner import read_workload
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random


async def ensure_shards(store: Store, kind: LeaseKind, shards: int, *, clock: Clock, random: Random) -> int:
    """Create the workload of a kind with `shards` shards unless it exists; the number of shards."""
    key = workload_key(kind_workload(kind))
    if await store.get(key) is None:
        wanted = Workload(topic=kind_workload(kind), partitions=shards, group=ANY_GROUP)
        await commit_resolved(
            store, clock=clock, random=random, require=(Absent(key),), apply=(Put(key, msgspec.json.encode(wanted)),)
        )
    return await shard_count(store, kind)


async def shard_count(store: Store, kind: LeaseKind) -> int:
    """The number of shards. `UnavailableError`: no agent has set it yet."""
    entry = await store.get(workload_key(kind_workload(kind)))
    if entry is None:
        raise UnavailableError(f"owner of {kind}", "no agent that serves them has ever joined this store")
    return read_workload(entry).partitions
