"""The name of a cluster: drawn by whoever uses a store first, the same for everybody ever after.

cluster/identity   {"id"}
"""

from typing import Final

import msgspec

from holdfast.contracts.store import Absent, Committed, Put, Store
from holdfast.contracts.surely import commit_surely
from holdfast.vocabulary.clock import Chance, Clock

_KEY: Final = "cluster/identity"


class _Identity(msgspec.Struct, frozen=True):
    id: str


async def cluster_identity(store: Store, *, clock: Clock, chance: Chance) -> str:
    """The cluster's id."""
    fresh = _Identity(chance.token())
    known = await store.get(_KEY)
    if known is None:
        put = Put(_KEY, msgspec.json.encode(fresh))
        outcome = await commit_surely(store, clock=clock, chance=chance, require=(Absent(_KEY),), apply=(put,))
        if isinstance(outcome, Committed):
            return fresh.id
        known = outcome.found[_KEY]
    assert known is not None  # it was absent, then it was in the way, and nobody deletes it
    return msgspec.json.decode(known.value, type=_Identity).id
