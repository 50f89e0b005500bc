"""The follower's one tenant: leases of `~groups` go to the groups, all others to the log."""

import asyncio

from holdfast.agent.tenant import LogTenant
from holdfast.groups.keys import GROUPS
from holdfast.groups.tenant import GroupTenant
from holdfast.kernel.keys import partition_of
from holdfast.kernel.lease import Lease


class RoutingTenant:
    """Everything one session of an agent serves. Implements `kernel.follower.Tenant`."""

    def __init__(self, log: LogTenant, groups: GroupTenant, *, drain_ms: int) -> None:
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

    def _of(self, lease: Lease) -> LogTenant | GroupTenant:
        return self.groups if partition_of(lease.resource).topic == GROUPS else self.log
