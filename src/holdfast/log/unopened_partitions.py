"""Partitions whose lease is held and that are not open: why, since which lease, and what they wait for.

Each is listed as offline with the reason, here and in the store, so that every broker can tell clients. It opens nothing
(`lease_handler`).
"""

import logging
from contextlib import suppress
from typing import Final

from holdfast.contracts.store import Store
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.lease import Lease
from holdfast.log.errors import EpochSpentError, ReplicasUnreachableError, TailDamagedError, TailNotLocalError
from holdfast.log.keys import WALS
from holdfast.log.offline_partitions import mark_offline
from holdfast.log.partition.takeover_recovery import PartitionTakeover
from holdfast.log.replication.network import ReplicaNetwork
from holdfast.log.wal_owners import hand_over_to_wal_owner
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import FencedError, HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.types import TopicPartition

_log: Final = logging.getLogger(__name__)


class UnopenedPartitions:
    """Those of one session. `leases` also has those of topics that are gone; `offline` says why, by partition."""

    def __init__(self, store: Store, *, clock: Clock, random: Random, network: ReplicaNetwork | None = None) -> None:
        self._store, self._clock, self._random, self._network = store, clock, random, network
        self.leases: dict[str, Lease] = {}  # by resource
        self.offline: dict[TopicPartition, str] = {}
        self._waits_for: dict[str, str] = {}  # resource → the WAL that has its last records
        self._unreachable: dict[str, ReplicasUnreachableError] = {}  # by resource
        self._marked: dict[TopicPartition, str] = {}  # offline, and the store says so
        self._tail_is_local: set[TopicPartition] = set()  # no other agent could open it: not to be handed over

    def opening(self, lease: Lease) -> None:
        """It is about to be opened."""
        self.leases[lease.resource] = lease
        self._waits_for.pop(lease.resource, None)
        self._unreachable.pop(lease.resource, None)

    def forget_lease(self, resource: str) -> None:
        """It is open, or no longer ours."""
        self.leases.pop(resource, None)
        self._waits_for.pop(resource, None)
        self._unreachable.pop(resource, None)

    def forget_reason(self, which: TopicPartition) -> None:
        """It is open, or no longer ours: it is not offline here."""
        self.offline.pop(which, None)
        self._marked.pop(which, None)
        self._tail_is_local.discard(which)

    def check_movable(self, which: TopicPartition) -> None:
        """`UnavailableError`: no other agent could open it, because its last records are in our WAL."""
        if which in self._tail_is_local:
            raise UnavailableError(f"partition {which}", f"its last records are in this WAL: {self.offline.get(which)}")

    async def go_offline(self, takeover: PartitionTakeover, error: HoldfastError) -> FencedError | None:
        """It could not be opened; where another agent has its last records, that one gets the lease. The lease may be lost."""
        try:
            await self._go_offline(takeover, error)
        except FencedError as lost:
            return lost
        return None

    async def _go_offline(self, takeover: PartitionTakeover, error: HoldfastError) -> None:
        partition_id, lease = takeover.partition_id, takeover.lease
        which, reason = TopicPartition(partition_id.topic, partition_id.number), str(error)
        if isinstance(error, TailNotLocalError):
            self._waits_for[lease.resource] = error.wal
            with suppress(UnavailableError, OutcomeUnknownError):  # the next attempt may succeed
                await hand_over_to_wal_owner(self._store, lease, error.wal, clock=self._clock, random=self._random)
        if self.offline.get(which) != reason:
            _log.warning("partition %s is offline: %s", which, reason)
        self.offline[which] = reason
        if self._marked.get(which) != reason:
            with suppress(UnavailableError, OutcomeUnknownError):  # the next attempt may succeed
                await mark_offline(self._store, lease, partition_id, error, clock=self._clock, random=self._random)
                self._marked[which] = reason
        if isinstance(error, ReplicasUnreachableError):
            self._unreachable[lease.resource] = error
        if _may_be_here_alone(takeover.config.level, error):
            self._tail_is_local.add(which)

    async def openable(self) -> list[Lease]:
        """All but those whose last records nobody has who can be reached: of a WAL, one scan tells whether it is open.

        One whose epoch is spent is openable all the same: replicas that it waited for may be gone for ever, with their disks.
        """
        waits_for, live = self._waits_for, frozenset[str]()
        if waits_for:
            with suppress(UnavailableError):  # the next round asks again
                entries = (await self._store.scan(WALS, prefix_end(WALS))).entries
                live = frozenset(entry.key.removeprefix(WALS) for entry in entries)
        return [
            lease
            for resource, lease in self.leases.items()
            if (resource not in waits_for or waits_for[resource] in live)
            and (
                self._may_answer(resource) or self._unreachable[resource].spent_epoch
            )  # or others may, in its next epoch
        ]

    def reachable_again(self) -> list[Lease]:
        """Those that too few replicas answered for, and enough can be reached now."""
        return [self.leases[resource] for resource in self._unreachable if self._may_answer(resource)]

    def _may_answer(self, resource: str) -> bool:
        error = self._unreachable.get(resource)
        if error is None or error.unclean or self._network is None:
            return True
        return sum(map(self._network.is_connected, (*error.answering, *error.missing))) >= error.needed


def _may_be_here_alone(level: str, error: HoldfastError) -> bool:
    """Whether no other agent may have the last records: at `local`, unless the error says that they are elsewhere.

    A topic that has just become another level may have such a tail, too: then who gets the partition hands it back.
    """
    elsewhere = isinstance(error, (TailNotLocalError, ReplicasUnreachableError, EpochSpentError))
    return isinstance(error, TailDamagedError) or (level == "local" and not elsewhere)
