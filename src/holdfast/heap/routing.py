"""Which partition a message goes to: rendezvous hashing, so that more partitions move as few keys as possible. Pure."""

import hashlib
from collections.abc import Iterator, Sequence
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
    """The partition of a key, of so many. With more of them it is a new one, or the same."""
    if partitions == 1:
        return 0
    digest = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")
    return max(range(partitions), key=lambda number: fmix_64((digest + (number + 1) * _GOLDEN) & _MASK))


def routing_key(message: NewMessage) -> str | None:
    """What decides the partition of a message; None: nothing does."""
    if message.partition_key is not None:
        return message.partition_key
    if message.fairness_key is not None:  # a key's limits count where its messages are
        return message.fairness_key
    if message.producer is not None:  # the same enqueue again must find the first one
        return "\0".join(map(str, message.producer))
    return None


class MessageRouter:
    """Where messages of one process go. Those without a key of any kind or a producer go to each partition in turn."""

    def __init__(self) -> None:
        self._turns: Iterator[int] = count()

    def partition(self, message: NewMessage, partitions: int) -> int:
        """The partition of a message."""
        if partitions == 1:
            return 0
        key = routing_key(message)
        return next(self._turns) % partitions if key is None else partition_of_key(key, partitions)

    def batch(self, messages: Sequence[NewMessage], partitions: int) -> list[int]:
        """The partitions of messages that are enqueued together: those without key and producer go with the first that has one,
        or to one partition all of them, so that a plain batch is in as few partitions as it can be."""
        return list(self.each_of_batch(messages, partitions))

    def each_of_batch(self, messages: Sequence[NewMessage], partitions: int) -> Iterator[int]:
        """`batch`, one by one: of a key that is new, each partition costs a microsecond."""
        leading = next((message for message in messages if routing_key(message) is not None), None)
        first = self.partition(messages[0] if leading is None else leading, partitions) if messages else 0
        for message in messages:
            yield first if routing_key(message) is None else self.partition(message, partitions)
