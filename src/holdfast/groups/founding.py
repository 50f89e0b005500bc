"""How many shards there are: said once, by the first agent that ever used the store, as a workload for the planner."""

from typing import Final

import msgspec

from holdfast.contracts.store import Absent, Put, Store
from holdfast.contracts.surely import commit_surely
from holdfast.groups.keys import GROUPS
from holdfast.kernel.keys import workload_key
from holdfast.kernel.plan import EVERYBODY, Workload
from holdfast.kernel.planner import read_workload
from holdfast.vocabulary.clock import Chance, Clock
from holdfast.vocabulary.errors import UnavailableError

_KEY: Final = workload_key(GROUPS)


async def found_shards(store: Store, shards: int, *, clock: Clock, chance: Chance) -> int:
    """Have shards placed, `shards` of them unless the store knows better; how many there are."""
    if await store.get(_KEY) is None:
        wanted = Workload(topic=GROUPS, partitions=shards, group=EVERYBODY)
        await commit_surely(
            store, clock=clock, chance=chance, require=(Absent(_KEY),), apply=(Put(_KEY, msgspec.json.encode(wanted)),)
        )
    return await shard_count(store)


async def shard_count(store: Store) -> int:
    """How many shards there are. `UnavailableError`: nobody has said so yet."""
    entry = await store.get(_KEY)
    if entry is None:
        raise UnavailableError("group coordinator", "no agent has ever served this store")
    return read_workload(entry).partitions
