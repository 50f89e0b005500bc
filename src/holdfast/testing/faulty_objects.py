"""FaultyObjects: object storage with failing requests, lost answers, and slow or short reads."""

from collections.abc import AsyncIterator, Sequence
from typing import TypeVar, cast

from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Objects, Stored
from holdfast.objects.errors import ThrottledError
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random

Found = TypeVar("Found", bound=Buffer | Missing)


class FaultyObjects:
    """Passes calls on to `objects` and injects faults. Retries belong above it, never below.

    Shares are between 0 and 1, drawn from `random`: with a seeded one, a run is reproducible.
    """

    def __init__(self, objects: Objects, *, clock: Clock, random: Random) -> None:
        self._objects, self._clock, self._random = objects, clock, random
        self.fail_share = 0.0  # requests that fail with 503, not done
        self.lose_put_share = 0.0  # puts that are done, without an answer
        self.short_share = 0.0  # reads that return too few bytes, which checksums must catch
        self.delay_ms = 0.0  # before every request
        self.reachable = True
        self._lose_answer_to: str | None = None
        self.calls: dict[str, int] = {}
        self.faults = 0  # how many were injected

    def lose_answer_to(self, marker: str) -> None:
        """The next put whose key contains `marker` is done; its answer is lost."""
        self._lose_answer_to = marker

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        await self._pass("put")
        outcome = await self._objects.put(key, body)
        marked = self._lose_answer_to is not None and self._lose_answer_to in key
        if marked:
            self._lose_answer_to = None
        if marked or self._drawn(self.lose_put_share):
            raise UnavailableError("objects", "the answer was lost on purpose")
        return outcome

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Buffer | Missing:
        await self._pass("get")
        return self._maybe_short(await self._objects.get(key, start=start, end=end))

    async def get_tail(self, key: str, size_bytes: int) -> Buffer | Missing:
        await self._pass("get_tail")
        return self._maybe_short(await self._objects.get_tail(key, size_bytes))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        """May also break off in the middle."""
        await self._pass("list")
        async for info in self._objects.list(prefix, after=after):
            if self._drawn(self.fail_share / 100):
                raise UnavailableError("objects", "the listing was broken off on purpose")
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        await self._pass("delete")
        await self._objects.delete(keys)

    async def _pass(self, method: str) -> None:
        if self.delay_ms:
            await self._clock.sleep_ms(self._random.jitter(self.delay_ms))
        self.calls[method] = self.calls.get(method, 0) + 1
        if not self.reachable:
            raise UnavailableError("objects", "made unreachable on purpose")
        if self._drawn(self.fail_share):
            raise ThrottledError("objects", "503 Slow Down, on purpose")

    def _maybe_short(self, found: Found) -> Found:
        if isinstance(found, Missing) or not found or not self._drawn(self.short_share):
            return found
        return cast(Found, found[: len(found) // 2])

    def _drawn(self, share: float) -> bool:
        hit = share > 0 and self._random.jitter(0.5, share=1.0) < share
        self.faults += hit
        return hit
