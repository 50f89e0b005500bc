"""Mirrors: the keys below a prefix, kept in step with the store by its watch.

The one rule: nothing is skipped. What a mirror shows at any moment is the store as it was at `version`. It may lag, for as long as
the store is away: act on it through a commit that checks. Once open it never gives up. `scan_and_watch` is what every mirror stands
on, those with a shape of their own included.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from contextlib import aclosing, asynccontextmanager
from typing import Final, Generic, TypeVar

from holdfast.contracts.store import Changed, Entry, Resync, Scan, Store
from holdfast.contracts.validation import prefix_end
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import Notify, background_tasks

T = TypeVar("T")

OPENING_ATTEMPTS: Final = 5


class Mirror(Generic[T]):
    """A local copy of the keys below `prefix`, each decoded once when it changes. `notify` is called after every change.

    `on_changed` is called with the keys that changed, before that: who looks at those alone need not look at everything.
    """

    def __init__(self, prefix: str, read: Callable[[Entry], T], notify: Notify) -> None:
        self.prefix, self.notify = prefix, notify
        self._read = read
        self.items: dict[str, T] = {}
        self.version = 0
        self.on_changed: Callable[[Collection[str]], None] = lambda _: None

    def load(self, scan: Scan) -> None:
        """Start over from a scan, unless it is older than what is shown."""
        if scan.version < self.version:
            return
        before, self.items = self.items, {entry.key: self._read(entry) for entry in scan.entries}
        self.version = scan.version
        self.on_changed([key for key in {**before, **self.items} if before.get(key) != self.items.get(key)])
        self.notify.notify()

    def apply(self, commit: Changed) -> None:
        """Apply one commit; one at or below `version` has been applied already."""
        if commit.version <= self.version:
            return
        for change in commit.changes:
            if change.entry is None:
                self.items.pop(change.key, None)
            else:
                self.items[change.key] = self._read(change.entry)
        self.version = commit.version
        self.on_changed([change.key for change in commit.changes])
        self.notify.notify()


@asynccontextmanager
async def open_mirror(
    store: Store,
    prefix: str,
    read: Callable[[Entry], T],
    *,
    clock: Clock,
    random: Random,
    notify: Notify | None = None,
    opening_attempts: int | None = None,
) -> AsyncIterator[Mirror[T]]:
    """A mirror of `prefix` for the body, its entries decoded by `read`; several may share one `notify`.

    With `opening_attempts`, `UnavailableError` if the store does not answer the first scan that often; without, it is waited for.
    """
    mirror = Mirror(prefix, read, notify or Notify())
    events = scan_and_watch(store, prefix, clock=clock, random=random, opening_attempts=opening_attempts)
    async with aclosing(events):
        _take(mirror, await anext(events))
        async with background_tasks(_take_all(mirror, events)):
            yield mirror


async def _take_all(mirror: Mirror[T], events: AsyncGenerator[Scan | Changed, None]) -> None:
    async for event in events:
        _take(mirror, event)


def _take(mirror: Mirror[T], event: Scan | Changed) -> None:
    if isinstance(event, Scan):
        mirror.load(event)
    else:
        mirror.apply(event)


async def scan_and_watch(
    store: Store, prefix: str, *, clock: Clock, random: Random, opening_attempts: int | None = None
) -> AsyncGenerator[Scan | Changed, None]:
    """All keys below `prefix`, then each commit that changes one; another scan where the store has dropped its history.

    Close it (`contextlib.aclosing`). A store that does not answer a scan is asked again until it does, the first time at most
    `opening_attempts` times.
    """
    attempt = 0
    scan = await scan_all(store, prefix, clock=clock, random=random, attempts=opening_attempts)
    while True:
        yield scan
        try:
            async with store.watch(prefix, from_version=scan.version) as commits:
                async for commit in commits:
                    attempt = 0
                    if isinstance(commit, Resync):
                        scan = await scan_all(store, prefix, clock=clock, random=random, attempts=None)
                        yield scan
                    elif commit.version > scan.version:
                        yield commit
        except UnavailableError:
            await clock.sleep_ms(_pause_ms(attempt, random))
            attempt += 1
        scan = await scan_all(store, prefix, clock=clock, random=random, attempts=None)


async def scan_all(
    store: Store, prefix: str, *, clock: Clock, random: Random, attempts: int | None = OPENING_ATTEMPTS
) -> Scan:
    """Everything below `prefix`. A store that does not answer is asked again with back-off; None: until it answers."""
    attempt = 0
    while True:
        try:
            return await store.scan(prefix, prefix_end(prefix))
        except UnavailableError:
            attempt += 1
            if attempt == attempts:
                raise
        await clock.sleep_ms(_pause_ms(attempt - 1, random))


def _pause_ms(attempt: int, random: Random) -> float:
    return backoff_ms(attempt, base_ms=100, max_ms=1_000, random=random)
