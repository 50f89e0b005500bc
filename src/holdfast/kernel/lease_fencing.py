"""All leases of a store, fenced at once: for a store that is left for good.

Nobody will acquire them here any more, so nothing else would refuse the commit of a holder that was suspended before it was sent.
Raising every epoch does: such a holder finds that it was fenced, and keeps in its WAL what it could not publish.
"""

from typing import Final

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import AtVersion, Committed, Put, Store
from holdfast.contracts.validation import next_key, prefix_end
from holdfast.kernel.keys import EPOCHS
from holdfast.kernel.lease import EpochRecord, read_epoch
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_LEASES_PER_COMMIT: Final = 45  # a requirement and an operation each


async def fence_all_leases(store: Store, *, clock: Clock, random: Random) -> int:
    """Raise the epoch of every lease by one; the version after which no commit of an earlier holder was applied."""
    start, end = EPOCHS, prefix_end(EPOCHS)
    while True:
        found = await store.scan(start, end, limit=_LEASES_PER_COMMIT)
        if not found.entries:
            return found.version
        outcome = await commit_resolved(
            store,
            clock=clock,
            random=random,
            require=[AtVersion(entry.key, entry.version) for entry in found.entries],
            apply=[Put(entry.key, msgspec.json.encode(EpochRecord(read_epoch(entry) + 1))) for entry in found.entries],
        )
        if isinstance(outcome, Committed):
            start = next_key(found.entries[-1].key)
