"""Counters: requests by operation and cause, with their bytes, errors, time and estimated price.

They stand below the retries, because every attempt is a request that takes time and is billed. The *cause* is the activity of the
caller ("roll", "fetch", "compaction", "sweep"): `with caused_by("roll"): ...` covers everything awaited and started inside.
Prices are an estimate from a table; the provider's invoice may differ.
"""

from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeVar

from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, ObjectInfo, Objects, Stored
from holdfast.objects.errors import ThrottledError
from holdfast.vocabulary.clock import Clock, stopwatch_ns
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.histogram import Latencies
from holdfast.vocabulary.settings import check_at_least

T = TypeVar("T")
Found = TypeVar("Found", bound=Buffer | Missing)

_LIST_PAGE_KEYS: Final = 1_000
_DELETE_PAGE_KEYS: Final = 1_000

_cause: Final[ContextVar[str]] = ContextVar("objects_cause", default="other")


@contextmanager
def caused_by(cause: str) -> Iterator[None]:
    """Requests made inside are counted under `cause`."""
    token = _cause.set(cause)
    try:
        yield
    finally:
        _cause.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Dollars per thousand requests and per GiB read. The defaults are list prices of S3, GCS and Azure within a region."""

    put_usd_per_1000: float = 0.005
    get_usd_per_1000: float = 0.0004
    list_usd_per_1000: float = 0.005
    delete_usd_per_1000: float = 0.0
    read_usd_per_gib: float = 0.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_at_least(name, getattr(self, name), 0)


CLOUD_PRICES: Final = Prices()
FREE: Final = Prices(put_usd_per_1000=0, get_usd_per_1000=0, list_usd_per_1000=0)


@dataclass(slots=True)
class RequestTotals:
    """Sums since the process started. `errors` includes `throttled`; `retries` are attempts after a failed one."""

    calls: int = 0
    errors: int = 0
    throttled: int = 0
    retries: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    took_ms: int = 0
    cost_usd: float = 0.0


class ObjectCounters:
    """Totals for each (operation, cause). May be shared by several engines."""

    def __init__(self, *, prices: Prices = CLOUD_PRICES) -> None:
        self.prices = prices
        self.latencies = Latencies()  # by operation
        self._totals: dict[tuple[str, str], RequestTotals] = {}

    def of(self, operation: str, cause: str | None = None) -> RequestTotals:
        """The totals of an operation and cause; the default is the current cause."""
        return self._totals.setdefault((operation, cause or _cause.get()), RequestTotals())

    def retried(self, operation: str) -> None:
        """Count a retry."""
        self.of(operation).retries += 1

    def each(self) -> Iterator[tuple[str, str, RequestTotals]]:
        """Operation, cause and totals, sorted."""
        for (operation, cause), totals in sorted(self._totals.items()):
            yield operation, cause, totals

    @property
    def cost_usd(self) -> float:
        """The estimated price of everything counted."""
        return sum(totals.cost_usd for totals in self._totals.values())


class CountingObjects:
    """`objects` with every request counted."""

    def __init__(self, objects: Objects, *, counters: ObjectCounters, clock: Clock) -> None:
        self._objects, self._counters, self._clock = objects, counters, clock

    async def put(self, key: str, body: Sequence[Buffer]) -> Stored | AlreadyExists:
        totals = self._counters.of("put")
        totals.bytes_written += sum(memoryview(part).nbytes for part in body)
        return await self._count("put", totals, self._objects.put(key, body), self._counters.prices.put_usd_per_1000)

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> Buffer | Missing:
        return await self._count_read("get", self._objects.get(key, start=start, end=end))

    async def get_tail(self, key: str, size_bytes: int) -> Buffer | Missing:
        return await self._count_read("get_tail", self._objects.get_tail(key, size_bytes))

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        """Counted by pages; the time is the engine's alone, without the consumer's."""
        totals, price = self._counters.of("list"), self._counters.prices.list_usd_per_1000
        listing = self._objects.list(prefix, after=after)
        seen = 0
        while True:
            started_ms = self._clock.boot_ms()
            try:
                info = await anext(listing, None)
            except UnavailableError as error:
                self._failed(totals, error)
                raise
            finally:
                totals.took_ms += self._clock.boot_ms() - started_ms
                if seen % _LIST_PAGE_KEYS == 0:
                    totals.calls += 1
                    totals.cost_usd += price / 1_000
            if info is None:
                return
            seen += 1
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        requests = max(1, -(-len(keys) // _DELETE_PAGE_KEYS))
        price = self._counters.prices.delete_usd_per_1000
        await self._count("delete", self._counters.of("delete"), self._objects.delete(keys), price, requests)

    async def _count_read(self, operation: str, work: Awaitable[Found]) -> Found:
        totals, prices = self._counters.of(operation), self._counters.prices
        found = await self._count(operation, totals, work, prices.get_usd_per_1000)
        if not isinstance(found, Missing):
            totals.bytes_read += len(found)
            totals.cost_usd += prices.read_usd_per_gib * len(found) / (1 << 30)
        return found

    async def _count(
        self, operation: str, totals: RequestTotals, work: Awaitable[T], price: float, requests: int = 1
    ) -> T:
        totals.calls += requests
        totals.cost_usd += price * requests / 1_000
        started_ms, started_ns = self._clock.boot_ms(), stopwatch_ns()
        try:
            return await work
        except UnavailableError as error:
            self._failed(totals, error)
            raise
        finally:
            totals.took_ms += self._clock.boot_ms() - started_ms
            self._counters.latencies[operation].observe((stopwatch_ns() - started_ns) / 1e9)

    def _failed(self, totals: RequestTotals, error: UnavailableError) -> None:
        totals.errors += 1
        totals.throttled += isinstance(error, ThrottledError)
