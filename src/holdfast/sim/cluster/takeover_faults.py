"""Faults aimed at takeovers of replicated partitions: schedules of several steps, and strikes at the messages of a takeover.

The one rule: they only do what other faults do (kill, pause, cut, delay a commit), at moments that chance alone does not find. A
schedule whose next step does not come is given up: the seed goes on without it.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from holdfast.log.keys import LOGS
from holdfast.log.replication.messages import Append, Base, ReadTail, Request, Seal
from holdfast.log.replication.positions import PartitionKey
from holdfast.sim.cluster.clients import BurstProducer, Reader
from holdfast.sim.cluster.host import AgentHost, ClusterContext
from holdfast.sim.cluster.replicas import SimReplicaNetwork
from holdfast.sim.process import SimClock
from holdfast.vocabulary.types import TopicPartition

_POLL_TTLS: Final = 1 / 40
_WAIT_TTLS: Final = 4  # for the next step of a schedule


class TakeoverFaults:
    """Those of one world, aimed at one partition with three replicas."""

    def __init__(
        self,
        context: ClusterContext,
        hosts: Sequence[AgentHost],
        which: TopicPartition,
        burst: BurstProducer,
        asker: Reader,
        *,
        clock: SimClock,
    ) -> None:
        self._shared, self._hosts, self._which, self._burst, self._clock = context, hosts, which, burst, clock
        self._asker = asker
        self._rng, self._ttl_ms = context.random.random, context.ttl_ms
        self._strike_share = 0.0
        self._cut_before: tuple[PartitionKey, AgentHost, asyncio.Event] | None = None
        context.wires.on_request = self._on_request

    async def run(self) -> None:
        """Draw what happens in this world, and make it happen; cancelled when faults end."""
        self._strike_share = self._rng.choice((0.0, 0.02, 0.08))
        schedule = self._rng.choice(
            (self._relay, self._leave_one_behind, self._keep_long_tail, self._keep_long_tail, self._ask_former_leader)
        )
        await self._sleep(0.3, 1.0)
        first = self._leader()
        if first is not None:
            self._shared.history.count("schedules")
            self._shared.history.note(first.name, f"schedule {schedule.__name__.strip('_')}")
            await schedule(first)

    async def _relay(self, first: AgentHost) -> None:
        """Three logs that differ: a leader writes alone and dies, the next one dies soon after it serves, the first is back."""
        self._isolate(first)
        await self._sleep(0.05, 0.4)
        first.kill(self._ttls(0.2, 1.0), power=False)
        second = await self._next_leader(first)
        await self._sleep(0.0, 0.3)
        self._reconnect(first)
        if second is not None:
            second.kill(self._ttls(1.0, 2.0), power=False)

    async def _leave_one_behind(self, first: AgentHost) -> None:
        """One replica misses what the others have acknowledged, and is back when the leader dies: it must not be believed."""
        behind = self._rng.choice([host for host in self._hosts if host is not first])
        self._isolate(behind)
        await self._sleep(0.1, 0.5)
        self._reconnect(behind)
        first.kill(self._ttls(1.0, 2.5), power=False)

    async def _keep_long_tail(self, first: AgentHost) -> None:
        """A tail of an old epoch that nobody acknowledged, longer than all that came after it, on a counted replica.

        Its owner returns, and is cut off by the leader's first message of the epoch whose set it is in: that one would truncate it.
        When something is acknowledged without it, the leader dies, and the owner of the tail is back.
        """
        assert first.agent is not None
        key = first.agent.log.leading[self._which].wal_key
        self._isolate(first)
        self._burst.send(first, self._rng.randint(10, 20))
        await self._sleep(0.03, 0.1)
        first.kill(_WAIT_TTLS * self._ttl_ms, power=False)
        self._reconnect(first)
        second = await self._next_leader(first)
        self._cut_before = (key, first, cut := asyncio.Event())
        first.start()
        if second is None or not await self._within(cut):
            return
        second = await self._next_leader(first)
        await self._sleep(0.1, 0.4)
        if second is not None:
            second.kill(self._ttls(1.5, 2.5), power=False)
        self._reconnect(first)

    async def _ask_former_leader(self, first: AgentHost) -> None:
        """A leader that knows less of its own epoch than the next one shows is asked where that epoch ended.

        It gets no answers from its replicas, and then loses the store; clients go on to reach it.
        """
        first.record("isolations", "gets no answers of the other agents", 0)
        first.peer_link.deaf = True
        self._burst.send(first, self._rng.randint(2, 4))
        await self._sleep(0.05, 0.1)
        first.link.up, first.link.refuses = False, True
        second = await self._next_leader(first)
        if second is not None:
            for _ in range(self._rng.randint(1, 4)):
                await self._asker.read_and_ask(self._which, second, first)
        self._reconnect(first)

    def _on_request(self, sender: SimReplicaNetwork, receiver: SimReplicaNetwork, message: Request) -> None:
        """A message to a replica is about to be sent."""
        aimed = self._cut_before
        if aimed is not None and isinstance(message, (Append, Base)) and message.partition == aimed[0]:
            _, owner, cut = aimed
            if receiver.process is owner.process:
                self._cut_before = None
                self._isolate(owner)
                cut.set()
        if self._strike_share and _is_of_takeover(message) and self._rng.random() < self._strike_share:
            self._strike(sender, receiver, message)

    def _strike(self, sender: SimReplicaNetwork, receiver: SimReplicaNetwork, message: Request) -> None:
        """Right after it was sent, the new leader or the replica fails; or the open commit is late, and its sender fails."""
        rng = self._rng
        leader, replica = self._host_of(sender), self._host_of(receiver)
        if leader is None or replica is None:
            return
        self._shared.history.count(f"strikes at {type(message).__name__}")
        victim, duration_ms = rng.choice((leader, replica)), self._ttls(0.1, 1.5)
        fault: Callable[[], object] = rng.choice(
            (
                partial(victim.kill, duration_ms, power=rng.random() < 0.5),
                partial(victim.pause, duration_ms),
                partial(self._cut_for, victim, duration_ms),
                partial(self._delay_open_commit, leader, duration_ms),
            )
        )
        self._shared.loop.post_at(self._shared.loop.now_ms, fault)

    def _delay_open_commit(self, leader: AgentHost, duration_ms: float) -> None:
        strike = self._rng.choice((leader.pause, partial(leader.kill, power=False)))
        leader.delay_commit(LOGS, duration_ms, partial(strike, duration_ms + self._ttls(-0.1, 0.5)))

    def _cut_for(self, host: AgentHost, duration_ms: float) -> None:
        self._isolate(host)
        self._shared.loop.post_at(self._shared.loop.now_ms + duration_ms, self._reconnect, host)

    def _isolate(self, host: AgentHost) -> None:
        host.record("isolations", "is isolated from the other agents", 0)
        host.peer_link.up = False

    def _reconnect(self, host: AgentHost) -> None:
        host.link.up = host.peer_link.up = True
        host.peer_link.deaf = False

    def _leader(self) -> AgentHost | None:
        """The host that serves the partition now."""
        for host in self._hosts:
            if host.agent is not None and host.agent.service.is_serving(self._which.topic, self._which.number):
                return host
        return None

    async def _next_leader(self, before: AgentHost) -> AgentHost | None:
        """The host that serves the partition next, if another one does in time."""
        for _ in range(int(_WAIT_TTLS / _POLL_TTLS)):
            leader = self._leader()
            if leader is not None and leader is not before:
                return leader
            await self._clock.sleep_ms(self._ttl_ms * _POLL_TTLS)
        return None

    async def _within(self, event: asyncio.Event) -> bool:
        for _ in range(int(_WAIT_TTLS / _POLL_TTLS)):
            if event.is_set():
                return True
            await self._clock.sleep_ms(self._ttl_ms * _POLL_TTLS)
        return False

    def _host_of(self, network: SimReplicaNetwork) -> AgentHost | None:
        return next((host for host in self._hosts if host.process is network.process), None)

    async def _sleep(self, least_ttls: float, most_ttls: float) -> None:
        await self._clock.sleep_ms(self._ttls(least_ttls, most_ttls))

    def _ttls(self, least: float, most: float) -> float:
        return self._rng.uniform(least, most) * self._ttl_ms


def _is_of_takeover(message: Request) -> bool:
    """Whether it seals, fetches, or brings the start of an epoch."""
    if isinstance(message, Append):
        return any(entry.count == 0 for entry in message.entries)
    return isinstance(message, (Seal, ReadTail, Base))
