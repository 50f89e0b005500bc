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
    """The last commits of one store, in order, and the watchers that wait for the next.

    What every watcher has taken goes, but for about `changes_kept`; for those that lag, at least `commits_kept` commits or
    `changes_max` changes are kept: one commit may change fifty keys.
    """

    def __init__(
        self, *, head: int, commits_kept: int = 10_000, changes_kept: int = 1_000, changes_max: int = 100_000
    ) -> None:
        self.head = head
        self.changes = 0  # in memory
        self._low = head  # every commit after this version and up to head is in _recent
        self._recent: list[Changed] = []
        self._commits_kept, self._changes_kept, self._changes_max = commits_kept, changes_kept, changes_max
        self._watches: dict[_FeedWatch, None] = {}  # in order of arrival
        self._ended: Exception | None = None

    def publish(self, commit: Changed) -> None:
        """Add the next commit. Versions at or below head are ignored: the log may be read twice."""
        if commit.version <= self.head:
            return
        self._recent.append(commit)
        self.changes += len(commit.changes)
        self.head = commit.version
        if len(self._recent) > 2 * self._commits_kept:
            self._forget(len(self._recent) - self._commits_kept)
        if self.changes > 2 * self._changes_max:
            self._forget_changes(self.changes - self._changes_max, until=self.head)
        self._notify()

    def forget_taken(self) -> None:
        """Forget what every watcher has taken, if it is much."""
        if self.changes > 2 * self._changes_kept:
            taken = min((watch.taken for watch in self._watches), default=self.head)
            self._forget_changes(self.changes - self._changes_kept, until=taken)

    def _forget_changes(self, count: int, *, until: int) -> None:
        """Forget the oldest commits up to version `until`, with at least so many changes together."""
        gone = 0
        while count > 0 and gone < len(self._recent) and self._recent[gone].version <= until:
            count -= len(self._recent[gone].changes)
            gone += 1
        if gone:
            self._forget(gone)

    def _forget(self, commits: int) -> None:
        self._low = self._recent[commits - 1].version
        self.changes -= sum(len(commit.changes) for commit in self._recent[:commits])
        del self._recent[:commits]

    def _notify(self) -> None:
        for watch in self._watches:
            watch.notify.notify()

    @property
    def watched(self) -> bool:
        """Whether there is a watcher."""
        return bool(self._watches)

    def restart_at(self, version: int) -> None:
        """The log lost commits that this feed had not read: clear it, so that watchers detect the gap in the log."""
        self._recent.clear()
        self.changes = 0
        self._low = self.head = version
        self._notify()

    def end(self, error: Exception) -> None:
        """Every watcher, present and future, ends with `error`."""
        self._ended = self._ended or error
        self._notify()

    @asynccontextmanager
    async def watch(
        self, prefix: str, *, from_version: int, read_log: ReadChangeLog | None = None
    ) -> AsyncIterator[AsyncIterator[Changed | Resync]]:
        """Follow commits below `prefix` after `from_version`; `read_log` reaches further back than memory."""
        watch = _FeedWatch(self, prefix, from_version, read_log)
        self._watches[watch] = None
        try:
            yield watch
        finally:
            self._watches.pop(watch, None)


class _FeedWatch:
    """One watcher's position in the feed.

    Not a generator: a caller's timeout would end it for good, and a watch must resume where it was.
    """

    def __init__(self, feed: ChangeFeed, prefix: str, at: int, read_log: ReadChangeLog | None) -> None:
        self.notify = Notify()
        self._feed, self._prefix, self._at, self._read_log = feed, prefix, at, read_log
        self._batch: deque[Changed] = deque()

    @property
    def taken(self) -> int:
        """The version up to which it needs nothing more from memory."""
        return self._batch[-1].version if self._batch else self._at

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
                    feed.forget_taken()
                    await self.notify.wait()


def _below(prefix: str, commit: Changed) -> Changed | None:
    changes = tuple(change for change in commit.changes if change.key.startswith(prefix))
    if not changes:
        return None
    return commit if len(changes) == len(commit.changes) else Changed(commit.version, changes)
