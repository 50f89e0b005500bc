"""The number of group shards: set once, by the first agent of a store, as a workload for the planner."""

from typing import Final

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, Put, Store
from holdfast.groups.keys import GROUP_SHARDS_WORKLOAD
from holdfast.kernel.keys import workload_key
from holdfast.kernel.placement import ANY_GROUP, Workload
from holdfast.kernel.planner import read_workload
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random

_KEY: Final = workload_key(GROUP_SHARDS_WORKLOAD)


async def ensure_shards(store: Store, shards: int, *, clock: Clock, random: Random) -> int:
    """Create the workload with `shards` shards unless it exists; the number of shards."""
    if await store.get(_KEY) is None:
        wanted = Workload(topic=GROUP_SHARDS_WORKLOAD, partitions=shards, group=ANY_GROUP)
        await commit_resolved(
            store, clock=clock, random=random, require=(Absent(_KEY),), apply=(Put(_KEY, msgspec.json.encode(wanted)),)
        )
    return await shard_count(store)


async def shard_count(store: Store) -> int:
    """The number of shards. `UnavailableError`: no agent has set it yet."""
    entry = await store.get(_KEY)
    if entry is None:
        raise UnavailableError("group coordinator", "no agent has ever served this store")
    return read_workload(entry).partitions
