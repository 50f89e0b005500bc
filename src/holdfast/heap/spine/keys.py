"""The leases of spines. A store has a fixed number of shards; a heap's spine lives in one of them, under its lease and its epoch.

workload/~spines the number of shards, which the planner places (a kernel key) lease/…/partition/~spines/{shard:05d} the owner of
a shard (kernel keys)
"""

from typing import Final

from holdfast.kernel.keys import LeaseKind, kind_workload, parse_placed_resource, placed_resource
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.hashing import fmix_64, fnv1a_64

SPINE_SHARD: Final = LeaseKind("spines")


def spine_shard_of(topic: str, shards: int) -> int:
    """The shard of a heap's spine. It never changes: two spines of one heap would need epochs that can be compared."""
    return fmix_64(fnv1a_64(topic.encode())) % shards


def spine_resource(shard: int) -> str:
    """The lease of a shard."""
    return placed_resource(kind_workload(SPINE_SHARD), shard)


def shard_from_resource(resource: str) -> int:
    """The shard whose lease this is."""
    kind, _, number = parse_placed_resource(resource)
    if kind != SPINE_SHARD:
        raise InvalidError("resource", resource, "the lease of a shard of spines")
    return number
