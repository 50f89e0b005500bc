"""Store keys of groups, and the shard of a group.

    workload/~groups                             the number of shards, which the planner places (a kernel key)
    lease/…/partition/~groups/{shard:05d}        the coordinator of a shard (kernel keys)
    group/{shard:05d}/{group}                    generation, members, assignment: see `records`
    offset/{shard:05d}/{group}/{topic}/{n:05d}   committed offsets of partitions n … n+15 of a topic

Sixteen partitions share a key. With one key per partition, a consumer of fifty would commit fifty operations, half of a commit's
limit; one key per topic would rewrite thousands of offsets for one change, and could exceed a commit.

A group id is any text, so it is escaped in keys: `/`, `%`, `~` and unprintable characters become %XX of their UTF-8 bytes; an id
too long for a key is truncated and ends in `~` and a hash. Values contain the id as it is.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import Final

from holdfast.kernel.keys import LeaseKind, kind_workload, parse_placed_resource, placed_resource
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.hashing import fmix_64, fnv1a_64

GROUP_SHARD: Final = LeaseKind("groups")
GROUP_SHARDS_WORKLOAD: Final = kind_workload(GROUP_SHARD)
PARTITIONS_PER_KEY: Final = 16

_ESCAPED: Final = frozenset("/%~")
_PLAIN_BYTES_MAX: Final = 512
_CUT_CHARS: Final = 64


def shard_of(group_id: str, shards: int) -> int:
    """The shard of a group. It never changes: keys depend on it."""
    return fmix_64(fnv1a_64(group_id.encode())) % shards


def shard_resource(shard: int) -> str:
    """The lease of a shard."""
    return placed_resource(GROUP_SHARDS_WORKLOAD, shard)


def shard_from_resource(resource: str) -> int:
    """The shard whose lease this is."""
    kind, _, number = parse_placed_resource(resource)
    if kind != GROUP_SHARD:
        raise InvalidError("resource", resource, "the lease of a group shard")
    return number


@lru_cache(maxsize=8_192)  # members commit under the same id again and again
def escape_group_id(group_id: str) -> str:
    """A group id as part of a key."""
    if not group_id:
        return "~"
    escaped = "".join(
        "".join(f"%{byte:02X}" for byte in char.encode()) if char in _ESCAPED or not char.isprintable() else char
        for char in group_id
    )
    if len(escaped.encode()) <= _PLAIN_BYTES_MAX:
        return escaped
    cut = "".join(char for char in group_id[:_CUT_CHARS] if char.isascii() and char.isalnum())
    return f"{cut}~{blake2b(group_id.encode(), digest_size=20).hexdigest()}"


def groups_prefix(shard: int) -> str:
    """The groups of a shard."""
    return f"group/{shard:05d}/"


def group_key(shard: int, group_id: str) -> str:
    """A group's record."""
    return groups_prefix(shard) + escape_group_id(group_id)


def offsets_prefix(shard: int) -> str:
    """The offsets of a shard's groups."""
    return f"offset/{shard:05d}/"


def offsets_key(shard: int, group_id: str, topic: str, number: int) -> str:
    """The key of a partition's offset, shared with its neighbours."""
    first = number - number % PARTITIONS_PER_KEY
    return f"{offsets_prefix(shard)}{escape_group_id(group_id)}/{topic}/{first:05d}"
