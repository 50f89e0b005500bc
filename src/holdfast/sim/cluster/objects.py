"""Simulated object storage: one bucket that keeps what it has, and how a process reaches it.

The one rule: a request's fate is its own. It may be refused (503), lost on the way, or carried out with its answer lost; the caller
gets `UnavailableError` and must not conclude anything. Listings of segments may lag behind puts and deletes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Stored
from holdfast.kernel.objects_owner import MARKS
from holdfast.objects.memory import MemoryObjects
from holdfast.sim.cluster.history import ClusterHistory
from holdfast.sim.loop import SimLoop
from holdfast.sim.network import NetworkLink
from holdfast.sim.process import SimProcess
from holdfast.sim.store_server import run_immediately
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import SeededRandom

T = TypeVar("T")

PLACE: Final = "object storage"
ATTEMPTS_MAX: Final = 3


@dataclass(slots=True, kw_only=True)
class BucketConditions:
    """How object storage fares. Shares are of all requests."""

    delay_ms: float = 8.0
    timeout_ms: float = 500.0
    refused_share: float = 0.0
    lost_share: float = 0.0
    slow_share: float = 0.0
    slow_ms: float = 3_000.0
    listing_lag_ms: float = 0.0
    up: bool = True

    def clear(self) -> None:
        """End all faults."""
        self.refused_share = self.lost_share = self.slow_share = self.listing_lag_ms = 0.0
        self.up = True


class Bucket:
    """What is stored, and what was until a moment ago."""

    def __init__(self, *, loop: SimLoop, clock: Clock, history: ClusterHistory) -> None:
        self.objects = MemoryObjects(clock=clock)
        self._loop, self._clock, self._history = loop, clock, history
        self._infos: dict[str, ObjectInfo] = {}
        self._put_at_ms: dict[str, float] = {}
        self._deleted: dict[str, tuple[float, ObjectInfo]] = {}

    def put(self, key: str, body: bytes) -> Stored | AlreadyExists:
        stored = run_immediately(self.objects.put(key, (body,)))
        if isinstance(stored, Stored):
            self._put_at_ms[key] = self._loop.now_ms
            self._infos[key] = ObjectInfo(key, len(body), self._clock.now_ms())
        return stored

    def get(self, key: str, start: int, end: int | None) -> bytes | Missing:
        return run_immediately(self.objects.get(key, start=start, end=end))

    def get_tail(self, key: str, size_bytes: int) -> bytes | Missing:
        return run_immediately(self.objects.get_tail(key, size_bytes))

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            info = self._infos.pop(key, None)
            if info is not None:
                self._history.object_deleted(key)
                self._deleted[key] = (self._loop.now_ms, info)
                run_immediately(self.objects.delete((key,)))

    def list(self, prefix: str, after: str, lag_ms: float) -> Sequence[ObjectInfo]:
        """What a listing shows that is `lag_ms` old."""
        then_ms = self._loop.now_ms - lag_ms
        if prefix.startswith(MARKS):
            then_ms = self._loop.now_ms
        found = [each for each in _all(self.objects.list(prefix, after=after)) if self._put_at_ms[each.key] <= then_ms]
        gone = (info for at_ms, info in self._deleted.values() if at_ms > then_ms)
        found += [info for info in gone if info.key.startswith(prefix) and info.key > after]
        return sorted(found, key=lambda info: info.key)


def _all(listing: AsyncIterator[ObjectInfo]) -> list[ObjectInfo]:
    async def collect() -> list[ObjectInfo]:
        return [info async for info in listing]

    return run_immediately(collect())


class SimObjects:
    """The `Objects` contract as one process sees it."""

    def __init__(
        self,
        bucket: Bucket,
        *,
        loop: SimLoop,
        process: SimProcess,
        link: NetworkLink,
        conditions: BucketConditions,
        random: SeededRandom,
        history: ClusterHistory,
    ) -> None:
        self._bucket, self._loop, self._process, self._link = bucket, loop, process, link
        self._conditions, self._draw, self._history = conditions, random.random.random, history

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        whole = b"".join(body)
        return await self._ask(f"put {key}", lambda: self._bucket.put(key, whole))

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Buffer | Missing:
        return await self._ask("get", lambda: self._bucket.get(key, start, end))

    async def get_tail(self, key: str, size_bytes: int) -> Buffer | Missing:
        return await self._ask("get", lambda: self._bucket.get_tail(key, size_bytes))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        lag_ms = self._draw() * self._conditions.listing_lag_ms
        for info in await self._ask("list", lambda: self._bucket.list(prefix, after, lag_ms)):
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        wanted = tuple(keys)
        if wanted:
            await self._ask(f"delete {', '.join(wanted)}", lambda: self._bucket.delete(wanted))

    async def _ask(self, what: str, run: Callable[[], T]) -> T:
        """Like every engine: what fails is tried again, a few times."""
        for attempt in range(ATTEMPTS_MAX - 1):
            try:
                return await self._send(what, run)
            except UnavailableError:
                pause: asyncio.Future[None] = self._process.wait()
                self._process.deliver_in(50 * 2**attempt, self._process.settle, pause, None, None)
                await pause
        return await self._send(what, run)

    def _send(self, what: str, run: Callable[[], T]) -> "asyncio.Future[T]":
        answer: asyncio.Future[T] = self._process.wait()
        conditions, loop = self._conditions, self._loop
        there_ms, back_ms = self._draw() * conditions.delay_ms, self._draw() * conditions.delay_ms
        if self._draw() < conditions.slow_share:
            there_ms += self._draw() * conditions.slow_ms
        fate = self._draw()
        if not conditions.up or not self._link.up or fate < conditions.refused_share:
            self._history.count("object requests refused")
            self._fail(answer, what, there_ms, "503")
        elif fate < conditions.refused_share + conditions.lost_share:
            self._history.count("object requests lost")
            self._fail(answer, what, conditions.timeout_ms, "request lost")
        elif fate < conditions.refused_share + 2 * conditions.lost_share or there_ms > conditions.timeout_ms:
            self._history.count("object answers lost")
            self._fail(answer, what, conditions.timeout_ms, "answer lost")
            loop.post_at(loop.now_ms + there_ms, run)
        else:
            loop.post_at(loop.now_ms + there_ms, self._arrive, answer, run, back_ms)
        return answer

    def _arrive(self, answer: "asyncio.Future[T]", run: Callable[[], T], back_ms: float) -> None:
        outcome = run()
        self._loop.post_at(self._loop.now_ms + back_ms, self._process.settle, answer, outcome, None)

    def _fail(self, answer: "asyncio.Future[T]", what: str, after_ms: float, why: str) -> None:
        self._history.note(self._process.name, f"{what}: {why}")
        error = UnavailableError(PLACE, why)
        self._loop.post_at(self._loop.now_ms + after_ms, self._process.settle, answer, None, error)
