"""Ending dead agents' sessions early, driven: what observers report in the store, the decision, and its commit.

The one rule: the decision is a commit that requires the planner's lease, the suspected session's registration, and every report it
rests on: reports go with their observers' sessions, and when an observer reaches the agent again. Only then is the session closed;
if who decided dies in between, it ends by its TTL. A store that does not answer at once ends nothing.

Every agent watches. The planner ends the sessions of others, under its lease. That of the planner's own agent is ended by another,
in a commit that takes the planner's lease from it at the next epoch: of several that try, one gets it, and whatever the former
planner still writes is refused.

    suspect/{agent}/{observer}   {"session", "reset_ago_ms", "refused_ago_ms"}   under the observer's session
    early-end/{agent}            {"session", "process", "ended_at_ms", "wrong", …}   the last early end of an agent

Reports carry ages, not times: hosts' clocks differ. They count from when they are received.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import msgspec

from holdfast.contracts.store import Absent, AtVersion, Committed, Entry, Operation, Put, Requirement, Store
from holdfast.kernel.early_takeover import (
    EarlyEnd,
    EarlyTakeoverSettings,
    EndSession,
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
    PLANNER,
    SUSPICIONS,
    early_end_key,
    holder_key,
    last_seen_key,
    member_key,
    members_prefix,
    suspicion_key,
)
from holdfast.kernel.lease import Held, Lease, commit_fenced, read_holder, transfer_commit
from holdfast.kernel.membership import read_member
from holdfast.kernel.mirror import Mirror, open_mirror
from holdfast.kernel.session import HeldSession
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import FencedError, OutcomeUnknownError, UnavailableError
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
    """What an agent needs to end others' sessions early. `may_move`: whether something of this agent could be served by another."""

    settings: EarlyTakeoverSettings
    may_move: Callable[[str], bool]
    counters: EarlyEndCounters


@dataclass(frozen=True, slots=True)
class _Report:
    """A report as it was received."""

    suspicion: Suspicion
    version: int


class EarlyEnder:
    """The early ends of one session of an agent: those of the planner while it plans, that of the planner while it does not."""

    def __init__(
        self, early: EarlyTakeover, store: Store, *, agent: str, session: HeldSession, clock: Clock, random: Random
    ) -> None:
        self._early, self._store, self._agent, self._session = early, store, agent, session
        self._clock, self._random = clock, random
        self._lease: Lease | None = None  # the planner's, while this agent plans
        self._planner_seen = (0, 0)  # the version of the planner's lease, and since when it is known
        self._ended: dict[str, str] = {}  # agent → the session of it that was ended here
        self._obstacles: Mapping[str, str] = {}  # what was logged
        self._notify = Notify()
        self._reports: Mirror[_Report]
        self._ends: Mirror[tuple[EarlyEnd, int]]
        self._members: Mirror[Member]
        self._seen: Mirror[int]
        self._planners: Mirror[Held]

    @contextmanager
    def planning(self, lease: Lease) -> Iterator[None]:
        """This agent plans for the body."""
        self._lease = lease
        self._notify.notify()
        try:
            yield
        finally:
            self._lease = None

    def has_ended(self, agent: str) -> bool:
        """Whether the agent's last session was ended here: it is dead, and nobody need wait for it to come back."""
        member = self._members.items.get(member_key("agent", agent)) if agent in self._ended else None
        return agent in self._ended and (member is None or member.session == self._ended[agent])

    async def run(self) -> None:
        """Look whenever something is reported, until cancelled."""
        async with AsyncExitStack() as stack:

            async def mirror(prefix: str, read: Callable[[Entry], T], wake: Notify) -> Mirror[T]:
                opened = open_mirror(self._store, prefix, read, clock=self._clock, random=self._random, notify=wake)
                return await stack.enter_async_context(opened)

            self._ends = await mirror(EARLY_ENDS, self._read_end, Notify())
            self._members = await mirror(members_prefix("agent"), read_member, Notify())
            self._seen = await mirror(last_seen_key("agent", ""), self._read_seen, Notify())
            self._planners = await mirror(holder_key(PLANNER), self._read_planner, Notify())
            self._reports = await mirror(SUSPICIONS, self._read_report, self._notify)
            while True:
                if self._lease is not None:
                    await self._judge_returned(self._lease)
                await self._end_one()
                await self._notify.wait_ms(self._clock, _TICK_MS)

    async def _end_one(self) -> None:
        planner, lease = self._planners.items.get(holder_key(PLANNER)), self._lease
        if planner is None or (lease is None and planner.holder == self._agent):
            return  # nobody decides; or this agent is about to
        situation, now_ms, settings = self._situation(planner), self._clock.boot_ms(), self._early.settings
        decision = choose(situation, now_ms, settings, self._early.may_move)
        if decision is None:
            obstacles = {
                agent: obstacle_to(agent, situation, now_ms, settings) or "nothing of it could move"
                for agent in suspects(situation, now_ms, settings)
                if lease is not None or agent == planner.holder
            }
            self._log_obstacles(obstacles)
            return
        if lease is not None:
            await self._commit_end(decision, (lease.fence(),))
        elif planner.session == decision.session:
            taken = transfer_commit(_lease_of(planner), to=self._agent, session=self._session.id)
            # Not by an agent whose own session is being ended.
            alive = self._unchanged(self._agent)
            await self._commit_end(decision, (*taken.require, alive), taken.apply)

    async def _commit_end(
        self, decision: EndSession, require: tuple[Requirement, ...], apply: tuple[Operation, ...] = ()
    ) -> None:
        keys = [suspicion_key(decision.agent, observer) for observer in decision.observers]
        reports = [AtVersion(key, self._reports.items[key].version) for key in keys]
        entry = await self._member_entry(decision.agent)
        if entry is None or (member := read_member(entry)).session != decision.session:
            return
        before = self._ends.items.get(early_end_key(decision.agent))
        end = next_end(decision, member.process, before[0] if before is not None else None, self._clock.boot_ms())
        try:
            outcome = await self._store.commit(
                require=(*require, AtVersion(entry.key, entry.version), *reports),
                apply=(*apply, self._put(decision.agent, end)),
            )
            if isinstance(outcome, Committed):
                self._ended[decision.agent] = decision.session  # before anybody can see that it is gone
                await self._store.close_session(decision.session)
        except (UnavailableError, OutcomeUnknownError) as error:
            self._log_obstacles({decision.agent: str(error)})
            return
        if isinstance(outcome, Committed):
            self._ends.items[early_end_key(decision.agent)] = end, outcome.version  # until the mirror has it
            self._early.counters.sessions_ended_early += 1
            _log.warning(
                "ended session %s of agent %s before its TTL%s: %s saw its connections reset and its port refuse",
                decision.session,
                decision.agent,
                ", planning in its place" if apply else "",
                ", ".join(decision.observers),
            )

    def _unchanged(self, agent: str) -> Requirement:
        """The requirement that nobody has ended the agent's session meanwhile."""
        known = self._ends.items.get(early_end_key(agent))
        return Absent(early_end_key(agent)) if known is None else AtVersion(early_end_key(agent), known[1])

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

    async def _judge_returned(self, lease: Lease) -> None:
        """Agents that are back without a restart were ended wrongly."""
        for key, (end, _) in list(self._ends.items.items()):
            agent = key.removeprefix(EARLY_ENDS)
            member = self._members.items.get(member_key("agent", agent))
            if member is None or not was_wrong(end, member.session, member.process):
                continue
            judged = after_wrong(end, self._clock.boot_ms(), self._early.settings)
            try:
                outcome = await commit_fenced(
                    self._store, lease, clock=self._clock, random=self._random, apply=(self._put(agent, judged),)
                )
            except FencedError:
                return  # another agent plans now, and judges
            if isinstance(outcome, Committed):
                self._ends.items[key] = judged, outcome.version  # until the mirror has it
            self._early.counters.sessions_ended_wrongly += 1
            _log.warning(
                "agent %s was alive when its session was ended early, %d times now: left alone for %d s",
                agent,
                judged.wrong,
                (judged.paused_until_ms - self._clock.boot_ms()) // 1000,
            )

    def _situation(self, planner: Held) -> Situation:
        prefix = members_prefix("agent")
        seen_prefix = last_seen_key("agent", "")
        return Situation(
            decider=self._agent,
            planner=planner.holder,
            sessions={key.removeprefix(prefix): member.session for key, member in self._members.items.items()},
            suspicions=[report.suspicion for report in self._reports.items.values()],
            seen_at_ms={key.removeprefix(seen_prefix): at_ms for key, at_ms in self._seen.items.items()},
            ends={key.removeprefix(EARLY_ENDS): end for key, (end, _) in self._ends.items.items()},
            since_ms=self._planner_seen[1],
            ttl_ms=self._session.ttl_ms,
            store_available=self._session.recently_renewed(),
        )

    def _read_planner(self, entry: Entry) -> Held:
        if entry.version != self._planner_seen[0]:  # not when the same lease is read again
            self._planner_seen = entry.version, self._clock.boot_ms()
        return read_holder(entry)

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

    def _read_end(self, entry: Entry) -> tuple[EarlyEnd, int]:
        record = msgspec.json.decode(entry.value, type=EarlyEndRecord)
        to_boot_ms = self._clock.boot_ms() - self._clock.now_ms()
        end = EarlyEnd(
            session=record.session,
            process=record.process,
            # A clock that was ahead must not make an end look as if it were still to come.
            ended_at_ms=min(record.ended_at_ms + to_boot_ms, self._clock.boot_ms()),
            wrong=record.wrong,
            paused_until_ms=record.paused_until_ms + to_boot_ms if record.paused_until_ms else 0,
            judged=record.judged,
        )
        return end, entry.version

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


def _lease_of(held: Held) -> Lease:
    """The lease as its holder has it."""
    session = held.session or ""
    return Lease(resource=held.resource, holder=held.holder, session=session, epoch=held.epoch, version=held.version)
