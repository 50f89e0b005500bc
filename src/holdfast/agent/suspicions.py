"""Reporting agents that look dead, to the store and to listings: an established connection that was reset and, right after, a port
that refuses.

The one rule: a report goes as soon as the agent is reached again, and after some seconds in any case. The planner decides
(`kernel.early_takeover`); a report that the store does not take at once is not made at all: then the session ends by its TTL.
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.agent.cluster import Cluster
from holdfast.agent.departures import Departures
from holdfast.agent.peers.observations import DialOutcome, Observation
from holdfast.agent.peers.stream import PeerStream
from holdfast.contracts.store import Committed, Delete, Put, Store
from holdfast.kernel.early_ends import SuspicionRecord
from holdfast.kernel.keys import LOG_PARTITION, parse_placed_resource, suspicion_key
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.tasks import Notify
from holdfast.vocabulary.types import Member

_log: Final = logging.getLogger(__name__)

_KEPT_WINDOWS: Final = 10  # a report counts for one window; it is removed a little later


def may_move_early(agent: str, cluster: Cluster) -> bool:
    """Whether something that the agent leads can be served by others before its TTL: other leases than of `local` partitions.

    Those stay bound to its WAL. One whose topic allows an unclean takeover would be taken at once, without its last records,
    though its agent may be back within the TTL: then nothing is ended early.
    """
    movable = False
    for held in cluster.held_by(agent):
        kind, workload, _ = parse_placed_resource(held.resource)
        topic = cluster.topic(workload) if kind == LOG_PARTITION else None
        if topic is None:
            movable = movable or kind != LOG_PARTITION
        elif topic.config.durability != "local":
            movable = True
        elif topic.config.unclean_takeover:
            return False
    return movable


class SuspicionReporter:
    """What this agent sees of others. A `StreamListener`."""

    def __init__(
        self,
        agent: str,
        member: Callable[[str], Member | None],
        store: Store,
        *,
        departures: Departures,
        window_ms: int,
        clock: Clock,
    ) -> None:
        self._agent, self._member, self._store, self._departures = agent, member, store, departures
        self._window_ms, self._clock = window_ms, clock
        self._resets: dict[str, int] = {}
        self._seen: dict[str, tuple[int, int]] = {}  # to be reported: reset and refused at
        self._reached: set[str] = set()
        self._reported: dict[str, int] = {}
        self._notify = Notify()

    def observed(self, observation: Observation) -> None:
        """Remember a reset; report it if a refusal follows within the window."""
        agent = observation.agent
        if observation.outcome is DialOutcome.RESET:
            if observation.established:
                self._resets[agent] = observation.at_ms
            return  # a port that is just being closed resets as well
        reset_at_ms = self._resets.get(agent)
        if observation.outcome is not DialOutcome.REFUSED:
            self._resets.pop(agent, None)
        elif reset_at_ms is not None and observation.at_ms - reset_at_ms <= self._window_ms:
            del self._resets[agent]
            self._seen[agent] = reset_at_ms, observation.at_ms
            if (member := self._member(agent)) is not None:
                self._departures.suspect(member, self._clock.boot_ms())
            self._notify.notify()

    def connected(self, stream: PeerStream) -> None:
        """It is alive: what was said of it is withdrawn."""
        agent = stream.peer.agent
        self._departures.reached(agent)
        self._resets.pop(agent, None)
        self._seen.pop(agent, None)
        if agent in self._reported:
            self._reached.add(agent)
            self._notify.notify()

    def disconnected(self, stream: PeerStream) -> None:
        """`observed` has the reason."""

    def lagging(self, stream: PeerStream, key: bytes) -> None:
        """Slow is not dead."""

    def recovered(self, stream: PeerStream, key: bytes) -> None:
        """Slow was not dead."""

    async def run(self, session: str) -> None:
        """Write reports under this session, until cancelled."""
        self._seen, self._reached, self._reported = {}, set(), {}
        while True:
            if self._reported or self._departures.has_suspects:
                await self._notify.wait_ms(self._clock, self._window_ms)
            else:
                await self._notify.wait()
            seen, self._seen = self._seen, {}
            reached, self._reached = self._reached, set()
            for agent, (reset_at_ms, refused_at_ms) in seen.items():
                await self._report(agent, reset_at_ms, refused_at_ms, session)
            for agent in reached | self._outdated():
                await self._withdraw(agent)
            self._departures.forget_suspects(self._clock.boot_ms() - _KEPT_WINDOWS * self._window_ms)

    async def _report(self, agent: str, reset_at_ms: int, refused_at_ms: int, session: str) -> None:
        member, now_ms = self._member(agent), self._clock.boot_ms()
        if member is None:
            return
        record = SuspicionRecord(
            session=member.session, reset_ago_ms=now_ms - reset_at_ms, refused_ago_ms=now_ms - refused_at_ms
        )
        put = Put(suspicion_key(agent, self._agent), msgspec.json.encode(record), session)
        try:
            outcome = await self._store.commit(apply=(put,))
        except UnavailableError as error:
            _log.info("agent %s looks dead, and that is not reported: %s", agent, error)
            return
        except OutcomeUnknownError:
            outcome = Committed(0)  # perhaps: then it is to be withdrawn
        if isinstance(outcome, Committed):
            self._reported[agent] = now_ms
            _log.warning("agent %s looks dead: its connection was reset and its port refuses", agent)

    async def _withdraw(self, agent: str) -> None:
        try:
            await self._store.commit(apply=(Delete(suspicion_key(agent, self._agent)),))
        except (UnavailableError, OutcomeUnknownError):
            return  # tried again
        self._reported.pop(agent, None)

    def _outdated(self) -> set[str]:
        kept_ms, now_ms = _KEPT_WINDOWS * self._window_ms, self._clock.boot_ms()
        return {agent for agent, at_ms in self._reported.items() if now_ms - at_ms > kept_ms}
