"""The server side of the simulated store: the real memory engine, recording to the history.

The one rule: the history records what the store did, at the moment it happened. Requests run to their end at the instant they
arrive. Commit ids are kept here, as every networked engine keeps them: `resolve` settles a commit, and one that arrives afterwards
is refused.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from holdfast.contracts.store import (
    Changed,
    Committed,
    Conflict,
    Entry,
    NotCommitted,
    Operation,
    Requirement,
    Scan,
    Session,
)
from holdfast.contracts.validation import StoreLimits, prefix_end
from holdfast.kernel.keys import HOLDERS
from holdfast.sim.history import EFFECTS, History
from holdfast.stores.change_feed import ChangeFeed
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random

T = TypeVar("T")


class SimStore(MemoryStore):
    """The memory engine, recording what it does."""

    def __init__(self, *, clock: Clock, random: Random, history: History, on_commit: Callable[[Changed], None]) -> None:
        super().__init__(clock=clock, random=random, limits=StoreLimits())
        self._feed = _ObservedFeed(on_commit)
        self._history = history

    async def keep_alive(self, session_id: str) -> bool:
        renewed = await super().keep_alive(session_id)
        if renewed:
            self._history.session_renewed(session_id)
        return renewed

    def reap(self) -> None:
        """End overdue sessions now."""
        self._reap()

    def _end_session(self, session_id: str) -> None:
        if session_id in self._sessions:
            self._history.session_ended(session_id)
        super()._end_session(session_id)


class _ObservedFeed(ChangeFeed):
    """A feed that calls back at once: a watcher would run one iteration of the loop later."""

    def __init__(self, on_commit: Callable[[Changed], None]) -> None:
        super().__init__(head=0)
        self._on_commit = on_commit

    def publish(self, commit: Changed) -> None:
        super().publish(commit)
        self._on_commit(commit)


class SimStoreServer:
    """Handles requests as they arrive. Every method takes no simulated time."""

    def __init__(
        self, kind: type[SimStore], *, clock: Clock, random: Random, history: History, resolve_is_final: bool = True
    ) -> None:
        self.store = kind(clock=clock, random=random, history=history, on_commit=self._commit_applied)
        self.log: list[Changed] = []
        # By prefix, and then in order of arrival: a set would wake them by address.
        self._listeners: dict[str, dict[Callable[[], None], None]] = {}
        self.up = True
        self._outcomes: dict[str, Committed | NotCommitted] = {}
        self._resolve_is_final = resolve_is_final
        self._history = history

    def commit(
        self, commit_id: str, require: Sequence[Requirement], apply: Sequence[Operation]
    ) -> Committed | Conflict | None:
        """None: the commit was resolved as never applied before it arrived."""
        if self._resolve_is_final and commit_id in self._outcomes:
            self._history.count("late commits refused")
            self._history.note("store", f"refuses {commit_id}: already settled")
            return None
        outcome = run_immediately(self.store.commit(require=require, apply=apply))
        if isinstance(outcome, Committed):
            self._outcomes[commit_id] = outcome
        else:
            self._outcomes[commit_id] = NotCommitted()
            if any(each.key.startswith(EFFECTS) for each in apply):
                self._history.count("effects refused")
            if outcome.found:
                self._history.read_observed(outcome.found)
        return outcome

    def resolve(self, commit_id: str) -> Committed | NotCommitted:
        """Final, because an unknown commit is marked as never to be applied."""
        return self._outcomes.setdefault(commit_id, NotCommitted())

    def crash(self) -> None:
        """Stop answering. Commits are durable; clocks continue, so sessions may be overdue at the restart."""
        self.up = False
        self._history.count("store crashes")
        self._history.note("store", "crashes")

    def restart(self) -> None:
        """Answer again."""
        if not self.up:
            self.up = True
            self._history.note("store", "is back")

    def get(self, key: str) -> Entry | None:
        entry = run_immediately(self.store.get(key))
        self._history.read_observed({key: entry})
        return entry

    def scan(self, start: str, end: str, limit: int | None, reverse: bool) -> Scan:
        scan = run_immediately(self.store.scan(start, end, limit=limit, reverse=reverse))
        self._history.read_observed({entry.key: entry for entry in scan.entries})
        return scan

    def open_session(self, ttl_ms: int) -> Session:
        return run_immediately(self.store.open_session(ttl_ms))

    def keep_alive(self, session_id: str) -> bool:
        return run_immediately(self.store.keep_alive(session_id))

    def close_session(self, session_id: str) -> None:
        run_immediately(self.store.close_session(session_id))

    def observe_holders(self) -> tuple[str, ...]:
        """Read all holder keys, as an onlooker beside the store; return those that are there."""
        entries = run_immediately(self.store.scan(HOLDERS, prefix_end(HOLDERS))).entries
        self._history.read_observed({entry.key: entry for entry in entries}, whole=HOLDERS)
        return tuple(entry.key for entry in entries)

    def listen(self, prefix: str, listener: Callable[[], None]) -> Callable[[], object]:
        """Call back at every commit that changes keys below `prefix`, until what is returned is called."""
        self._listeners.setdefault(prefix, {})[listener] = None
        return lambda: self._listeners[prefix].pop(listener, None)

    @property
    def watched(self) -> set[str]:
        """The prefixes that somebody listens to."""
        return {prefix for prefix, listeners in self._listeners.items() if listeners}

    def _commit_applied(self, commit: Changed) -> None:
        self.log.append(commit)
        self._history.commit_applied(commit.version, commit.changes)
        for prefix, listeners in self._listeners.items():
            if listeners and any(each.key.startswith(prefix) for each in commit.changes):
                for listener in tuple(listeners):
                    listener()


def run_immediately(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends, as no method of the memory engine does."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise InvalidError("coroutine in a simulated store", repr(coroutine), "one that never suspends")
