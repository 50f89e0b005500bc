"""The name of a cluster: drawn by whoever uses a store first, the same for everybody ever after.

cluster/identity   {"id"}
"""

from typing import Final

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, Committed, Put, Store
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_KEY: Final = "cluster/identity"


class _Identity(msgspec.Struct, frozen=True):
    id: str


async def cluster_identity(store: Store, *, clock: Clock, random: Random) -> str:
    """The cluster's id."""
    fresh = _Identity(random.token())
    known = await store.get(_KEY)
    if known is None:
        put = Put(_KEY, msgspec.json.encode(fresh))
        outcome = await commit_resolved(store, clock=clock, random=random, require=(Absent(_KEY),), apply=(put,))
        if isinstance(outcome, Committed):
            return fresh.id
        known = outcome.found[_KEY]
    assert known is not None  # it was absent, then it was in the way, and nobody deletes it
    return msgspec.json.decode(known.value, type=_Identity).id
