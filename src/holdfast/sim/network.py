"""The network between a process and the store: delays, losses, cuts.

The one rule: a message's fate is drawn when it is sent, and is its own. Requests continue when their sender dies; answers wait
while their reader is paused. A commit without an answer raises `OutcomeUnknownError`, anything else `UnavailableError`,
after the client's timeout; the request may still arrive later than that.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, Final

from holdfast.contracts.store import (
    Changed,
    Committed,
    Conflict,
    Entry,
    NotCommitted,
    Operation,
    Requirement,
    Resync,
    Scan,
    Session,
    StoreFacts,
)
from holdfast.sim.history import History
from holdfast.sim.loop import SimLoop
from holdfast.sim.process import SimProcess
from holdfast.sim.store_server import SimStoreServer
from holdfast.stores.change_feed import ChangeFeed
from holdfast.vocabulary.errors import HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import SeededRandom

_by_version: Final = attrgetter("version")


@dataclass(slots=True, kw_only=True)
class NetworkConditions:
    """How often messages are slow or lost. Shares are of all messages."""

    delay_ms: float  # one way, at most, normally
    slow_ms: float  # one way, at most, for a slow message
    timeout_ms: float
    slow_share: float = 0.0
    lost_share: float = 0.0  # of requests, and again of answers
    resync_share: float = 0.0  # of watch deliveries, replaced by a `Resync`
    ambush_share: float = 0.0  # of effects whose sender fails as it sends, the request still in flight

    def clear(self) -> None:
        """End all faults: nothing is lost or slow."""
        self.slow_share = self.lost_share = self.resync_share = self.ambush_share = 0.0


@dataclass(slots=True)
class NetworkLink:
    """One host's connection. While down it refuses at once, or swallows everything; while deaf it sends, and gets no answers."""

    up: bool = True
    refuses: bool = True
    deaf: bool = False  # between agents


@dataclass(slots=True)  # not frozen: that would triple its cost
class _Request:
    what: str
    run: Callable[[], Any]
    answer: asyncio.Future[Any]
    timeout_at_ms: float
    back_ms: float
    commit_id: str


class SimStoreClient:
    """The store as one process reaches it: the `Store` contract, with everything that can happen on the way."""

    def __init__(
        self,
        server: SimStoreServer,
        *,
        loop: SimLoop,
        process: SimProcess,
        link: NetworkLink,
        conditions: NetworkConditions,
        random: SeededRandom,
        history: History,
    ) -> None:
        self._server, self._loop, self._process, self._link = server, loop, process, link
        self._conditions, self._draw, self._history = conditions, random.random.random, history
        self._sent = 0
        self._delay_next_ms = 0.0
        self._delayed_commit: tuple[str, float, Callable[[], object]] | None = None

    def delay_commit(self, prefix: str, duration_ms: float, on_sent: Callable[[], object]) -> None:
        """Delay the next commit that writes below `prefix` for this long, and call back right after it was sent."""
        self._delayed_commit = (prefix, duration_ms, on_sent)

    def delay_next(self, duration_ms: float) -> None:
        """Delay the next request in the network for this long."""
        self._delay_next_ms = duration_ms

    @property
    def facts(self) -> StoreFacts:
        return self._server.store.facts

    async def get(self, key: str) -> Entry | None:
        entry: Entry | None = await self._ask("get", partial(self._server.get, key))
        return entry

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        seen: Scan = await self._ask("scan", partial(self._server.scan, start, end, limit, reverse))
        return seen

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        self._sent += 1
        commit_id = f"{self._process.name}#{self._sent}"
        what = _describe(commit_id, apply) if self._history.tracing else "commit"
        delayed = self._delayed_commit
        if delayed is not None and any(each.key.startswith(delayed[0]) for each in apply):
            self._delayed_commit = None
            self._delay_next_ms = delayed[1]
            self._loop.post_at(self._loop.now_ms, delayed[2])
        outcome: Committed | Conflict = await self._ask(
            what, partial(self._server.commit, commit_id, require, apply), commit_id
        )
        return outcome

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        outcome: Committed | NotCommitted = await self._ask("resolve", partial(self._server.resolve, commit_id))
        return outcome

    async def open_session(self, ttl_ms: int) -> Session:
        session: Session = await self._ask("open session", partial(self._server.open_session, ttl_ms))
        return session

    async def keep_alive(self, session_id: str) -> bool:
        alive: bool = await self._ask("keep alive", partial(self._server.keep_alive, session_id))
        return alive

    async def close_session(self, session_id: str) -> None:
        await self._ask("close session", partial(self._server.close_session, session_id))

    @asynccontextmanager
    async def watch(self, prefix: str, *, from_version: int) -> AsyncIterator[AsyncIterator[Changed | Resync]]:
        # A feed of its own: watchers of one feed are woken in the order of a set, which differs from run to run.
        feed = ChangeFeed(head=from_version)
        at = bisect_right(self._server.log, from_version, key=_by_version)
        coming = False

        def notify() -> None:
            nonlocal coming
            if not coming:
                coming = True
                self._loop.post_at(self._loop.now_ms + self._delay_ms(), self._process.deliver, arrive)

        def arrive() -> None:
            nonlocal coming, at
            coming = False
            if not (self._link.up and self._server.up):
                coming = True
                self._loop.post_at(self._loop.now_ms + self._conditions.timeout_ms, self._process.deliver, arrive)
                return
            log = self._server.log
            if at < len(log) and self._draw() < self._conditions.resync_share:
                self._history.count("watches resynced")
                feed.restart_at(log[-1].version)
                at = len(log)
            for commit in log[at:]:
                if any(each.key.startswith(prefix) for each in commit.changes):
                    feed.publish(commit)
            at = len(log)

        stop_listening = self._server.listen(prefix, notify)  # the server filters: nobody is woken for other keys
        notify()
        try:
            async with feed.watch(prefix, from_version=from_version) as commits:
                yield commits
        finally:
            stop_listening()

    def _delay_ms(self) -> float:
        conditions = self._conditions
        drawn = self._draw()  # one draw for both questions: slow at all, and how slow
        if drawn < conditions.slow_share:
            self._history.count("slow messages")
            return conditions.slow_ms * drawn / conditions.slow_share
        return conditions.delay_ms * drawn

    def _ask(self, what: str, run: Callable[[], Any], commit_id: str = "") -> "asyncio.Future[Any]":
        answer = self._process.wait()
        loop, conditions = self._loop, self._conditions
        now_ms = loop.now_ms
        there_ms, back_ms = self._delay_next_ms or self._delay_ms(), self._delay_ms()
        self._delay_next_ms = 0.0
        call = _Request(what, run, answer, now_ms + conditions.timeout_ms, back_ms, commit_id)
        if not (self._link.up and self._server.up):
            self._history.count("calls while cut off")
            if self._link.refuses:
                refused = UnavailableError("store", "the connection was refused")
                loop.post_at(now_ms + there_ms, self._process.settle, answer, None, refused)
            else:
                self._time_out(call, "swallowed: the link is down")
            return answer
        fate = self._draw()
        if fate < conditions.lost_share:
            self._history.count("requests lost")
            self._time_out(call, "request lost")
        elif fate < 2 * conditions.lost_share:
            self._history.count("answers lost")
            self._time_out(call, "answer lost")
            loop.post_at(now_ms + there_ms, self._arrive_unanswered, call)
        elif there_ms + back_ms > conditions.timeout_ms:
            self._history.count("answers too late")
            self._time_out(call, f"slow: arrives after {there_ms:.0f} ms")
            loop.post_at(now_ms + there_ms, self._arrive_unanswered, call)
        else:
            loop.post_at(now_ms + there_ms, self._arrive, call)
        return answer

    def _arrive(self, call: _Request) -> None:
        if not (self._link.up and self._server.up):  # it went down meanwhile: the request arrived, or it did not
            self._time_out(call, "the link went down meanwhile")
            if self._draw() < 0.5:
                self._arrive_unanswered(call)
            return
        outcome, error = None, None
        try:
            outcome = call.run()
        except HoldfastError as raised:
            error = raised
        loop = self._loop
        loop.post_at(loop.now_ms + call.back_ms, self._process.settle, call.answer, outcome, error)

    def _arrive_unanswered(self, call: _Request) -> None:
        if not self._server.up:
            self._history.note("store", f"is down and misses {call.what} of {self._process.name}")
            return
        try:
            call.run()
        except HoldfastError as raised:
            self._history.note("store", f"refuses {call.what} of {self._process.name}: {raised}")

    def _time_out(self, call: _Request, why: str) -> None:
        self._history.note(self._process.name, f"{call.what}: {why}")
        error = (
            OutcomeUnknownError(call.commit_id, why)
            if call.commit_id
            else UnavailableError("store", "no answer in time")
        )
        self._loop.post_at(call.timeout_at_ms, self._process.settle, call.answer, None, error)


def _describe(commit_id: str, apply: Sequence[Operation]) -> str:
    return f"commit {commit_id} of " + ", ".join(f"{type(each).__name__} {each.key}" for each in apply)
