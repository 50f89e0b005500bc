"""All leases of a store, fenced at once and held by nobody: for a store that is left for good.

Raising every epoch refuses the commit of a holder that was suspended before it was sent: it finds that it was fenced, and keeps in
its WAL what it could not publish. A holder without a session (`MOVED_HOLDER`) keeps the lease from whoever wakes up, or has just
started, in a release that does not know `cluster/moved`. It is neither copied nor alive.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import AtVersion, Committed, Delete, Entry, Operation, Put, Requirement, Store
from holdfast.contracts.validation import next_key, prefix_end
from holdfast.kernel.keys import EPOCHS, HOLDERS, holder_key
from holdfast.kernel.lease import EpochRecord, HolderRecord, read_epoch, read_holder
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

MOVED_HOLDER: Final = "(moved)"
_LEASES_PER_COMMIT: Final = 30  # a requirement and two operations each


def is_fence(entry: Entry) -> bool:
    """Whether an entry is the holder of a lease in a store that was left."""
    return entry.session is None and entry.key.startswith(HOLDERS) and read_holder(entry).holder == MOVED_HOLDER


async def fence_all_leases(
    store: Store, *, closed: Callable[[], Awaitable[Requirement]], clock: Clock, random: Random
) -> None:
    """Raise the epoch of every lease by one, and let nobody acquire it. `closed`: the store is still left, or it raises."""
    start, end = EPOCHS, prefix_end(EPOCHS)
    while True:
        left = await closed()
        found = await store.scan(start, end, limit=_LEASES_PER_COMMIT)
        if not found.entries:
            return
        outcome = await commit_resolved(
            store,
            clock=clock,
            random=random,
            require=[left, *(AtVersion(entry.key, entry.version) for entry in found.entries)],
            apply=[operation for entry in found.entries for operation in _fence(entry)],
        )
        if isinstance(outcome, Committed):
            start = next_key(found.entries[-1].key)


async def free_all_leases(store: Store, *, clock: Clock, random: Random) -> None:
    """Let them be acquired again. Their epochs stay as they are."""
    start, end = HOLDERS, prefix_end(HOLDERS)
    while True:
        found = await store.scan(start, end, limit=_LEASES_PER_COMMIT)
        if not found.entries:
            return
        if freed := [entry for entry in found.entries if is_fence(entry)]:
            outcome = await commit_resolved(
                store,
                clock=clock,
                random=random,
                require=[AtVersion(entry.key, entry.version) for entry in freed],
                apply=[Delete(entry.key) for entry in freed],
            )
            if not isinstance(outcome, Committed):
                continue
        start = next_key(found.entries[-1].key)


def _fence(entry: Entry) -> tuple[Operation, Operation]:
    epoch = read_epoch(entry) + 1
    return (
        Put(entry.key, msgspec.json.encode(EpochRecord(epoch))),
        Put(holder_key(entry.key.removeprefix(EPOCHS)), msgspec.json.encode(HolderRecord(MOVED_HOLDER, epoch))),
    )
