"""The id of a cluster: drawn by the first process that uses a store, the same for every process afterwards.

cluster/identity   {"id"}
"""

from typing import Final

import msgspec

from holdfast.contracts.compare_and_swap import put_if_absent
from holdfast.contracts.store import Store
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_KEY: Final = "cluster/identity"


class _Identity(msgspec.Struct, frozen=True):
    id: str


async def cluster_identity(store: Store, *, clock: Clock, random: Random) -> str:
    """The cluster's id."""
    fresh = msgspec.json.encode(_Identity(random.token()))
    held = await put_if_absent(store, _KEY, fresh, clock=clock, random=random)
    return msgspec.json.decode(held, type=_Identity).id
