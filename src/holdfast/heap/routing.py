"""Which partition a message goes to: rendezvous hashing, so that more partitions move as few keys as possible. Pure."""

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from itertools import count
from typing import Final

from holdfast.heap.model import NewMessage
from holdfast.vocabulary.hashing import fmix_64

_GOLDEN: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1
_KEYS_KEPT: Final = 65_536


@lru_cache(maxsize=_KEYS_KEPT)
def partition_of_key(key: str, partitions: int) -> int:
    """The partition of a key. It never changes: duplicates are found where the first one went."""
    if partitions == 1:
        return 0
    digest = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")
    return max(range(partitions), key=lambda number: fmix_64((digest + (number + 1) * _GOLDEN) & _MASK))


class MessageRouter:
    """Where messages of one process go. Those without a key of any kind or a producer go to each partition in turn."""

    def __init__(self) -> None:
        self._turns: Iterator[int] = count()

    def partition(self, message: NewMessage, partitions: int) -> int:
        """The partition of a message."""
        if partitions == 1:
            return 0
        if message.partition_key is not None:
            return partition_of_key(message.partition_key, partitions)
        if message.fairness_key is not None:  # a key's limits count where its messages are
            return partition_of_key(message.fairness_key, partitions)
        if message.producer is not None:  # the same enqueue again must find the first one
            return partition_of_key("\0".join(map(str, message.producer)), partitions)
        return next(self._turns) % partitions
