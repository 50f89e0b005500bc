"""A mirror: the keys below a prefix, kept in step with the store by its watch.

It never skips: what it shows at any moment is the store as it was at `version`. It may lag; whoever acts on it acts through a
commit that checks.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from holdfast.contracts.checks import prefix_end
from holdfast.contracts.store import Changed, Entry, Scan, Store
from holdfast.vocabulary.clock import Chance, Clock, backoff_ms
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.tasks import Bell, beside

T = TypeVar("T")


class Mirror(Generic[T]):
    """A local copy of the keys below `prefix`, each read once when it changes. `bell` rings after every change."""

    def __init__(self, prefix: str, read: Callable[[Entry], T], bell: Bell) -> None:
        self.prefix, self.bell = prefix, bell
        self._read = read
        self.items: dict[str, T] = {}
        self.version = 0

    def load(self, scan: Scan) -> None:
        """Start over from a scan."""
        self.items = {entry.key: self._read(entry) for entry in scan.entries}
        self.version = scan.version
        self.bell.ring()

    def apply(self, commit: Changed) -> None:
        """Take in one commit; one at or below `version` is already in."""
        if commit.version <= self.version:
            return
        for change in commit.changes:
            if change.entry is None:
                self.items.pop(change.key, None)
            else:
                self.items[change.key] = self._read(change.entry)
        self.version = commit.version
        self.bell.ring()


@asynccontextmanager
async def mirroring(
    store: Store, prefix: str, read: Callable[[Entry], T], *, clock: Clock, chance: Chance, bell: Bell | None = None
) -> AsyncIterator[Mirror[T]]:
    """A mirror of `prefix` for the body, its entries understood by `read`; several may share one `bell`."""
    mirror = Mirror(prefix, read, bell or Bell())
    mirror.load(await scan_all(store, prefix, clock=clock, chance=chance))
    async with beside(_follow(store, mirror, clock, chance)):
        yield mirror


async def _follow(store: Store, mirror: Mirror[T], clock: Clock, chance: Chance) -> None:
    async with store.watch(mirror.prefix, from_version=mirror.version) as commits:
        async for commit in commits:
            if isinstance(commit, Changed):
                mirror.apply(commit)
            else:
                mirror.load(await scan_all(store, mirror.prefix, clock=clock, chance=chance))


async def scan_all(store: Store, prefix: str, *, clock: Clock, chance: Chance, attempts: int = 5) -> Scan:
    """Everything below `prefix`, patient with a store that is away for a moment."""
    for attempt in range(attempts):
        try:
            return await store.scan(prefix, prefix_end(prefix))
        except UnavailableError:
            if attempt == attempts - 1:
                raise
            await clock.sleep_ms(backoff_ms(attempt, base_ms=100, max_ms=2_000, chance=chance))
    raise AssertionError("unreachable: the last attempt returns or raises")
