"""All claims of a store's registries, ended at once: for a store that is left for good, as `kernel.lease_fencing` does to leases.

A claim whose consumer was suspended until its session ended stays valid until somebody else claims the partition, and nobody will
here. So each one is released, at the next epoch: a checkpoint that such a consumer had not sent yet is refused.
"""

from dataclasses import replace
from typing import Final

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import AtVersion, Committed, Entry, Put, Store
from holdfast.contracts.validation import next_key, prefix_end
from holdfast.registry import keys, records
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_ENTRIES_PER_PAGE: Final = 45  # a requirement and an operation each


async def release_all_claims(store: Store, *, clock: Clock, random: Random) -> int:
    """Release every claim of every namespace; the version after which no commit of an earlier claim was applied."""
    start, end = keys.REGISTRIES, prefix_end(keys.REGISTRIES)
    while True:
        found = await store.scan(start, end, limit=_ENTRIES_PER_PAGE)
        if not found.entries:
            return found.version
        owned = [entry for entry in found.entries if _is_owned(entry)]
        if owned:
            outcome = await commit_resolved(
                store,
                clock=clock,
                random=random,
                require=[AtVersion(entry.key, entry.version) for entry in owned],
                apply=[_released(entry) for entry in owned],
            )
            if not isinstance(outcome, Committed):
                continue
        start = next_key(found.entries[-1].key)


def _is_owned(entry: Entry) -> bool:
    return keys.record_kind(entry.key) == keys.PARTITIONS and records.decode_partition(entry).owner is not None


def _released(entry: Entry) -> Put:
    state = records.decode_partition(entry)
    return Put(entry.key, records.encode_partition(replace(state, owner=None, epoch=state.epoch + 1)))
