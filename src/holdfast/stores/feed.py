"""Feed: recent commits in memory, and watchers that follow them.

Engines with a change log (memory, SQLite, PostgreSQL, Redis) publish each commit here once, in version order; a watcher that
is further behind than the feed remembers reads the log itself until it has caught up. Doorbells (NOTIFY, pub/sub, sockets)
only say "look": what a watcher yields always comes from the log.
"""

from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from holdfast.contracts.store import Changed, Resync
from holdfast.vocabulary.tasks import Bell

_by_version: Final = attrgetter("version")


@dataclass(frozen=True, slots=True)
class LogPage:
    """Commits after a version, oldest first; `gone_until`: the log no longer holds commits up to there (0: all kept)."""

    commits: tuple[Changed, ...]
    gone_until: int = 0


ReadLog = Callable[[int], Awaitable[LogPage]]  # after which version


class Feed:
    """The last commits of one store, in order, with whoever waits for the next."""

    def __init__(self, *, head: int, commits_kept: int = 10_000) -> None:
        self.head = head
        self._low = head  # every commit after this version and up to head is in _recent
        self._recent: list[Changed] = []
        self._kept = commits_kept
        self._bells: set[Bell] = set()
        self._ended: Exception | None = None

    def publish(self, commit: Changed) -> None:
        """Add the next commit. Versions at or below head are ignored: the log was read twice."""
        if commit.version <= self.head:
            return
        self._recent.append(commit)
        self.head = commit.version
        if len(self._recent) > 2 * self._kept:
            self._low = self._recent[-self._kept - 1].version
            del self._recent[: -self._kept]
        for bell in self._bells:
            bell.ring()

    def restart_at(self, version: int) -> None:
        """The log lost commits this feed had not read: forget all, so that watchers find out from the log."""
        self._recent.clear()
        self._low = self.head = version
        for bell in self._bells:
            bell.ring()

    def end(self, error: Exception) -> None:
        """Every watcher, present and future, ends with `error`."""
        self._ended = self._ended or error
        for bell in self._bells:
            bell.ring()

    @asynccontextmanager
    async def watch(
        self, prefix: str, *, from_version: int, read_log: ReadLog | None = None
    ) -> AsyncIterator[AsyncIterator[Changed | Resync]]:
        """Follow commits below `prefix` after `from_version`; `read_log` reaches further back than memory."""
        bell = Bell()
        self._bells.add(bell)
        commits = self._follow(prefix, from_version, bell, read_log)
        try:
            yield commits
        finally:
            self._bells.discard(bell)
            await commits.aclose()

    async def _follow(
        self, prefix: str, at: int, bell: Bell, read_log: ReadLog | None
    ) -> AsyncGenerator[Changed | Resync, None]:
        while True:
            if self._ended is not None:
                raise self._ended
            if at < self._low:
                page = LogPage((), self._low) if read_log is None else await read_log(at)
                if at < page.gone_until:
                    at = max(page.gone_until, self._low)
                    yield Resync(at)
                    continue
                batch = list(page.commits)
                if not batch:
                    at = self._low  # nothing below the prefix-blind log up to where memory begins
                    continue
            else:
                batch = self._recent[bisect_right(self._recent, at, key=_by_version) :]
            for commit in batch:
                at = commit.version
                seen = _below(prefix, commit)
                if seen is not None:
                    yield seen
            if not batch:
                await bell.wait()


def _below(prefix: str, commit: Changed) -> Changed | None:
    changes = tuple(change for change in commit.changes if change.key.startswith(prefix))
    if not changes:
        return None
    return commit if len(changes) == len(commit.changes) else Changed(commit.version, changes)
