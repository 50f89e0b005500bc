"""A mirror: the keys below a prefix, kept in step with the store by its watch.

It never skips: what it shows at any moment is the store as it was at `version`. It may lag; whoever acts on it acts through a
commit that checks.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.contracts.checks import prefix_end
from holdfast.contracts.store import Changed, Entry, Scan, Store
from holdfast.vocabulary.clock import Chance, Clock, backoff_ms
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.tasks import Bell, beside


class Mirror:
    """A local copy of the keys below `prefix`. `bell` rings after every change."""

    def __init__(self, prefix: str, bell: Bell) -> None:
        self.prefix, self.bell = prefix, bell
        self.entries: dict[str, Entry] = {}
        self.version = 0

    def load(self, scan: Scan) -> None:
        """Start over from a scan."""
        self.entries = {entry.key: entry for entry in scan.entries}
        self.version = scan.version
        self.bell.ring()

    def apply(self, commit: Changed) -> None:
        """Take in one commit; one at or below `version` is already in."""
        if commit.version <= self.version:
            return
        for change in commit.changes:
            if change.entry is None:
                self.entries.pop(change.key, None)
            else:
                self.entries[change.key] = change.entry
        self.version = commit.version
        self.bell.ring()


@asynccontextmanager
async def mirroring(
    store: Store, prefix: str, *, clock: Clock, chance: Chance, bell: Bell | None = None
) -> AsyncIterator[Mirror]:
    """A mirror of `prefix` for the body; several may share one `bell`."""
    mirror = Mirror(prefix, bell or Bell())
    mirror.load(await scan_all(store, prefix, clock=clock, chance=chance))
    async with beside(_follow(store, mirror, clock, chance)):
        yield mirror


async def _follow(store: Store, mirror: Mirror, clock: Clock, chance: Chance) -> None:
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
