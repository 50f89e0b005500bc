"""Sessions of an agent, one after the other: membership, planner and plan executor of the kernel over lease handlers by kind.

The one rule: an agent that loses its session stops everything it did under it at once, and joins again with a new one; nothing
else ends a session (docs/safety.md, rule 21). Left gracefully, it hands its leases over, or flushes and releases them, first. What
a lease means is its handler's.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from typing import Final

from holdfast.agent.cluster import Cluster
from holdfast.agent.full_disk import FullDiskWatch
from holdfast.agent.lease_handlers import LeaseHandlerFactory, LeaseRouter, SessionLeaseHandler
from holdfast.agent.peers.peers import Peers
from holdfast.agent.settings import AgentCounters, AgentSettings
from holdfast.agent.suspicions import SuspicionReporter, may_move_early
from holdfast.contracts.store import Store
from holdfast.kernel.early_ends import EarlyTakeover
from holdfast.kernel.keys import LeaseKind
from holdfast.kernel.membership import hold_membership
from holdfast.kernel.placement_requests import drain_until_session_ends, drained_agents
from holdfast.kernel.plan_executor import PlanExecutor, execute_plan
from holdfast.kernel.planner import run_planner
from holdfast.kernel.session import HeldSession, hold_session, keep_running
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ExpiredError, FencedError, HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import background_tasks, leaf_errors, raise_if_cancelled
from holdfast.vocabulary.types import Member

_log: Final = logging.getLogger(__name__)

_POLL_MS: Final = 100
_REJOIN_ON: Final = (ExpiredError, FencedError, UnavailableError, OutcomeUnknownError)  # with a new session


class SessionLoop:
    """The sessions of one agent. `graceful`: whether `stop` hands everything over first."""

    def __init__(
        self,
        settings: AgentSettings,
        handlers: Mapping[LeaseKind, LeaseHandlerFactory],
        *,
        cluster: Cluster,
        counters: AgentCounters,
        store: Store,
        clock: Clock,
        random: Random,
        wal_id: str = "",
        is_disk_full: Callable[[], bool] = lambda: False,
        peers: Peers | None = None,
    ) -> None:
        self.member: Member | None = None
        self.session: HeldSession | None = None
        self.graceful = True
        self.waits_for = ""  # what a graceful stop waits for now
        self._settings, self._handlers, self._cluster, self._counters = settings, handlers, cluster, counters
        self._store, self._clock, self._random = store, clock, random
        self._wal_id, self._peers, self._process = wal_id, peers, random.token()
        self._suspicions = SuspicionReporter(
            settings.id,
            cluster.member,
            store,
            departures=cluster.departures,
            window_ms=settings.early_takeover.window_ms,
            clock=clock,
        )
        if peers is not None:
            peers.listeners.append(self._suspicions)
        self._full_disk = FullDiskWatch(
            settings.id,
            is_full=is_disk_full,
            is_leaving=lambda: self._leaving.is_set(),
            wait_ms=settings.full_disk_ms,
            store=store,
            clock=clock,
            random=random,
        )
        self._leaving, self._handed_over, self._stopping = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hand_over(self) -> None:
        """Have other agents take over the leases, as many as they do in time. Until `stop` the rest is served as before."""
        self._leaving.set()
        await self._handed_over.wait()

    def stop(self) -> None:
        """End `run` as soon as everything is handed over or released."""
        self._leaving.set()
        self._stopping.set()

    async def run(self) -> None:
        """Hold session after session, until `stop`."""
        try:
            await self._run_sessions()
        finally:
            self._handed_over.set()

    async def _run_sessions(self) -> None:
        logged = ""  # an outage is logged once, however often joining is tried
        paused_until_ms = 0  # before that, a lost session is followed by a pause
        while not self._leaving.is_set():
            sessions, pause_ms = self._counters.sessions, self._random.jitter(self._settings.rejoin_ms)
            try:
                await self._run_session()
            except (HoldfastError, BaseExceptionGroup) as error:
                raise_if_cancelled()
                if not all(isinstance(each, _REJOIN_ON) for each in leaf_errors(error)):
                    raise
                reason = "; ".join(dict.fromkeys(map(str, leaf_errors(error))))
                if self._counters.sessions > sessions:
                    self._counters.sessions_lost += 1
                    logged = ""
                    # At once, unless that happens again and again: without a session its replicas answer nobody.
                    if not self._leaving.is_set() and (now_ms := self._clock.boot_ms()) >= paused_until_ms:
                        paused_until_ms, pause_ms = now_ms + self._settings.rejoin_ms, 0.0
                    _log.warning(
                        "agent %s lost its session, stopping; what it had not published stays in its WAL: %s"
                        if self._leaving.is_set()
                        else "agent %s lost its session, rejoining: %s",
                        self._settings.id,
                        reason,
                    )
                elif reason != logged:
                    logged = reason
                    _log.warning("agent %s cannot join, retrying: %s", self._settings.id, reason)
            if not self._leaving.is_set():
                await self._clock.sleep_ms(pause_ms)

    async def _run_session(self) -> None:
        """One session, from joining to losing it or leaving gracefully."""
        settings, store, clock, random = self._settings, self._store, self._clock, self._random
        async with AsyncExitStack() as stack:
            for factory in self._handlers.values():
                await factory.prepare()
            session = self.session = await stack.enter_async_context(
                hold_session(store, clock=clock, random=random, settings=settings.session)
            )
            self._counters.sessions += 1
            handlers: dict[LeaseKind, SessionLeaseHandler] = {}
            router = LeaseRouter(handlers)
            stack.push_async_callback(self._end_session, router)
            for kind, factory in self._handlers.items():
                handlers[kind] = await factory.start(session)
            self.member = await stack.enter_async_context(
                hold_membership(
                    store, "agent", self._as_member(session), clock=clock, random=random, settings=settings.membership
                )
            )
            _log.info("agent %s joined with session %s", settings.id, session.id)
            if self._peers is not None:
                await stack.enter_async_context(self._peers.joined())
            await self._serve(session, router, handlers)

    async def _serve(
        self, session: HeldSession, router: LeaseRouter, handlers: Mapping[LeaseKind, SessionLeaseHandler]
    ) -> None:
        settings, store, clock, random = self._settings, self._store, self._clock, self._random
        early = EarlyTakeover(
            settings=settings.early_takeover,
            may_move=lambda agent: may_move_early(agent, self._cluster),
            counters=self._counters,
        )
        planner = run_planner(
            store,
            agent=settings.id,
            session=session,
            clock=clock,
            random=random,
            settings=settings.planner,
            early=early if self._peers is not None else None,
            in_sync=self._cluster.in_sync,
        )
        serving = (
            keep_running(handler.run, f"serving {kind} leases", session=session, clock=clock, random=random)
            for kind, handler in handlers.items()
        )
        async with (
            background_tasks(planner, self._suspicions.run(session.id), self._full_disk.run(session.id), *serving),
            execute_plan(
                store,
                router,
                agent=settings.id,
                session=session,
                clock=clock,
                random=random,
                settings=settings.follower,
            ) as executor,
        ):
            await self._leaving.wait()
            if self.graceful:
                await self._hand_over(executor, session.id)
            self._handed_over.set()
            await self._stopping.wait()
            router.retiring = self.graceful
        if self.graceful:
            leases = sum(len(handler.leases) for handler in handlers.values())
            self.waits_for = f"object storage and the store, to publish and release {leases} leases"
            await router.retire(settings.drain_ms)
            self.waits_for = "the store, to end its session"

    async def _hand_over(self, executor: PlanExecutor, session: str) -> None:
        """Ask to be drained, so that the planner gives our leases to others, and execute that plan to its end.

        This agent stays a member meanwhile: it leads, and others are replicas of what it leads.
        """
        self.waits_for = "the store, to leave the cluster"
        with suppress(UnavailableError, OutcomeUnknownError):
            await drain_until_session_ends(
                self._store, self._settings.id, session=session, clock=self._clock, random=self._random
            )
        leases, deadline_ms = len(executor.owned), self._clock.boot_ms() + self._settings.hand_over_ms
        while executor.owned and self._clock.boot_ms() < deadline_ms:
            if not await self._has_heirs():
                return
            self.waits_for = f"other agents, to take over {len(executor.owned)} leases"
            await executor.changed.wait_ms(self._clock, _POLL_MS)
        left = len(executor.owned)
        _log.info("agent %s has handed over %d leases, %d are left", self._settings.id, leases - left, left)

    async def _has_heirs(self) -> bool:
        """Whether an agent of our group stays, as far as is known: those that are leaving take nothing over."""
        others = {each.id for each in self._cluster.members if each.group == self._settings.group} - {self._settings.id}
        with suppress(UnavailableError, OutcomeUnknownError):
            others -= (await drained_agents(self._store, clock=self._clock, random=self._random)).keys()
        return bool(others)

    async def _end_session(self, router: LeaseRouter) -> None:
        """However the session ends: close what is still open."""
        for factory in self._handlers.values():
            factory.stop()
        await router.close_all()
        self.member = self.session = None

    def _as_member(self, session: HeldSession) -> Member:
        return Member(
            id=self._settings.id,
            session=session.id,
            address=self._settings.address,
            text_address=self._settings.text_address,
            zone=self._settings.zone,
            group=self._settings.group,
            started_at_ms=self._clock.now_ms(),
            peer_address=self._peers.address if self._peers is not None else "",
            wal_id=self._wal_id,
            process=self._process,
        )
