"""Consumer groups for gateways, which use nothing else of this package but its model, keys and errors.

Serves the shards this process leads (none on an API-only node); for others it raises `NotCoordinatorError`, and the gateway
redirects or forwards. Any method may also raise `ShardLoadingError` (retry), `UnavailableError` (nothing happened, retry) and
`GroupRefusedError` (see `errors.GroupRefusal`); `OutcomeUnknownError` from an offset commit: it may have happened, commit again.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from holdfast.contracts.store import Store
from holdfast.groups.errors import GroupRefusal, GroupRefusedError, NotCoordinatorError
from holdfast.groups.keys import GROUP_SHARD, shard_of
from holdfast.groups.lag import lag_by_partition
from holdfast.groups.model import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupState,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeaveResult,
    PartitionLag,
    SyncRequest,
    SyncResult,
)
from holdfast.groups.settings import GroupCounters, GroupSettings
from holdfast.groups.shard import GroupShard
from holdfast.kafka.special_offsets import NO_GENERATION
from holdfast.kernel.shard_count import shard_count
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.types import TopicPartition


class LedShards(Protocol):
    """The shards this process leads."""

    def shard(self, number: int) -> GroupShard | None:
        """The shard if it is led here; None if not. `ShardLoadingError`: it is loading."""
        ...

    def shards(self) -> Collection[GroupShard]:
        """Every shard led here."""
        ...


class GroupService:
    """The groups of one process."""

    def __init__(self, *, store: Store, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings()
        self.counters = GroupCounters()
        self.leading: LedShards | None = None  # set by the agent while it has a session
        self._store = store
        self._shards = 0

    async def coordinator(self, group_id: str) -> int:
        """The shard of a group; `Cluster` knows the agent that leads it. `UnavailableError`: no agent has created the shards."""
        if not self._shards:
            self._shards = await shard_count(self._store, GROUP_SHARD)
        try:
            return shard_of(group_id, self._shards)
        except UnicodeEncodeError:
            raise GroupRefusedError(ascii(group_id), GroupRefusal.INVALID_GROUP_ID) from None

    async def join(self, group_id: str, request: JoinRequest) -> JoinResult:
        """Join the next generation; returns once it begins, which takes as long as the slowest member."""
        return await (await self._shard(group_id)).join(group_id, request)

    async def sync(self, group_id: str, request: SyncRequest) -> SyncResult:
        """The member's assignment, once the leader has sent it and it is durable."""
        return await (await self._shard(group_id)).sync(group_id, request)

    async def heartbeat(
        self, group_id: str, *, member_id: str, generation: int, instance_id: str | None = None
    ) -> None:
        """Renew the member's session. Refused with REBALANCE_IN_PROGRESS when it has to join again."""
        (await self._shard(group_id)).heartbeat(group_id, member_id, generation, instance_id)

    async def leave(self, group_id: str, members: Sequence[LeaveRequest]) -> Sequence[LeaveResult]:
        """Remove members, each on its own."""
        return (await self._shard(group_id)).leave(group_id, members)

    async def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        member_id: str = "",
        generation: int = NO_GENERATION,
        instance_id: str | None = None,
    ) -> Mapping[TopicPartition, HoldfastError | None]:
        """Commit; returns once it is durable, with an error for each partition that was refused (None: committed)."""
        shard = await self._shard(group_id)
        return await shard.commit_offsets(group_id, offsets, member_id, generation, instance_id)

    async def fetch_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """The committed offsets of these partitions, or of all; partitions without one are left out."""
        return (await self._shard(group_id)).fetch_offsets(group_id, partitions)

    async def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, HoldfastError | None]:
        """Delete committed offsets. Refused for topics the group is subscribed to."""
        return await (await self._shard(group_id)).delete_offsets(group_id, partitions)

    async def list(self, states: Collection[GroupState] = ()) -> Sequence[GroupListing]:
        """The groups coordinated here, by id; only those in one of `states`, if any are named."""
        found = [listing for shard in self._led() for listing in shard.list()]
        return sorted((each for each in found if not states or each.state in states), key=lambda each: each.id)

    async def describe(self, group_id: str) -> GroupDescription:
        """Describe a group. Refused with NOT_FOUND."""
        return (await self._shard(group_id)).describe(group_id)

    async def delete(self, group_id: str) -> None:
        """Delete a group and its offsets. Refused with NOT_FOUND or NOT_EMPTY."""
        await (await self._shard(group_id)).delete(group_id)

    async def lag(
        self, group_id: str, end_of: Callable[[TopicPartition], Awaitable[int | None]]
    ) -> Sequence[PartitionLag]:
        """The group's lag by partition; `end_of` returns a high watermark, or None if unknown."""
        return await lag_by_partition(await self.fetch_offsets(group_id), end_of)

    def committed(self) -> Iterator[tuple[str, Mapping[TopicPartition, CommittedOffset]]]:
        """Every group coordinated here with its committed offsets, as they are in memory."""
        for shard in self._led():
            for listing in shard.list():
                yield listing.id, shard.fetch_offsets(listing.id, None)

    async def _shard(self, group_id: str) -> GroupShard:
        number = await self.coordinator(group_id)
        shard = self.leading.shard(number) if self.leading is not None else None
        if shard is None:
            raise NotCoordinatorError(group_id, number)
        return shard

    def _led(self) -> Collection[GroupShard]:
        return self.leading.shards() if self.leading is not None else ()
