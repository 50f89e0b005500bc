"""Objects: immutable blobs under keys, on a folder or an object store.

The one rule: an object never changes. `put` writes a key that must not exist yet, and a deleted key is never written again; a
writer that lost the race gets `AlreadyExists`. Readers therefore cache freely, and nothing here needs a lock. Listing is for
sweepers and people: the Store decides what exists, and names every object that counts.

Keys are printable text of segments between slashes (`topic/0/000.seg`). Segments that begin with a dot belong to the engine. No
key is the folder of another (`a` beside `a/b`): some engines cannot hold both.

`holdfast.testing.objects_contract` holds each engine to this page.
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
class AlreadyExists:
    """The key exists; nothing was changed. Its writer may be ourselves: a lost answer, retried."""

    key: str


@dataclass(frozen=True, slots=True)
class Missing:
    """There is no such object (any more)."""

    key: str


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a listing. `modified_ms` is the store's wall clock: for grace periods, never for order."""

    key: str
    size_bytes: int
    modified_ms: int


class Objects(Protocol):
    """Blobs on some engine. Safe for many tasks of one event loop.

    Any method may raise `UnavailableError` once its deadline has passed; throttling, timeouts and broken connections are
    retried inside until then. `InvalidError`: a key or a range that no engine takes. `ClosedError`: this process closed it.
    """

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        """Write a new object from parts, atomically and durably: it is there whole, or not at all.

        Lost race: `AlreadyExists`. Unknown: a lost answer is retried, and the retry finds `AlreadyExists`; keys carry an upload
        id, so that a writer recognizes its own. After `UnavailableError` or a cancellation the object may or may not appear: put
        the same key and body again, or leave it to the sweeper. Parts must not change until this returns or raises.
        """
        ...

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Buffer | Missing:
        """Bytes [start, end) of the object; up to its end without `end`. A view retains memory that others wait for: drop it soon.

        Bytes beyond the object's end are left out: a range that begins there is empty.
        """
        ...

    async def get_tail(self, key: str, size_bytes: int) -> Buffer | Missing:
        """The last `size_bytes` of the object (or all of it), without knowing its size: where footers are."""
        ...

    def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Objects whose keys start with `prefix` and come after `after`, in code point order.

        `prefix` is text, not a folder: `a` finds `ab/c`. End it with a slash: that is also what engines do cheaply. `after`
        spares the caller work, not the engine. Objects put or deleted meanwhile may or may not be seen.
        """
        ...

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects durably, any number of them; removing an absent object does nothing."""
        ...
