"""Memory engine: the contract in one process, for tests, simulation and first steps. Nothing survives the process.

It is also the reference: the simplest code that keeps every promise of `contracts.objects`.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Objects, Stored
from holdfast.objects.checks import check_key, check_prefix, check_range, check_tail
from holdfast.objects.urls import ObjectsUrl
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError
from holdfast.vocabulary.random import Random


class MemoryObjects:
    """All objects in a dictionary; no method yields midway, so each is atomic."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._bodies: dict[str, tuple[bytes, int]] = {}  # body, when it was put
        self._keys: list[str] = []  # sorted
        self._closed = False

    @classmethod
    @asynccontextmanager
    async def open(cls, *, clock: Clock) -> AsyncIterator["MemoryObjects"]:
        """A new, empty engine that lives as long as the body."""
        objects = cls(clock=clock)
        try:
            yield objects
        finally:
            objects._closed = True

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        self._check_open()
        check_key(key)
        if key in self._bodies:
            return AlreadyExists(key)
        whole = b"".join(body)
        self._bodies[key] = (whole, self._clock.now_ms())
        insort(self._keys, key)
        return Stored(key, len(whole))

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes | Missing:
        self._check_open()
        check_key(key)
        check_range(key, start, end)
        found = self._bodies.get(key)
        return Missing(key) if found is None else found[0][start:end]

    async def get_tail(self, key: str, size_bytes: int) -> bytes | Missing:
        self._check_open()
        check_key(key)
        check_tail(key, size_bytes)
        found = self._bodies.get(key)
        return Missing(key) if found is None else found[0][-size_bytes:]

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        self._check_open()
        check_prefix(prefix)
        at = bisect_left(self._keys, prefix) if prefix > after else bisect_right(self._keys, after)
        while at < len(self._keys) and (key := self._keys[at]).startswith(prefix):
            body, put_at_ms = self._bodies[key]
            yield ObjectInfo(key, len(body), put_at_ms)
            at = bisect_right(self._keys, key)  # keys come and go while the caller iterates

    async def delete(self, keys: Sequence[str]) -> None:
        self._check_open()
        for key in keys:
            check_key(key)
        for key in keys:
            if self._bodies.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("memory objects")


def open_url(url: ObjectsUrl, clock: Clock, random: Random) -> AbstractAsyncContextManager[Objects]:
    """`memory:` is a new, empty engine for each opening."""
    url.check_options()
    return MemoryObjects.open(clock=clock)
