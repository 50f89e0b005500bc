"""A world for replicated partitions: agents with real WALs and replicas, linked in one process."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.support.partitions import ORDERS, Owner, PartitionWorld, records
from tests.support.replication.in_process import InProcessCluster

from holdfast.kernel.lease import Lease, retake
from holdfast.log.model import QUORUM, PartitionConfig, PartitionId
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.replicated_partition import ReplicatedPartition
from holdfast.log.partition.resources import ReplicationResources
from holdfast.log.partition.takeover import open_partition
from holdfast.log.replication.replica_host import ReplicaHost
from holdfast.log.replication.unneeded_replicas import drop_log

LAG_MS = 60_000


class ReplicatedWorld(PartitionWorld):
    """The owners of a world, and the links between them. `planned`: whose replicas the plan names, in its order."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.cluster = InProcessCluster()
        self.planned: list[str] = []
        self.hosts: dict[str, ReplicaHost] = {}

    async def owner(self, name: str = "ann") -> Owner:
        self.owners = [each for each in self.owners if each.name != name]
        owner = await super().owner(name)
        host = await owner.stack.enter_async_context(ReplicaHost.open(owner.wal, owner.wal_id, clock=self.clock))
        self.hosts[name] = host
        network = self.cluster.join(host)
        owner.stack.callback(self.cluster.leave, host.wal_id)
        owner.replication = ReplicationResources(
            network=network,
            planned_replicas=lambda _: self.wals(*self.planned),
            drop_log=partial(drop_log, host),
            lag_ms=LAG_MS,
            takeover_wait_ms=1_000,
            connect_wait_ms=0,
        )
        if name not in self.planned:
            self.planned.append(name)
        return owner

    async def three(self) -> tuple[Owner, Owner, Owner]:
        return await self.owner("ann"), await self.owner("bob"), await self.owner("carol")

    def wals(self, *names: str) -> tuple[str, ...]:
        """The WAL ids of agents that are alive."""
        found = {owner.name: owner.wal_id for owner in self.owners}
        return tuple(found[name] for name in names if found.get(name) in self.cluster.networks)

    async def kill(self, owner: Owner) -> None:
        """Without warning, and the store has noticed."""
        self.cluster.leave(owner.wal_id)
        await owner.end()


def replicated(replicas: int = 3, min_insync: int = 1) -> PartitionConfig:
    return PartitionConfig(level=QUORUM, replicas=replicas, min_insync=min_insync)


async def open_replicated(
    owner: Owner, config: PartitionConfig | None = None, *, lease: Lease | None = None, which: PartitionId = ORDERS
) -> ReplicatedPartition:
    opened = await open_partition(
        which, lease or await owner.acquire(which), owner.resources(), config=config or replicated()
    )
    assert isinstance(opened, ReplicatedPartition)
    return opened


async def next_epoch(owner: Owner, lease: Lease) -> Lease:
    taken = await retake(owner.store, lease, clock=owner.world.clock, random=owner.world.random)
    assert taken is not None
    return taken


def visible(partition: LeadingPartition, offset: int | None = None) -> list[tuple[int, str]]:
    """(offset, value) of what a reader finds in the tail."""
    start = partition.tail.start if offset is None else offset
    return records(partition.read_tail(start, bytes_max=1 << 20) or [])


def values(found: Sequence[tuple[int, str]]) -> list[str]:
    return [value for _, value in found]
