"""Ending dead agents' sessions early, driven: what observers report in the store, the planner's decision, and its commit.

The one rule: the decision is a commit that requires the planner's lease, the suspected session's registration, and every report it
rests on: reports go with their observers' sessions, and when an observer reaches the agent again. Only then is the session closed;
if the planner dies in between, it ends by its TTL. A store that does not answer at once ends nothing.

    suspect/{agent}/{observer}   {"session", "reset_ago_ms", "refused_ago_ms"}   under the observer's session
    early-end/{agent}            {"session", "process", "ended_at_ms", "wrong", …}   the last early end of an agent

Reports carry ages, not times: hosts' clocks differ. They count from when the planner receives them.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import msgspec

from holdfast.contracts.store import AtVersion, Committed, Entry, Operation, Put, Store
from holdfast.kernel.early_takeover import (
    EarlyEnd,
    EarlyTakeoverSettings,
    Situation,
    Suspicion,
    after_wrong,
    choose,
    next_end,
    obstacle_to,
    suspects,
    was_wrong,
)
from holdfast.kernel.keys import (
    EARLY_ENDS,
    SUSPICIONS,
    early_end_key,
    last_seen_key,
    member_key,
    members_prefix,
    suspicion_key,
)
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.kernel.membership import read_member
from holdfast.kernel.mirror import Mirror, open_mirror
from holdfast.kernel.session import HeldSession
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify
from holdfast.vocabulary.types import Member

_log: Final = logging.getLogger(__name__)

_TICK_MS: Final = 1_000
T = TypeVar("T")


class SuspicionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The value of `suspect/…`."""

    session: str
    reset_ago_ms: int
    refused_ago_ms: int


class EarlyEndRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The value of `early-end/…`. Times are wall time: other planners read them."""

    session: str
    process: str
    ended_at_ms: int
    wrong: int = 0
    paused_until_ms: int = 0
    judged: bool = False


class EarlyEndCounters(Protocol):
    """What is counted."""

    sessions_ended_early: int
    sessions_ended_wrongly: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyTakeover:
    """What a planner needs to end sessions early. `may_move`: whether something of this agent could be served by another."""

    settings: EarlyTakeoverSettings
    may_move: Callable[[str], bool]
    counters: EarlyEndCounters


@dataclass(frozen=True, slots=True)
class _Report:
    """A report as it was received."""

    suspicion: Suspicion
    version: int


class EarlyEnder:
    """The early ends of one planner's term."""

    def __init__(
        self, early: EarlyTakeover, lease: Lease, store: Store, *, session: HeldSession, clock: Clock, random: Random
    ) -> None:
        self._early, self._lease, self._store, self._session = early, lease, store, session
        self._clock, self._random = clock, random
        self._since_ms = clock.boot_ms()
        self._obstacles: Mapping[str, str] = {}  # what was logged
        self._reports: Mirror[_Report]
        self._ends: Mirror[EarlyEnd]
        self._members: Mirror[Member]
        self._seen: Mirror[int]

    async def run(self) -> None:
        """Look whenever something is reported, until cancelled."""
        notify = Notify()
        async with AsyncExitStack() as stack:

            async def mirror(prefix: str, read: Callable[[Entry], T], wake: Notify) -> Mirror[T]:
                opened = open_mirror(self._store, prefix, read, clock=self._clock, random=self._random, notify=wake)
                return await stack.enter_async_context(opened)

            self._ends = await mirror(EARLY_ENDS, self._read_end, Notify())
            self._members = await mirror(members_prefix("agent"), read_member, Notify())
            self._seen = await mirror(last_seen_key("agent", ""), self._read_seen, Notify())
            self._reports = await mirror(SUSPICIONS, self._read_report, notify)
            while True:
                await self._judge_returned()
                await self._end_one()
                await notify.wait_ms(self._clock, _TICK_MS)

    async def _end_one(self) -> None:
        situation, now_ms, settings = self._situation(), self._clock.boot_ms(), self._early.settings
        decision = choose(situation, now_ms, settings, self._early.may_move)
        if decision is None:
            obstacles = {
                agent: obstacle_to(agent, situation, now_ms, settings) or "nothing of it could move"
                for agent in suspects(situation, now_ms, settings)
            }
            self._log_obstacles(obstacles)
            return
        keys = [suspicion_key(decision.agent, observer) for observer in decision.observers]
        reports = [AtVersion(key, self._reports.items[key].version) for key in keys]
        entry = await self._member_entry(decision.agent)
        if entry is None or (member := read_member(entry)).session != decision.session:
            return
        before = self._ends.items.get(early_end_key(decision.agent))
        end = next_end(decision, member.process, before, self._clock.boot_ms())
        try:
            outcome = await self._store.commit(
                require=(self._lease.fence(), AtVersion(entry.key, entry.version), *reports),
                apply=(self._put(decision.agent, end),),
            )
            if isinstance(outcome, Committed):
                await self._store.close_session(decision.session)
        except (UnavailableError, OutcomeUnknownError) as error:
            self._log_obstacles({decision.agent: str(error)})
            return
        if isinstance(outcome, Committed):
            self._ends.items[early_end_key(decision.agent)] = end  # until the mirror has it
            self._early.counters.sessions_ended_early += 1
            _log.warning(
                "ended session %s of agent %s before its TTL: %s saw its connections reset and its port refuse",
                decision.session,
                decision.agent,
                ", ".join(decision.observers),
            )

    def _log_obstacles(self, obstacles: Mapping[str, str]) -> None:
        for agent, obstacle in obstacles.items():
            if self._obstacles.get(agent) != obstacle:
                _log.info("agent %s looks dead, its session is not ended early: %s", agent, obstacle)
        self._obstacles = obstacles

    async def _member_entry(self, agent: str) -> Entry | None:
        try:
            return await self._store.get(member_key("agent", agent))
        except UnavailableError:
            return None

    async def _judge_returned(self) -> None:
        """Agents that are back without a restart were ended wrongly."""
        for key, end in list(self._ends.items.items()):
            agent = key.removeprefix(EARLY_ENDS)
            member = self._members.items.get(member_key("agent", agent))
            if member is None or not was_wrong(end, member.session, member.process):
                continue
            judged = after_wrong(end, self._clock.boot_ms(), self._early.settings)
            await commit_fenced(
                self._store, self._lease, clock=self._clock, random=self._random, apply=(self._put(agent, judged),)
            )
            self._ends.items[key] = judged  # until the mirror has it
            self._early.counters.sessions_ended_wrongly += 1
            _log.warning(
                "agent %s was alive when its session was ended early, %d times now: left alone for %d s",
                agent,
                judged.wrong,
                (judged.paused_until_ms - self._clock.boot_ms()) // 1000,
            )

    def _situation(self) -> Situation:
        prefix = members_prefix("agent")
        seen_prefix = last_seen_key("agent", "")
        return Situation(
            planner=self._lease.holder,
            sessions={key.removeprefix(prefix): member.session for key, member in self._members.items.items()},
            suspicions=[report.suspicion for report in self._reports.items.values()],
            seen_at_ms={key.removeprefix(seen_prefix): at_ms for key, at_ms in self._seen.items.items()},
            ends={key.removeprefix(EARLY_ENDS): end for key, end in self._ends.items.items()},
            planner_since_ms=self._since_ms,
            ttl_ms=self._session.ttl_ms,
            store_available=self._session.recently_renewed(),
        )

    def _read_report(self, entry: Entry) -> _Report:
        record = msgspec.json.decode(entry.value, type=SuspicionRecord)
        agent, _, observer = entry.key.removeprefix(SUSPICIONS).partition("/")
        now_ms = self._clock.boot_ms()
        suspicion = Suspicion(
            agent=agent,
            session=record.session,
            observer=observer,
            reset_at_ms=now_ms - record.reset_ago_ms,
            refused_at_ms=now_ms - record.refused_ago_ms,
        )
        return _Report(suspicion, entry.version)

    def _read_seen(self, entry: Entry) -> int:
        return self._clock.boot_ms()

    def _read_end(self, entry: Entry) -> EarlyEnd:
        record = msgspec.json.decode(entry.value, type=EarlyEndRecord)
        to_boot_ms = self._clock.boot_ms() - self._clock.now_ms()
        return EarlyEnd(
            session=record.session,
            process=record.process,
            # A clock that was ahead must not make an end look as if it were still to come.
            ended_at_ms=min(record.ended_at_ms + to_boot_ms, self._clock.boot_ms()),
            wrong=record.wrong,
            paused_until_ms=record.paused_until_ms + to_boot_ms if record.paused_until_ms else 0,
            judged=record.judged,
        )

    def _put(self, agent: str, end: EarlyEnd) -> Operation:
        to_wall_ms = self._clock.now_ms() - self._clock.boot_ms()
        record = EarlyEndRecord(
            session=end.session,
            process=end.process,
            ended_at_ms=end.ended_at_ms + to_wall_ms,
            wrong=end.wrong,
            paused_until_ms=end.paused_until_ms + to_wall_ms if end.paused_until_ms else 0,
            judged=end.judged,
        )
        return Put(early_end_key(agent), msgspec.json.encode(record))
