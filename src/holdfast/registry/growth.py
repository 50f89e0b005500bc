"""Adding partitions to a namespace whose source has grown, for packages that keep registries of their own (pipelines).

The one rule: a partition that is added begins at offset 0, and that is decided by the commit that makes it. Its records were all
written after the namespace began, so whoever asked for `latest` at that time wants every one of them. Partitions are never removed.
"""

from typing import Final

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.compare_and_swap import Swap, compare_and_swap
from holdfast.contracts.store import Absent, Entry, Put, Store
from holdfast.contracts.validation import prefix_end
from holdfast.registry import keys, records
from holdfast.registry.model import PartitionState
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_PARTITIONS_PER_COMMIT: Final = 30  # each is a requirement and two puts; a commit takes 100 operations


async def ensure_partitions(store: Store, namespace: str, count: int, *, clock: Clock, random: Random) -> int:
    """Make the namespace, or add what it lacks of `count` partitions; how many it has: others may have added more.

    Racing calls, and calls after one that died half-way, end in the same state.
    """

    async def decide(entry: Entry | None) -> Swap[records.CountRecord]:
        if entry is None:
            wanted = records.CountRecord(count, initial=count)
        else:
            wanted = records.decode_count(entry)
            if wanted.partitions >= count:
                return Swap(wanted)
            wanted = records.CountRecord(count, initial=wanted.initial)
        return Swap(wanted, [Put(keys.meta_key(namespace), records.encode_count(wanted))])

    # The counts are decided before the partitions are made: whoever makes one knows whether it was added.
    decided, _ = await compare_and_swap(store, keys.meta_key(namespace), decide, clock=clock, random=random)
    while missing := await _missing(store, namespace, decided.partitions):
        made = missing[:_PARTITIONS_PER_COMMIT]
        puts = [
            Put(keys.partition_key(namespace, each), records.encode_partition(PartitionState(id=each))) for each in made
        ]
        starts = [
            Put(keys.start_key(namespace, each), records.encode_start(0)) for each in made if each >= decided.initial
        ]
        require = [Absent(put.key) for put in puts]
        await commit_resolved(store, clock=clock, random=random, require=require, apply=[*puts, *starts])
    return decided.partitions


async def _missing(store: Store, namespace: str, count: int) -> list[int]:
    prefix = keys.partitions_prefix(namespace)
    made = {records.partition_number(entry.key) for entry in (await store.scan(prefix, prefix_end(prefix))).entries}
    return [number for number in range(count) if number not in made]
