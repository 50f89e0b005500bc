"""The id of a cluster: chosen by the first process that opens a store, the same for every process ever after.

cluster/identity   {"id"}

A cluster that has moved to another store keeps its id there; here it is refused (`cluster_move`).
"""

from typing import Final

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, Committed, Put, Store
from holdfast.kernel.cluster_move import MIGRATION_KEY, check_not_moved
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

IDENTITY_KEY: Final = "cluster/identity"


class _Identity(msgspec.Struct, frozen=True):
    id: str


async def read_cluster_identity(store: Store) -> str:
    """The cluster's id; "" if the store has none yet."""
    entry = await store.get(IDENTITY_KEY)
    return msgspec.json.decode(entry.value, type=_Identity).id if entry is not None else ""


def identity_put(cluster: str) -> Put:
    """Give a store its cluster's id."""
    return Put(IDENTITY_KEY, msgspec.json.encode(_Identity(cluster)))


async def cluster_identity(store: Store, *, clock: Clock, random: Random, moved_allowed: bool = False) -> str:
    """The cluster's id; chosen now if the store has none yet. `ClusterMovedError`: it lives elsewhere, or is not here yet."""
    await check_not_moved(store, moved_allowed=moved_allowed)
    if known := await read_cluster_identity(store):
        return known
    chosen = random.token()
    outcome = await commit_resolved(
        store,
        clock=clock,
        random=random,
        require=(Absent(IDENTITY_KEY), Absent(MIGRATION_KEY)),
        apply=(identity_put(chosen),),
    )
    if isinstance(outcome, Committed):
        return chosen
    # Lost the race: the key exists now, and it is never deleted; or a migration began meanwhile.
    await check_not_moved(store, moved_allowed=moved_allowed)
    return await read_cluster_identity(store)
