"""What an agent does for the replicated partitions it leads, all the time: tells replicas of the high watermark, sees who keeps up,
and finds those whose level or set of replicas is no longer what is wanted.

The one rule: level and set of an epoch are fixed. To change them the partition is opened again under a new epoch: `reopen`, which
the lease handler brings. What is looked at here are the partitions that are, or shall be, replicated; the others cost nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from holdfast.kernel.keys import partition_from_resource
from holdfast.log.model import QUORUM
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.replica_members import choose_members, is_other_set_due, may_reopen_here
from holdfast.log.partition.replicated_partition import ReplicatedPartition
from holdfast.log.partition.resources import ReplicationResources
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.tasks import gather_limited, task_group

_log: Final = logging.getLogger(__name__)

_TICK_MS: Final = 50
_QUIET_MS: Final = 100  # a partition that is written to tells its replicas with every append
_TICKS_PER_LOOK: Final = 5
_LOOKS_PER_TICK: Final = 100  # partitions: of many, each is looked at less often
_LOOKS_AT_ONCE: Final = 500
_IN_SYNC_INTERVAL_MS: Final = 1_000  # between two commits of one partition
_COMMITS_MAX: Final = 64  # concurrent
_REOPENINGS_MAX: Final = 8


class ReplicaUpkeep:
    """Of one session. A `ReplicaListener`: `on_connected` is called when an agent can be reached (again)."""

    def __init__(
        self,
        replication: ReplicationResources,
        *,
        clock: Clock,
        watched: Callable[[], Iterable[LeadingPartition]],
        reopen: Callable[[LeadingPartition], Awaitable[None]],
        on_connected: Callable[[], None],
        retry_ms: int,
    ) -> None:
        self._replication, self._clock, self._watched = replication, clock, watched
        self._reopen, self._on_connected, self._retry_ms = reopen, on_connected, retry_ms
        self._reopened_ms: dict[str, float] = {}  # resource → when it was tried last
        self._reopening: set[str] = set()

    async def run(self) -> None:
        """Until cancelled."""
        stop_listening = self._replication.network.listen(self)
        try:
            async with task_group() as group:
                while True:
                    watched = list(self._watched())
                    for _ in range(max(_TICKS_PER_LOOK, len(watched) // _LOOKS_PER_TICK)):
                        self._announce(self._clock.boot_ms())
                        await self._clock.sleep_ms(_TICK_MS)
                    for at in range(0, len(watched), _LOOKS_AT_ONCE):
                        await self._look(watched[at : at + _LOOKS_AT_ONCE], group)
                        await self._clock.sleep_ms(0)
                    self._forget_reopened()
        finally:
            stop_listening()

    def connected(self, wal_id: str) -> None:
        self._on_connected()

    def disconnected(self, wal_id: str) -> None:
        """Those who lead by it notice."""

    def heard(self, wal_id: str) -> None:
        """Those who lead by it notice."""

    def _announce(self, now_ms: int) -> None:
        unannounced = self._replication.unannounced
        for partition in [each for each in unannounced if now_ms - each.appended_at_ms >= _QUIET_MS]:
            del unannounced[partition]
            partition.announce()

    async def _look(self, watched: Sequence[LeadingPartition], group: asyncio.TaskGroup) -> None:
        now_ms = self._clock.boot_ms()
        changed = [
            each
            for each in watched
            if isinstance(each, ReplicatedPartition)
            and each.check_members(now_ms, self._replication.lag_ms)
            and now_ms - each.in_sync_committed_ms >= _IN_SYNC_INTERVAL_MS
        ]
        await gather_limited(_commit_in_sync, changed, _COMMITS_MAX)
        # Those first that were not tried lately: what cannot be published takes long, again and again.
        for each in sorted(watched, key=lambda each: self._reopened_ms.get(each.lease.resource, -1.0)):
            due = self.is_reopening_due(each)
            if (
                self._have_log(each, self._newcomers(each) if due else (), now_ms)
                and due
                and len(self._reopening) < _REOPENINGS_MAX
                and self._may_reopen(each, now_ms)
            ):
                self._reopening.add(each.lease.resource)
                self._reopened_ms[each.lease.resource] = now_ms
                group.create_task(self._reopen_one(each))

    def _forget_reopened(self) -> None:
        now_ms = self._clock.boot_ms()
        self._reopened_ms = {
            resource: at_ms for resource, at_ms in self._reopened_ms.items() if now_ms - at_ms < self._retry_ms
        }

    def is_reopening_due(self, partition: LeadingPartition) -> bool:
        """Whether it should begin a new epoch, with another level or other members."""
        config, replication = partition.partition_config, self._replication
        if not isinstance(partition, ReplicatedPartition):
            return config.level == QUORUM
        if config.level != QUORUM:
            return True
        planned = replication.planned_replicas(partition_from_resource(partition.lease.resource))
        if not may_reopen_here(planned, replication.network.wal_id, can_be_drained=partition.can_be_drained):
            return False  # it is about to move
        wanted, reachable = self._wanted(partition)
        return is_other_set_due(partition.members, wanted, reachable, config.replicas)

    def _wanted(self, partition: LeadingPartition) -> tuple[tuple[str, ...], list[str]]:
        """The members that the plan wants, and which of them can be reached."""
        network = self._replication.network
        planned = self._replication.planned_replicas(partition_from_resource(partition.lease.resource))
        wanted = choose_members(planned, network.wal_id, partition.partition_config.replicas)
        return wanted, [each for each in wanted if network.is_connected(each)]

    def _newcomers(self, partition: LeadingPartition) -> Sequence[str]:
        """Who gets the log of this epoch before the next one begins with it. Nobody, where appends wait for that."""
        if not isinstance(partition, ReplicatedPartition) or partition.partition_config.level != QUORUM:
            return ()
        _, reachable = self._wanted(partition)
        if not self._replication.has_learners or not partition.can_be_drained or partition.awaits_members:
            return ()
        return [each for each in reachable if each not in partition.members]

    @staticmethod
    def _have_log(partition: LeadingPartition, newcomers: Sequence[str], now_ms: float) -> bool:
        return not isinstance(partition, ReplicatedPartition) or partition.teach(newcomers, now_ms)

    def _may_reopen(self, partition: LeadingPartition, now_ms: float) -> bool:
        resource = partition.lease.resource
        return (
            partition.accepting
            and resource not in self._reopening
            and now_ms - self._reopened_ms.get(resource, -self._retry_ms) >= self._retry_ms
        )

    async def _reopen_one(self, partition: LeadingPartition) -> None:
        try:
            await self._reopen(partition)
        except HoldfastError as error:
            _log.info("partition %s keeps its replicas for now: %s", partition.partition_id, error)
        finally:
            self._reopening.discard(partition.lease.resource)
            self._reopened_ms[partition.lease.resource] = self._clock.boot_ms()  # others have their turn meanwhile


async def _commit_in_sync(partition: ReplicatedPartition) -> None:
    try:
        await partition.commit_in_sync()
    except HoldfastError as error:  # tried again; if it was lost, the plan executor closes it
        _log.info("the in-sync replicas of partition %s were not written: %s", partition.partition_id, error)
