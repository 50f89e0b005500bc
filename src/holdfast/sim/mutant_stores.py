"""Mutant stores: engines that are wrong about whether a session lives. See `mutants`."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from holdfast.contracts.store import Changed, Committed, Conflict, Entry, Operation, Requirement, Scan
from holdfast.sim.history import History
from holdfast.sim.store_server import SimStore
from holdfast.stores.memory import _MemorySession
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random


class ForgivingStore(SimStore):
    """A keep-alive that comes after the session's end brings it back."""

    def __init__(self, *, clock: Clock, random: Random, history: History, on_commit: Callable[[Changed], None]) -> None:
        super().__init__(clock=clock, random=random, history=history, on_commit=on_commit)
        self._expired: dict[str, _MemorySession] = {}

    async def keep_alive(self, session_id: str) -> bool:
        self._reap()
        session = self._expired.pop(session_id, None)
        if session is not None:
            session.deadline_ms = self._clock.boot_ms() + session.ttl_ms
            self._sessions[session_id] = session
            self._queue(session_id)
        return await super().keep_alive(session_id)

    async def close_session(self, session_id: str) -> None:
        await super().close_session(session_id)
        self._expired.pop(session_id, None)

    def _end_session(self, session_id: str) -> None:
        session = self._sessions.get(session_id)
        super()._end_session(session_id)
        if session is not None:
            session.keys.clear()
            self._expired[session_id] = session


class PredicateStore(SimStore):
    """No commit ends a session: each call checks the wall clock for those that live, and hides the keys of the others."""

    def __init__(self, *, clock: Clock, random: Random, history: History, on_commit: Callable[[Changed], None]) -> None:
        super().__init__(clock=_WallForBoot(clock), random=random, history=history, on_commit=on_commit)

    async def get(self, key: str) -> Entry | None:
        with self._as_the_clock_shows():
            return await super().get(key)

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        with self._as_the_clock_shows():
            return await super().scan(start, end, limit=limit, reverse=reverse)

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        with self._as_the_clock_shows():
            return await super().commit(require=require, apply=apply)

    async def keep_alive(self, session_id: str) -> bool:
        with self._as_the_clock_shows():
            return await super().keep_alive(session_id)

    async def reap_when_due(self) -> None:
        """Nobody reaps."""

    def _reap(self) -> None:
        pass

    @contextmanager
    def _as_the_clock_shows(self) -> Iterator[None]:
        now_ms = self._clock.boot_ms()
        overdue = {each: session for each, session in self._sessions.items() if session.deadline_ms <= now_ms}
        hidden: list[Entry] = []
        for session_id, session in overdue.items():
            del self._sessions[session_id]
            for key in session.keys:
                hidden.append(self._entries.pop(key))
                del self._keys[bisect_left(self._keys, key)]
        try:
            yield
        finally:
            self._sessions.update(overdue)
            for entry in hidden:
                if entry.key in self._entries:  # the key was put again meanwhile
                    overdue[entry.session or ""].keys.discard(entry.key)
                else:
                    self._entries[entry.key] = entry
                    insort(self._keys, entry.key)


class _WallForBoot:
    """A clock whose boot time is the wall clock: the mistake itself."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def boot_ms(self) -> int:
        return self._clock.now_ms()

    async def sleep_ms(self, duration_ms: float) -> None:
        await self._clock.sleep_ms(duration_ms)
