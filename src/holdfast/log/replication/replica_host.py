"""The replicas of one agent, on its WAL: messages of leaders in, of this agent's own and of others alike; answers out.

The one rule: a replica lives as long as the WAL is open, whatever becomes of sessions. What one partition is sent, or has on disk,
affects no other: a message that no leader sends is refused, a replica that cannot be read answers nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

from holdfast.log.replication.catch_up_rate import CatchUpRate
from holdfast.log.replication.entries_budget import EntriesBudget
from holdfast.log.replication.hosted_replica import HostedReplica, HostResources
from holdfast.log.replication.messages import Announce, Request
from holdfast.log.replication.network import OnAnswer
from holdfast.log.replication.positions import PartitionKey
from holdfast.log.replication.replica_wal import replica_id
from holdfast.log.replication.settings import ReplicaCounters, ReplicaSettings
from holdfast.log.wal import Wal
from holdfast.log.wal.frames import STATE_BIT
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.settings import MIB
from holdfast.vocabulary.tasks import gather_limited

_READS_MAX: Final = 8  # concurrent


class ReplicaHost:
    """The replicas of one WAL. Made by `open`."""

    def __init__(self, wal: Wal, wal_id: str, *, clock: Clock, settings: ReplicaSettings) -> None:
        self.wal, self.settings, self.counters = wal, settings, ReplicaCounters()
        self.wal_id = replica_id(wal_id, wal.repairs.last_repair)  # by which the replicas are counted
        self.budget = EntriesBudget(settings.entries_bytes_max)
        self.catch_up_rate = CatchUpRate(settings.catch_up_bytes_per_s or MIB, clock=clock)  # of this agent's leaders
        self._tasks: set[asyncio.Task[None]] = set()
        self._resources = HostResources(
            wal=wal,
            wal_id=self.wal_id,
            clock=clock,
            settings=settings,
            counters=self.counters,
            budget=self.budget,
            start=self._start,
        )
        self._replicas: dict[PartitionKey, HostedReplica] = {}
        self._heard_at_ms: dict[str, int] = {}  # agents that may lead, by their WALs
        self._closed = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls, wal: Wal, wal_id: str, *, clock: Clock, settings: ReplicaSettings | None = None
    ) -> AsyncIterator["ReplicaHost"]:
        """The replicas of `wal`, for the body, as a crash or a stop left them. Messages that wait at its end are not answered."""
        host = cls(wal, wal_id, clock=clock, settings=settings or ReplicaSettings())
        await host._recover()
        try:
            yield host
        finally:
            await host._close()

    @property
    def replicas(self) -> Iterable[HostedReplica]:
        """Every replica."""
        return self._replicas.values()

    def __len__(self) -> int:
        return len(self._replicas)

    def get(self, partition: PartitionKey) -> HostedReplica | None:
        """The replica of a partition, if there is one."""
        return self._replicas.get(partition)

    def handle(self, message: Request, sender: str, on_answer: OnAnswer) -> None:
        """Take a message of the agent with the WAL `sender`. `on_answer` is called once, later: None if there is no answer."""
        self.counters.messages += 1
        replica = self._replicas.get(message.partition)
        refusal = self._refusal(message, known=replica is not None)
        if refusal:
            self.counters.refuse(refusal)
            asyncio.get_running_loop().call_soon(on_answer, None)
            return
        if replica is None:
            replica = self._replicas[message.partition] = HostedReplica(message.partition, self._resources)
        replica.take(message, sender, on_answer)

    def heard(self, wal_id: str, at_ms: int) -> None:
        """The agent with this WAL was alive then."""
        self._heard_at_ms[wal_id] = at_ms

    def leader_heard_at_ms(self, replica: HostedReplica) -> int | None:
        """When the leader of the promised epoch, or its agent, was heard of last; None: it was not."""
        leader = replica.leader
        if not leader:
            return None
        return max(replica.written_at_ms, self._heard_at_ms.get(leader, replica.written_at_ms))

    def forget(self, partition: PartitionKey) -> None:
        """The topic was deleted: nothing of the replica is needed any more, not even its promise."""
        replica = self._replicas.pop(partition, None)
        if replica is not None:
            replica.close()
            replica.discard()

    def _refusal(self, message: Request, *, known: bool) -> str:
        """Why a message is not looked at."""
        if self._closed:
            return "closed"
        if message.epoch < 1 or message.partition[1] & STATE_BIT:
            return "invalid"
        if not known and isinstance(message, Announce):
            return "unknown"  # it would change nothing
        return ""

    async def _recover(self) -> None:
        keys = [(topic_id, number ^ STATE_BIT) for topic_id, number in self.wal.unreleased() if number & STATE_BIT]
        self._replicas = {key: HostedReplica(key, self._resources) for key in sorted(keys)}
        await gather_limited(lambda each: each.open(), list(self._replicas.values()), _READS_MAX)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _close(self) -> None:
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for replica in self._replicas.values():
            replica.close()
