"""A mirror: the keys below a prefix, kept in step with the store by its watch.

It never skips: what it shows at any moment is the store as it was at `version`. It may lag; whoever acts on it acts through a
commit that checks.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

from holdfast.contracts.store import Changed, Entry, Scan, Store
from holdfast.contracts.validation import prefix_end
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import Notify, background_tasks

T = TypeVar("T")


class Mirror(Generic[T]):
    """A local copy of the keys below `prefix`, each read once when it changes. `bell` rings after every change."""

    def __init__(self, prefix: str, read: Callable[[Entry], T], notify: Notify) -> None:
        self.prefix, self.notify = prefix, notify
        self._read = read
        self.items: dict[str, T] = {}
        self.version = 0

    def load(self, scan: Scan) -> None:
        """Start over from a scan."""
        self.items = {entry.key: self._read(entry) for entry in scan.entries}
        self.version = scan.version
        self.notify.notify()

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
        self.notify.notify()


@asynccontextmanager
async def open_mirror(
    store: Store, prefix: str, read: Callable[[Entry], T], *, clock: Clock, random: Random, notify: Notify | None = None
) -> AsyncIterator[Mirror[T]]:
    """A mirror of `prefix` for the body, its entries understood by `read`; several may share one `bell`."""
    mirror = Mirror(prefix, read, notify or Notify())
    mirror.load(await scan_all(store, prefix, clock=clock, random=random))
    async with background_tasks(_apply_changes(store, mirror, clock, random)):
        yield mirror


async def _apply_changes(store: Store, mirror: Mirror[T], clock: Clock, random: Random) -> None:
    async with store.watch(mirror.prefix, from_version=mirror.version) as commits:
        async for commit in commits:
            if isinstance(commit, Changed):
                mirror.apply(commit)
            else:
                mirror.load(await scan_all(store, mirror.prefix, clock=clock, random=random))


async def scan_all(store: Store, prefix: str, *, clock: Clock, random: Random, attempts: int = 5) -> Scan:
    """Everything below `prefix`, patient with a store that is away for a moment."""
    for attempt in range(attempts):
        try:
            return await store.scan(prefix, prefix_end(prefix))
        except UnavailableError:
            if attempt == attempts - 1:
                raise
            await clock.sleep_ms(backoff_ms(attempt, base_ms=100, max_ms=2_000, random=random))
    raise AssertionError("unreachable: the last attempt returns or raises")
