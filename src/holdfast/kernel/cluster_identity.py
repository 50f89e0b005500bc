"""The id of a cluster: chosen by the first process that opens a store, the same for every process ever after.

cluster/identity   {"id"}
"""

from typing import Final

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, Committed, Put, Store
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

IDENTITY_KEY: Final = "cluster/identity"


class _Identity(msgspec.Struct, frozen=True):
    id: str


async def read_cluster_identity(store: Store) -> str:
    """The cluster's id; "" if the store has none yet."""
    entry = await store.get(IDENTITY_KEY)
    return msgspec.json.decode(entry.value, type=_Identity).id if entry is not None else ""


async def cluster_identity(store: Store, *, clock: Clock, random: Random) -> str:
    """The cluster's id; chosen now if the store has none yet."""
    if known := await read_cluster_identity(store):
        return known
    chosen = random.token()
    put = Put(IDENTITY_KEY, msgspec.json.encode(_Identity(chosen)))
    outcome = await commit_resolved(store, clock=clock, random=random, require=(Absent(IDENTITY_KEY),), apply=(put,))
    # Lost the race: the key exists now, and it is never deleted.
    return chosen if isinstance(outcome, Committed) else await read_cluster_identity(store)
