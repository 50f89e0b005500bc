"""Store keys of shared cursors, and the shard of a topic.

workload/~cursors                       the number of shards, which the planner places (a kernel key)
lease/…/partition/~cursors/{shard:05d}  the owner of a shard (kernel keys)
cursor/{shard:05d}/{topic}              {"topic_id", "offset"}: everything below `offset` was delivered
"""

from typing import Final

from holdfast.kernel.keys import LeaseKind, kind_workload, parse_placed_resource, placed_resource
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.hashing import fmix_64, fnv1a_64

CURSOR_SHARD: Final = LeaseKind("cursors")


def shard_of(topic: str, shards: int) -> int:
    """The shard of a topic's cursor. It never changes: keys depend on it."""
    return fmix_64(fnv1a_64(topic.encode())) % shards


def shard_resource(shard: int) -> str:
    """The lease of a shard."""
    return placed_resource(kind_workload(CURSOR_SHARD), shard)


def shard_from_resource(resource: str) -> int:
    """The shard whose lease this is."""
    kind, _, number = parse_placed_resource(resource)
    if kind != CURSOR_SHARD:
        raise InvalidError("resource", resource, "the lease of a cursor shard")
    return number


def cursors_prefix(shard: int) -> str:
    """The cursors of a shard."""
    return f"cursor/{shard:05d}/"


def cursor_key(shard: int, topic: str) -> str:
    """A topic's cursor."""
    return cursors_prefix(shard) + topic
