"""The follower's one tenant: leases of `~groups` go to the groups, all others to the log."""

import asyncio

from holdfast.agent.partition_handler import PartitionLeaseHandler
from holdfast.groups.keys import GROUP_SHARDS_WORKLOAD
from holdfast.groups.lease_handler import GroupShardLeaseHandler
from holdfast.kernel.keys import partition_from_resource
from holdfast.kernel.lease import Lease


class LeaseRouter:
    """Everything one session of an agent serves. Implements `kernel.follower.LeaseHandler`."""

    def __init__(self, log: PartitionLeaseHandler, groups: GroupShardLeaseHandler, *, drain_ms: int) -> None:
        self.log, self.groups, self._drain_ms = log, groups, drain_ms

    async def open(self, lease: Lease) -> None:
        await self._of(lease).open(lease)

    async def drain(self, lease: Lease) -> None:
        await self._of(lease).drain(lease)

    async def resume(self, lease: Lease) -> None:
        await self._of(lease).resume(lease)

    async def close(self, lease: Lease) -> None:
        await self._of(lease).close(lease)

    def retiring(self, whether: bool) -> None:
        """Whether leases that the follower lets go of are kept for `retire`."""
        self.log.retiring = self.groups.retiring = whether

    async def retire(self) -> None:
        """The polite end: write and publish everything, release every lease."""
        await asyncio.gather(self.log.retire(), self.groups.retire(self._drain_ms))

    async def end(self) -> None:
        """However the session ends: let go of what is still held."""
        self.retiring(False)
        for lease in [*self.log.leases.values(), *self.groups.leases.values()]:
            await self.close(lease)

    def _of(self, lease: Lease) -> PartitionLeaseHandler | GroupShardLeaseHandler:
        return self.groups if partition_from_resource(lease.resource).topic == GROUP_SHARDS_WORKLOAD else self.log
