"""Change feed: recent commits in memory, and the watchers that follow them.

Engines with a change log (memory, SQLite, PostgreSQL, Redis) publish each commit here once, in version order; a watcher that
is further behind than the feed's memory reads the log until it has caught up. Notifications (NOTIFY, pub/sub, sockets) only
trigger a read: what a watcher yields always comes from the log.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Self

from holdfast.contracts.store import Changed, Resync
from holdfast.vocabulary.tasks import Notify

_by_version: Final = attrgetter("version")


@dataclass(frozen=True, slots=True)
class ChangeLogPage:
    """Commits after a version, oldest first; `gone_until`: the log no longer holds commits up to there (0: all kept)."""

    commits: tuple[Changed, ...]
    gone_until: int = 0


ReadChangeLog = Callable[[int], Awaitable[ChangeLogPage]]  # after which version


class ChangeFeed:
    """The last commits of one store, in order, and the watchers that wait for the next."""

    def __init__(self, *, head: int, commits_kept: int = 10_000) -> None:
        self.head = head
        self._low = head  # every commit after this version and up to head is in _recent
        self._recent: list[Changed] = []
        self._kept = commits_kept
        self._waiting: dict[Notify, None] = {}  # in order of arrival
        self._ended: Exception | None = None

    def publish(self, commit: Changed) -> None:
        """Add the next commit. Versions at or below head are ignored: the log may be read twice."""
        if commit.version <= self.head:
            return
        self._recent.append(commit)
        self.head = commit.version
        if len(self._recent) > 2 * self._kept:
            self._low = self._recent[-self._kept - 1].version
            del self._recent[: -self._kept]
        for notify in self._waiting:
            notify.notify()

    @property
    def watched(self) -> bool:
        """Whether there is a watcher."""
        return bool(self._waiting)

    def restart_at(self, version: int) -> None:
        """The log lost commits that this feed had not read: clear it, so that watchers detect the gap in the log."""
        self._recent.clear()
        self._low = self.head = version
        for notify in self._waiting:
            notify.notify()

    def end(self, error: Exception) -> None:
        """Every watcher, present and future, ends with `error`."""
        self._ended = self._ended or error
        for notify in self._waiting:
            notify.notify()

    @asynccontextmanager
    async def watch(
        self, prefix: str, *, from_version: int, read_log: ReadChangeLog | None = None
    ) -> AsyncIterator[AsyncIterator[Changed | Resync]]:
        """Follow commits below `prefix` after `from_version`; `read_log` reaches further back than memory."""
        watch = _FeedWatch(self, prefix, from_version, read_log)
        self._waiting[watch.notify] = None
        try:
            yield watch
        finally:
            self._waiting.pop(watch.notify, None)


class _FeedWatch:
    """One watcher's position in the feed.

    Not a generator: a caller's timeout would end it for good, and a watch must resume where it was.
    """

    def __init__(self, feed: ChangeFeed, prefix: str, at: int, read_log: ReadChangeLog | None) -> None:
        self.notify = Notify()
        self._feed, self._prefix, self._at, self._read_log = feed, prefix, at, read_log
        self._batch: deque[Changed] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Changed | Resync:
        feed = self._feed
        while True:
            if feed._ended is not None:
                raise feed._ended
            while self._batch:
                commit = self._batch.popleft()
                self._at = commit.version
                seen = _below(self._prefix, commit)
                if seen is not None:
                    return seen
            low = feed._low  # read before the log: memory may advance meanwhile
            if self._at < low:
                page = ChangeLogPage((), low) if self._read_log is None else await self._read_log(self._at)
                if self._at < page.gone_until:
                    self._at = max(page.gone_until, low)
                    return Resync(self._at)
                self._batch.extend(page.commits)
                if not self._batch:
                    self._at = low  # nothing in the log up to where memory begins
            else:
                self._batch.extend(feed._recent[bisect_right(feed._recent, self._at, key=_by_version) :])
                if not self._batch:
                    await self.notify.wait()


def _below(prefix: str, commit: Changed) -> Changed | None:
    changes = tuple(change for change in commit.changes if change.key.startswith(prefix))
    if not changes:
        return None
    return commit if len(changes) == len(commit.changes) else Changed(commit.version, changes)
