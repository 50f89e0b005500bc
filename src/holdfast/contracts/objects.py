"""Objects: immutable blobs under keys, on a folder or an object store.

The one rule: an object never changes. `put` writes a key that must not exist yet; a writer that lost the race is told so.
Readers therefore cache freely, and nothing here needs a lock. Listing is for sweepers and people: what exists is decided by the
Store, which names every object that counts.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Stored:
    """The object is there, whole and durable."""

    key: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class AlreadyThere:
    """Somebody wrote this key before; nothing was changed. It may have been ourselves: a lost answer, retried."""

    key: str


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no such object (any more)."""

    key: str


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a listing says of an object. `modified_ms` is the store's wall clock: for graces, never for order."""

    key: str
    size_bytes: int
    modified_ms: int


class Objects(Protocol):
    """Blobs on some engine. Safe for many tasks of one event loop.

    Any method may raise `UnavailableError` once its deadline has passed; throttling and timeouts are retried inside until then.
    """

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyThere:
        """Write a new object from parts, atomically and durably.

        Unknown: a lost answer is retried; the retry then finds `AlreadyThere`. Keys carry an upload id, so that a writer knows
        its own.
        """
        ...

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes | Missing:
        """Bytes [start, end) of the object; all of it without `end`."""
        ...

    async def get_tail(self, key: str, size_bytes: int) -> bytes | Missing:
        """The last `size_bytes` of the object (or all of it), without knowing its size: where footers are."""
        ...

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects below `prefix` with keys above `after`, in key order."""
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; removing what is not there does nothing."""
        ...
