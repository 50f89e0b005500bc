"""Partitions at `quorum` that are to move to another agent: what has to be done first, and when they must not.

The one rule: whoever gets the lease can open the partition. It finds everything published, or on replicas that it reaches.
"""

import msgspec

from holdfast.contracts.store import Store
from holdfast.kernel.keys import partition_from_resource
from holdfast.log.keys import state_key
from holdfast.log.metadata import PartitionRecord
from holdfast.log.model import QUORUM
from holdfast.log.partition.drain import drain, drain_to_replicas
from holdfast.log.partition.ended_logs import EndedLog
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.log.partition.replicated_partition import ReplicatedPartition
from holdfast.log.partition.resources import ReplicationResources
from holdfast.log.replica_upkeep import ReplicaUpkeep
from holdfast.log.settings import LeadershipSettings
from holdfast.log.topics import Topic
from holdfast.vocabulary.errors import UnavailableError


class ReplicatedMoves:
    """Of one session."""

    def __init__(
        self,
        replication: ReplicationResources,
        upkeep: ReplicaUpkeep,
        *,
        store: Store,
        publisher: SegmentPublisher,
        settings: LeadershipSettings,
    ) -> None:
        self._replication, self._upkeep = replication, upkeep
        self._store, self._publisher, self._settings = store, publisher, settings

    async def drain(self, partition: ReplicatedPartition) -> None:
        """Give the planned replicas its tail, or publish it. `UnavailableError`: it is served as before.

        Where neither is possible, another set of replicas comes first.
        """
        if not partition.can_be_drained and self._upkeep.is_reopening_due(partition):
            raise UnavailableError(
                f"partition {partition.partition_id}",
                "it cannot be published completely: it begins an epoch with other replicas before it moves",
            )
        if await self._moves_with_tail(partition):
            return
        try:
            await drain(partition, self._publisher, self._settings)
        except UnavailableError:
            partition.drain_failed = True
            raise

    async def check_unopened(self, topic: Topic, number: int, ended: EndedLog) -> None:
        """`UnavailableError`: it is not served, and the log that this agent has kept is the only one that can be reached."""
        entry = await self._store.get(state_key(topic.id, number))
        if entry is None:
            return
        record = msgspec.json.decode(entry.value, type=PartitionRecord)
        if ended.is_only_one(record, self._replication.network.is_connected):
            raise UnavailableError(
                f"partition {topic.name}:{number}",
                "nobody else could open it: too few of the replicas before can be reached",
            )

    async def _moves_with_tail(self, partition: ReplicatedPartition) -> bool:
        """Whether the planned replicas have what is not published, and the topic still wants them to: then it is drained."""
        if partition.partition_config.level != QUORUM:
            return False
        planned = self._replication.planned_replicas(partition_from_resource(partition.lease.resource))
        return partition.can_move_to(planned) and await drain_to_replicas(partition, planned, self._settings)
