"""A replica that has promised an epoch which the store has forgotten: the store was put back in time.

The one rule: nobody climbs over such a promise by taking epochs until one is high enough. The replicas may have acknowledged
records that the store does not know, and the first leader above their promise would cut them off. The partition stays offline until
the newer store is back, or `unclean_takeover` on the topic allows to go on without them. An agent forgets it when it ends.
"""

from dataclasses import dataclass, field

from holdfast.contracts.store import Store
from holdfast.kernel.keys import epoch_key
from holdfast.kernel.lease import Lease
from holdfast.vocabulary.errors import CorruptError


@dataclass(slots=True)
class PromisesAhead:
    """Of the partitions that one agent leads, or tried to."""

    _seen: dict[str, int] = field(default_factory=dict)  # by resource: the promise that refused us

    def refused(self, lease: Lease, promised: int) -> None:
        """A replica has refused this lease's epoch because of its promise."""
        self._seen[lease.resource] = promised

    def barring(self, lease: Lease) -> int:
        """The promise that bars the lease's epoch; 0: none is known. It is nothing special if the lease is lost.

        One of the same number as well: it was made to another leader, whose entries would be taken for ours.
        """
        promised = self._seen.get(lease.resource, 0)
        return promised if promised >= lease.epoch else 0


async def is_newest(store: Store, lease: Lease) -> bool:
    """Whether the store knows of no newer epoch."""
    entry = await store.get(epoch_key(lease.resource))
    return entry is not None and entry.version == lease.version


def store_behind_error(partition: str, epoch: int, promised: int) -> CorruptError:
    """What the partition is offline for."""
    found = (
        f"partition {partition} is at epoch {epoch} there, and a replica has promised epoch {promised}: it was restored from "
        "before that, and replicas may have acknowledged records that it does not know; use the newer store, or set "
        "unclean_takeover on the topic to go on without them"
    )
    return CorruptError("store", found)
