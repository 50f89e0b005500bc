"""One shard of the coordinator: the groups of one lease. `group` decides, `shard_offsets` keeps offsets, `writer` writes.

The one rule: no reply is sent that would be wrong if this process died right afterwards. Calls that change assignments or offsets
return once the store has them; a waiting call whose caller goes away is removed from its group's barrier. A group exists until
its deletion is durable, whoever waits for it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from holdfast.contracts.store import Entry, Store
from holdfast.groups.committed_state import CommittedState
from holdfast.groups.description import describe
from holdfast.groups.errors import GroupRefusal, GroupRefusedError, NotCoordinatorError
from holdfast.groups.group import Group, Reply
from holdfast.groups.keys import groups_prefix, offsets_prefix, shard_from_resource
from holdfast.groups.limit_warnings import LimitWarnings
from holdfast.groups.memory import GroupMemory
from holdfast.groups.model import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupState,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeaveResult,
    SyncRequest,
    SyncResult,
)
from holdfast.groups.offset_expiration import TopicIdLookup
from holdfast.groups.records import is_packed, read_group, read_offsets, read_record, unpack_members
from holdfast.groups.settings import GroupCounters, GroupSettings
from holdfast.groups.shard_offsets import OffsetResults, ShardOffsets
from holdfast.groups.timers import DeadlineQueue
from holdfast.groups.unsaved import UnsavedGroups
from holdfast.groups.writer import Deletion, ShardWriter
from holdfast.kernel.lease import Lease
from holdfast.kernel.mirror import scan_all
from holdfast.vocabulary.batching import in_batches
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import LoopTurns, Notify, gather_limited
from holdfast.vocabulary.types import TopicPartition

_log: Final = logging.getLogger(__name__)

_REBALANCE_MIN_MS: Final = 1_000  # shorter ones expire before a client can join again
_SWEEP_SOON_MS: Final = 1_000
_SWEEP_BATCH_MAX: Final = 2_000  # groups and offsets, before other tasks run
_BATCH_MAX: Final = 250  # offsets that are taken in one turn of the event loop
_BATCHES_AT_ONCE: Final = 16
_NAME_CHARS_MAX: Final = 128  # of a client's or instance's name, in a member's id


class GroupShard:
    """The groups of one lease, from `load` to `close`. `notify` is called when its next deadline is earlier."""

    def __init__(
        self,
        lease: Lease,
        *,
        store: Store,
        clock: Clock,
        random: Random,
        settings: GroupSettings,
        counters: GroupCounters,
        unsaved: UnsavedGroups,
        memory: GroupMemory,
        topic_id: TopicIdLookup,
        notify: Notify,
    ) -> None:
        self.lease, self.number = lease, shard_from_resource(lease.resource)
        self.groups: dict[str, Group] = {}
        self.accepting = True
        self._store, self._clock, self._random, self._settings = store, clock, random, settings
        self._counters, self._unsaved, self._memory, self._notify = counters, unsaved, memory, notify
        self._committed = CommittedState(self.number)
        self._warnings = LimitWarnings(clock)
        self._deleting: dict[str, Deletion] = {}
        self._timers = DeadlineQueue()
        self.sweep_at_ms = 0
        self._turns = LoopTurns()
        self.writer = ShardWriter(
            lease,
            self._committed,
            store=store,
            clock=clock,
            random=random,
            settings=settings,
            counters=counters,
            warnings=self._warnings,
            on_settled=self._settle,
            on_written=self._written,
            on_broken=notify.notify,
        )
        self._offsets = ShardOffsets(
            self._committed, self.writer, clock=clock, settings=settings, counters=counters, topic_id=topic_id
        )

    async def load(self) -> None:
        """Read the groups and offsets. Only the holder of the lease writes them."""
        now_ms = self._clock.boot_ms()
        prefix = offsets_prefix(self.number)
        for entry in (await scan_all(self._store, prefix, clock=self._clock, random=self._random)).entries:
            self._committed.load(*read_offsets(entry))
        prefix = groups_prefix(self.number)
        for entry in (await scan_all(self._store, prefix, clock=self._clock, random=self._random)).entries:
            group = await self._read_group(entry, now_ms)
            group.in_store = True
            self.groups[group.id] = group
            self._committed.versions[group.id] = entry.version
        for group_id in self._committed.groups():
            self._adopt(group_id)
        for group in self.groups.values():
            self._timers.set(group.id, group.next_deadline_ms())
            self._memory.put(group.id, group.memory_bytes)
        self.sweep_at_ms = now_ms + round(self._random.jitter(self._settings.sweep_ms))

    async def _read_group(self, entry: Entry, now_ms: int) -> Group:
        record = read_record(entry)
        if is_packed(record):
            record = await asyncio.to_thread(unpack_members, entry, record)
        group = read_group(record, self._settings, now_ms, self._memory)
        if group.state is GroupState.EMPTY and group.empty_since_ms is None:  # its members are about to join again
            group.empty_since_ms = self._clock.now_ms()
        return group

    # Members

    async def join(self, group_id: str, request: JoinRequest) -> JoinResult:
        """See `GroupService.join`. A group that is being deleted is waited for: it stays, or a new one is created."""
        self._check(group_id)
        while (deletion := self._deleting.get(group_id)) is not None:
            await deletion.wait()
            self._check(group_id)
        group = self.groups.get(group_id)
        if group is None:
            if request.member_id:
                raise GroupRefusedError(group_id, GroupRefusal.UNKNOWN_MEMBER)
            self._check_new(group_id)
        self._check_room(group_id, request)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self._settings, self._memory)
        self._counters.joins += 1
        request = replace(request, rebalance_timeout_ms=max(request.rebalance_timeout_ms, _REBALANCE_MIN_MS))
        if request.reason:
            _log.info("group %r: %s joined: %s", group_id, request.member_id or request.client_id, request.reason)
        name = (request.instance_id or request.client_id)[:_NAME_CHARS_MAX]
        new_id = f"{name}-{self._random.token()}"
        reply = await self._wait(group, lambda ticket, now_ms: group.join(request, ticket, now_ms, new_id=new_id))
        assert isinstance(reply, JoinResult)
        return reply

    async def sync(self, group_id: str, request: SyncRequest) -> SyncResult:
        """See `GroupService.sync`."""
        group = self._with_members(group_id)
        reply = await self._wait(group, lambda ticket, now_ms: group.sync(request, ticket, now_ms))
        assert isinstance(reply, SyncResult)
        return reply

    def heartbeat(self, group_id: str, member_id: str, generation: int, instance_id: str | None) -> None:
        """See `GroupService.heartbeat`. It only postpones a deadline, so no timer changes."""
        self._with_members(group_id).heartbeat(member_id, generation, instance_id, self._clock.boot_ms())

    def leave(self, group_id: str, members: Sequence[LeaveRequest]) -> Sequence[LeaveResult]:
        """See `GroupService.leave`."""
        self._check(group_id)
        group = self.groups.get(group_id)
        left = []
        for leaving in members:
            try:
                if group is None:
                    raise GroupRefusedError(group_id, GroupRefusal.UNKNOWN_MEMBER)
                group.leave(leaving, self._clock.boot_ms())
                left.append(LeaveResult(leaving))
            except GroupRefusedError as error:
                left.append(LeaveResult(leaving, error))
        if group is not None:
            self._settle(group)
        return left

    # Offsets

    async def commit_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        member_id: str,
        generation: int,
        instance_id: str | None,
    ) -> OffsetResults:
        """See `GroupService.commit_offsets`. Many are committed in batches: for each, the member has to be one still."""
        if len(offsets) <= _BATCH_MAX:
            return await self._commit_batch(group_id, offsets, member_id, generation, instance_id)

        async def commit(batch: Sequence[TopicPartition]) -> OffsetResults:
            await self._turns.next()
            found = {each: offsets[each] for each in batch}
            return await self._commit_batch(group_id, found, member_id, generation, instance_id)

        batches = await gather_limited(commit, in_batches(offsets, _BATCH_MAX), _BATCHES_AT_ONCE)
        return {partition: error for batch in batches for partition, error in batch.items()}

    async def _commit_batch(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        member_id: str,
        generation: int,
        instance_id: str | None,
    ) -> OffsetResults:
        self._check(group_id, may_be_empty=True)
        group = self.groups.get(group_id)
        if group is not None:
            group.check_commit(member_id, generation, instance_id, self._clock.boot_ms())
        elif generation >= 0:
            raise GroupRefusedError(group_id, GroupRefusal.ILLEGAL_GENERATION)
        else:
            self._check_new(group_id)
        return await self._offsets.commit(group_id, offsets)

    def fetch_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """See `GroupService.fetch_offsets`."""
        self._check(group_id, may_be_empty=True)
        return self._offsets.fetch(group_id, partitions)

    async def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> OffsetResults:
        """See `GroupService.delete_offsets`."""
        self._check(group_id)
        return await self._offsets.delete(self._known(group_id), partitions)

    # Operators

    def list(self) -> Sequence[GroupListing]:
        """Every group of the shard."""
        return [GroupListing(group.id, group.protocol_type, group.state) for group in self.groups.values()]

    def describe(self, group_id: str) -> GroupDescription:
        """See `GroupService.describe`."""
        self._check(group_id, may_be_empty=True)
        return describe(self._known(group_id))

    async def delete(self, group_id: str) -> None:
        """See `GroupService.delete`."""
        self._check(group_id, may_be_empty=True)
        deletion = self._deleting.get(group_id)
        if deletion is None:
            if self._known(group_id).state is not GroupState.EMPTY:
                raise GroupRefusedError(group_id, GroupRefusal.NOT_EMPTY)
            deletion = self._delete(group_id)
        await deletion.wait()
        if deletion.error is not None:
            raise deletion.error

    # Timers, sweeping, closing

    def next_ms(self) -> int | None:
        """When `tick` is due."""
        return self._timers.next_ms()

    def tick(self, now_ms: int) -> None:
        """Handle the timeouts of groups whose deadlines have passed."""
        for name in self._timers.due(now_ms):
            group = self.groups.get(name)
            if group is not None:
                group.tick(now_ms)
                self._settle(group)

    def sweep_soon(self) -> None:
        """A topic may have been deleted. Wait a moment, for often several are."""
        self.sweep_at_ms = min(self.sweep_at_ms, self._clock.boot_ms() + _SWEEP_SOON_MS)

    async def sweep(self, now_ms: int) -> None:
        """If it is due: delete expired offsets (`offset_expiration`) and groups without members and offsets."""
        if now_ms < self.sweep_at_ms:
            return
        self.sweep_at_ms = now_ms + round(self._random.jitter(self._settings.sweep_ms))
        seen, changing = 0, self.writer.changing()
        for group in list(self.groups.values()):
            if seen > _SWEEP_BATCH_MAX:
                await self._clock.sleep_ms(0)
                seen, changing = 0, self.writer.changing()
            if self.writer.broken is not None or not self.accepting:
                return
            if self.groups.get(group.id) is group and group.id not in changing:  # else its committed state is outdated
                seen += 1 + len(self._committed.offsets(group.id))
                await self._sweep_group(group)

    async def _sweep_group(self, group: Group) -> None:
        if await self._offsets.expire(group) and self._is_abandoned(group):
            self._delete(group.id)

    def _is_abandoned(self, group: Group) -> bool:
        """Whether it has had no members for a while: one that timed out just now is about to join again."""
        if group.state is not GroupState.EMPTY or group.pending_members:
            return False
        since_ms = group.empty_since_ms
        return since_ms is None or self._clock.now_ms() - since_ms >= self._settings.sweep_ms

    async def close(self) -> None:
        """Stop at once. Waiting calls get `NotCoordinatorError`."""
        self.accepting = False
        await self.writer.close(NotCoordinatorError("", self.number))
        for group in self.groups.values():
            group.close(NotCoordinatorError(group.id, self.number), self._clock.boot_ms())
            self._deliver_replies(group)
            self._unsaved.discard(group.id)
            self._memory.discard(group.id)
        self.groups.clear()

    # Parts

    def _check(self, group_id: str, *, may_be_empty: bool = False) -> None:
        if not self.accepting:
            raise NotCoordinatorError(group_id, self.number)
        if not group_id and not may_be_empty:
            raise GroupRefusedError(group_id, GroupRefusal.INVALID_GROUP_ID)

    def _check_new(self, group_id: str) -> None:
        if len(group_id) > self._settings.id_chars_max:
            raise GroupRefusedError(group_id, GroupRefusal.INVALID_GROUP_ID)

    def _check_room(self, group_id: str, request: JoinRequest) -> None:
        if not self._committed.knows(group_id):
            try:
                self._unsaved.check_room(group_id, self._clock.boot_ms(), new_member=not request.member_id)
            except UnavailableError:
                self._counters.joins_refused += 1
                raise

    def _with_members(self, group_id: str) -> Group:
        self._check(group_id)
        group = self.groups.get(group_id)
        if group is None:
            raise GroupRefusedError(group_id, GroupRefusal.UNKNOWN_MEMBER)
        return group

    def _known(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise GroupRefusedError(group_id, GroupRefusal.NOT_FOUND)
        return group

    def _adopt(self, group_id: str) -> None:
        """A group without members exists once it has offsets."""
        if group_id not in self.groups and self._committed.knows(group_id):
            group = self.groups[group_id] = Group(group_id, self._settings, self._memory)
            group.in_store = True

    def _delete(self, group_id: str) -> Deletion:
        deletion = self._deleting[group_id] = self.writer.delete(group_id)
        return deletion

    def _written(self, group_id: str) -> None:
        """Writes of a group are done or failed: if it was deleted, it is gone; if it has offsets, it exists."""
        deletion = self._deleting.get(group_id)
        if deletion is not None and deletion.done:
            del self._deleting[group_id]
            if deletion.error is None and group_id in self.groups:
                self._drop(group_id)
        self._adopt(group_id)
        known = self._committed.knows(group_id)
        if known:
            self._unsaved.discard(group_id)
        if (group := self.groups.get(group_id)) is not None:
            group.in_store = known

    def _evict(self, group_id: str) -> None:
        """Drop a group that is not in the store, unless it is being saved: its members join again."""
        group = self.groups.get(group_id)
        if group is None or group_id in self.writer.changing():
            return
        self._counters.groups_evicted += 1
        group.close(
            UnavailableError("group coordinator", "too many groups are not in the store"), self._clock.boot_ms()
        )
        self._deliver_replies(group)
        self._drop(group_id)

    def _drop(self, group_id: str) -> None:
        self.groups.pop(group_id).state = GroupState.DEAD
        self._timers.discard(group_id)
        self._unsaved.discard(group_id)
        self._memory.discard(group_id)

    async def _wait(self, group: Group, act: Callable[[asyncio.Future[Reply], int], None]) -> Reply:
        ticket: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        try:
            act(ticket, self._clock.boot_ms())
        except GroupRefusedError as error:
            if error.limit is not None:
                self._counters.joins_refused += 1
                self._warnings.warn(group.id, error.limit, "a request was refused")
            raise
        finally:
            self._settle(group)
        try:
            return await ticket
        except asyncio.CancelledError:
            group.abandon(ticket, self._clock.boot_ms())
            self._settle(group)
            raise

    def _settle(self, group: Group) -> None:
        """After every call to a group: save it, deliver replies, set its timer, drop it if it is unused."""
        if group.state is GroupState.EMPTY and group.generation and group.empty_since_ms is None:
            group.empty_since_ms = self._clock.now_ms()
        if group.take_change():
            if self.writer.broken is None:
                self.writer.save(group)
            else:
                error = UnavailableError("group coordinator", str(self.writer.broken))
                group.not_saved(error, self._clock.boot_ms())
        self._deliver_replies(group)
        self._count(group)
        if self.groups.get(group.id) is not group:  # deleted, or the shard is closed
            return
        self._memory.put(group.id, group.memory_bytes)
        if not self._committed.knows(group.id):
            if group.state is GroupState.EMPTY and not group.generation and not group.pending_members:
                self._drop(group.id)
                return
            self._unsaved.put(group, self._clock.boot_ms(), self._evict)
        else:
            self._unsaved.discard(group.id)
        if self._timers.set(group.id, group.next_deadline_ms()):
            self._notify.notify()

    def _count(self, group: Group) -> None:
        if group.expired:
            _log.info("group %r: %d members removed: session timeout", group.id, group.expired)
        self._counters.rebalances += group.begun
        self._counters.members_expired += group.expired
        group.begun = group.expired = 0

    def _deliver_replies(self, group: Group) -> None:
        for ticket, reply in group.take_replies():
            assert isinstance(ticket, asyncio.Future)
            if not ticket.done():
                if isinstance(reply, HoldfastError):
                    ticket.set_exception(reply)
                else:
                    ticket.set_result(reply)
