"""A group: its members, its generation and the calls that wait. Decisions only: no I/O, no clock, no randomness.

           join                     all joined, or timeout               the leader's assignment is saved
    Empty ─────▶ PreparingRebalance ─────────────────────▶ CompletingRebalance ─────────────────────▶ Stable
      ▲                ▲      │ no member is left                  │                                   │
      └────────────────┼──────┘                                    │                                   │
                       └── a member joins, leaves, or its session times out ───────────────────────────┘

A call is refused at once (raised) or waits for its reply as a ticket. Duties of the caller, in order, after every call: if
`take_change()`, save the group (`records.group_record`) and report with `saved` or `not_saved`; deliver `take_replies()`; call
`tick` at `next_deadline_ms()`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.groups.admission import check_assignments, check_join
from holdfast.groups.errors import GroupRefusal, GroupRefusedError, LimitReached
from holdfast.groups.member import GroupMember, Ticket, member_from_request
from holdfast.groups.memory import GroupMemory
from holdfast.groups.model import (
    GroupState,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    MemberMetadata,
    SyncRequest,
    SyncResult,
)
from holdfast.groups.protocol_selection import select_protocol
from holdfast.groups.settings import GroupSettings
from holdfast.groups.shared_metadata import SharedMetadata
from holdfast.kafka.consumer_protocol import same_subscription
from holdfast.vocabulary.errors import HoldfastError

Reply = JoinResult | SyncResult | HoldfastError
PendingReply = tuple[Ticket, Reply]

# librdkafka tells its application of a failed JoinGroup alone, and tries a failed SyncGroup again at once.
_TOO_LARGE_PAUSE_MS: Final = 10_000


class Group:
    """One group. Times are on the boot clock, except `empty_since_ms`, which outlives the process.

    `memory`: of all groups of the process, in which the caller counts `memory_bytes`.
    """

    def __init__(self, group_id: str, settings: GroupSettings, memory: GroupMemory | None = None) -> None:
        self.id, self.settings = group_id, settings
        self.memory = memory or GroupMemory(settings.memory_bytes_max)
        self.shared = SharedMetadata()
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = self.protocol = self.leader = ""
        self.members: dict[str, GroupMember] = {}
        self.instances: dict[str, str] = {}  # instance id → member id
        self.pending_members: dict[str, int] = {}  # assigned ids that have not joined yet → their deadline
        self.empty_since_ms: int | None = None
        self.in_store = False  # with a record or offsets: set by the caller
        self.changes = 0
        self._taken = 0  # of the changes, those that `take_change` has returned
        self.begun = self.expired = 0  # generations begun, members timed out: counted and reset by the caller
        self._replies: list[PendingReply] = []
        self._join_by_ms: int | None = None
        self._initial_rebalance_until_ms: int | None = None  # set while a new group waits for more members: its limit
        self._new_member_added = False  # since the initial delay was last extended
        self._sync_by_ms: int | None = None
        self._assigned: dict[str, bytes] | None = None  # the leader's assignments, until they are saved
        self._assigned_at = 0
        self._too_large: LimitReached | None = None  # why the last assignments were refused
        self._too_large_until_ms = 0

    # Joining

    def join(self, request: JoinRequest, ticket: Ticket, now_ms: int, *, new_id: str) -> None:
        """Join the next generation; `new_id` is the member's id if it has none."""
        self._check_join(request, now_ms)
        if request.member_id:
            self._rejoin(request, ticket, now_ms)
        elif request.instance_id is not None and request.instance_id in self.instances:
            self._replace(self.members[self.instances[request.instance_id]], request, ticket, now_ms, new_id=new_id)
        elif request.instance_id is None and request.require_known_member_id:
            if len(self.pending_members) >= self.settings.size_max:
                raise self._refused(GroupRefusal.GROUP_FULL)
            self.pending_members[new_id] = now_ms + min(request.session_timeout_ms, self.settings.pending_member_ms)
            raise GroupRefusedError(self.id, GroupRefusal.MEMBER_ID_REQUIRED, new_id)
        else:
            self._add(new_id, request, ticket, now_ms)

    def _check_join(self, request: JoinRequest, now_ms: int) -> None:
        member = self.members.get(request.member_id)
        if self._too_large is not None and now_ms < self._too_large_until_ms:
            if member is not None:
                member.touch(now_ms)
            raise GroupRefusedError(self.id, GroupRefusal.GROUP_FULL, limit=self._too_large)
        try:
            check_join(self, request)
        except GroupRefusedError as error:
            if error.limit is not None and member is not None and member.instance_id == request.instance_id:
                self._remove_member(member, now_ms)  # the others would wait for it
                self._rebalance(now_ms)
            raise

    def _rejoin(self, request: JoinRequest, ticket: Ticket, now_ms: int) -> None:
        if request.member_id in self.pending_members and request.instance_id is None:
            del self.pending_members[request.member_id]
            self._add(request.member_id, request, ticket, now_ms)
            return
        member = self._member(request.member_id, request.instance_id)
        settled = self.state is GroupState.COMPLETING or (self.state is GroupState.STABLE and member.id != self.leader)
        same = member.protocols == request.protocols
        member.update(request, self.shared)
        member.touch(now_ms)
        if settled and same:
            # Its last reply was lost: nothing has changed, so no rebalance.
            self._replies.append((ticket, self._joined(member)))
            return
        self._await_join(member, ticket, now_ms)
        self._rebalance(now_ms)

    def _replace(self, old: GroupMember, request: JoinRequest, ticket: Ticket, now_ms: int, *, new_id: str) -> None:
        """A static member joins without its old id: it replaces the old member, which is fenced."""
        fenced = GroupRefusedError(self.id, GroupRefusal.FENCED_INSTANCE)
        self._reply_join(old, fenced, now_ms)
        self._reply_sync(old, fenced, now_ms)
        before = old.metadata(self.protocol)
        self.members = {new_id if key == old.id else key: member for key, member in self.members.items()}
        self.instances[str(old.instance_id)] = new_id
        if self.leader == old.id:
            self.leader = new_id
        old.id = new_id
        old.update(request, self.shared)
        old.touch(now_ms)
        self._await_join(old, ticket, now_ms)
        if (
            self.state is GroupState.STABLE
            and select_protocol(self.members.values()) == self.protocol
            and same_subscription(before, old.metadata(self.protocol))
        ):
            self.changes += 1  # replied to once its new id is saved
            old.replaced_at = self.changes
        else:
            self._rebalance(now_ms)

    def _add(self, member_id: str, request: JoinRequest, ticket: Ticket, now_ms: int) -> None:
        member = member_from_request(member_id, request, self.shared)
        member.id_known = member_id == request.member_id
        member.touch(now_ms)
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members[member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member_id
        self._new_member_added = True
        self._await_join(member, ticket, now_ms)
        self._rebalance(now_ms)

    def _await_join(self, member: GroupMember, ticket: Ticket, now_ms: int) -> None:
        # If it calls twice, the last call counts.
        self._reply_join(member, self._refused(GroupRefusal.REBALANCE_IN_PROGRESS), now_ms)
        member.joining = ticket
        if not self.leader:
            self.leader = member.id

    # The two barriers

    def _rebalance(self, now_ms: int) -> None:
        """Begin a rebalance unless there is one; complete it if all members have joined."""
        if self.state is not GroupState.PREPARING:
            timeout_ms = self._rebalance_timeout_ms()
            if self.state is GroupState.EMPTY:
                self._initial_rebalance_until_ms = now_ms + timeout_ms
                self._join_by_ms = now_ms + min(self.settings.initial_delay_ms, timeout_ms)
                self._new_member_added = False
            else:
                self._join_by_ms = now_ms + timeout_ms
            for member in self.members.values():
                self._reply_sync(member, self._refused(GroupRefusal.REBALANCE_IN_PROGRESS), now_ms)
            self.state, self._sync_by_ms, self._assigned, self.empty_since_ms = GroupState.PREPARING, None, None, None
        self._complete_join_if_ready(now_ms)

    def _complete_join_if_ready(self, now_ms: int) -> None:
        if self.state is not GroupState.PREPARING:
            return
        all_joined = not self.pending_members and all(member.joining is not None for member in self.members.values())
        if not self.members or (all_joined and self._initial_rebalance_until_ms is None):
            self._begin_generation(now_ms)

    def _on_join_timeout(self, now_ms: int) -> None:
        if (
            self._initial_rebalance_until_ms is not None
            and self._new_member_added
            and now_ms < self._initial_rebalance_until_ms
        ):
            self._new_member_added = False
            self._join_by_ms = min(now_ms + self.settings.initial_delay_ms, self._initial_rebalance_until_ms)
            return
        for member in list(self.members.values()):
            if member.joining is None and member.instance_id is None:
                self._remove_member(member, now_ms)
        if self.members and not any(member.joining is not None for member in self.members.values()):
            self._join_by_ms = now_ms + self._rebalance_timeout_ms()  # absent static members stay for their sessions
            return
        self._begin_generation(now_ms)

    def _begin_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.begun += 1
        self._join_by_ms = self._initial_rebalance_until_ms = None
        if not self.members:
            self.state, self.protocol, self.leader = GroupState.EMPTY, "", ""
            self.changes += 1
            return
        leader = self.members.get(self.leader)
        if leader is None or leader.joining is None:
            self.leader = next(member.id for member in self.members.values() if member.joining is not None)
        self.protocol = select_protocol(self.members.values())
        self.state = GroupState.COMPLETING
        self._sync_by_ms = now_ms + self._rebalance_timeout_ms()
        for member in self.members.values():
            member.synced, member.replaced_at = False, 0
            if member.joining is not None:
                self._reply_join(member, self._joined(member), now_ms)

    def sync(self, request: SyncRequest, ticket: Ticket, now_ms: int) -> None:
        """Wait for the member's assignment; the leader sends those of all, and all get theirs once they are saved."""
        member = self._member(request.member_id, request.instance_id)
        if request.generation != self.generation:
            raise self._refused(GroupRefusal.ILLEGAL_GENERATION)
        if request.protocol_type not in (None, self.protocol_type) or request.protocol not in (None, self.protocol):
            raise self._refused(GroupRefusal.INCONSISTENT_PROTOCOL)
        if self.state is GroupState.PREPARING:
            raise self._refused(GroupRefusal.REBALANCE_IN_PROGRESS)
        member.touch(now_ms)
        if self.state is GroupState.STABLE:
            member.synced = True
            self._replies.append((ticket, self._synced(member)))
            return
        if member.id == self.leader and self._assigned is None:
            assigned = {each: bytes(request.assignments.get(each, b"")) for each in self.members}
            self._check_assignments(assigned.values(), now_ms)
            self.changes += 1
            self._assigned, self._assigned_at = assigned, self.changes
        # If it calls twice, the last call counts.
        self._reply_sync(member, self._refused(GroupRefusal.REBALANCE_IN_PROGRESS), now_ms)
        member.syncing = ticket
        member.synced = True

    def _check_assignments(self, assignments: Iterable[bytes], now_ms: int) -> None:
        try:
            check_assignments(self, assignments)
        except GroupRefusedError as error:
            self._too_large, self._too_large_until_ms = error.limit, now_ms + _TOO_LARGE_PAUSE_MS
            for member in self.members.values():
                self._reply_sync(member, error, now_ms)
            raise
        self._too_large = None

    def saved(self, change: int, now_ms: int) -> None:
        """Everything up to this change is durable: calls that waited for it get their replies."""
        if self.state is GroupState.COMPLETING and self._assigned is not None and self._assigned_at <= change:
            self.state = GroupState.STABLE
            for member in self.members.values():
                member.assignment = self._assigned.get(member.id, b"")
            self._assigned = None
            for member in self.members.values():
                self._reply_sync(member, self._synced(member), now_ms)
        if self.state is GroupState.STABLE:
            for member in self.members.values():
                if 0 < member.replaced_at <= change:
                    member.replaced_at = 0
                    self._reply_join(member, self._joined(member, replaced=True), now_ms)

    def not_saved(self, error: HoldfastError, now_ms: int) -> None:
        """Saving failed: calls that waited for it get the error and may retry."""
        if self._assigned is not None:
            self._assigned = None
            self._sync_by_ms = now_ms + self._rebalance_timeout_ms()
            for member in self.members.values():
                member.synced = False
                self._reply_sync(member, error, now_ms)
        if self.state is GroupState.STABLE:
            for member in self.members.values():
                if member.replaced_at:
                    member.replaced_at = 0
                    self._reply_join(member, error, now_ms)

    # Heartbeats, leaving, timeouts

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None, now_ms: int) -> None:
        """Renew the member's session; refused if it has to join again."""
        member = self._member(member_id, instance_id)
        if generation != self.generation:
            raise self._refused(GroupRefusal.ILLEGAL_GENERATION)
        member.touch(now_ms)
        if self.state is GroupState.PREPARING:
            raise self._refused(GroupRefusal.REBALANCE_IN_PROGRESS)

    def check_commit(self, member_id: str, generation: int, instance_id: str | None, now_ms: int) -> None:
        """Refuse a commit unless it is by a member of this generation, or by a non-member while the group is empty."""
        if not self.members and generation < 0:
            return
        if generation < 0 and not member_id and instance_id is None:
            raise self._refused(GroupRefusal.UNKNOWN_MEMBER)
        member = self._member(member_id, instance_id)
        if generation != self.generation:
            raise self._refused(GroupRefusal.ILLEGAL_GENERATION)
        member.touch(now_ms)
        if self.state is GroupState.COMPLETING:
            # It has no assignment in this generation yet.
            raise self._refused(GroupRefusal.REBALANCE_IN_PROGRESS)

    def leave(self, leaving: LeaveRequest, now_ms: int) -> None:
        """Remove a member, or an assigned id that has not joined."""
        if leaving.instance_id is None and self.pending_members.pop(leaving.member_id, None) is not None:
            self._complete_join_if_ready(now_ms)
            return
        if leaving.instance_id is not None and not leaving.member_id:
            member = self._member(self.instances.get(leaving.instance_id, ""), leaving.instance_id)
        else:
            member = self._member(leaving.member_id, leaving.instance_id)
        self._remove_member(member, now_ms)
        self._rebalance(now_ms)

    def abandon(self, ticket: Ticket, now_ms: int) -> None:
        """The caller that waited with this ticket is gone (a broken connection): its session goes on until it times out.

        A member that never got its id is removed at once.
        """
        for member in self.members.values():
            if member.joining is ticket:
                member.joining = None
                member.touch(now_ms)
                if not member.id_known and member.instance_id is None:  # no client knows this id
                    self._remove_member(member, now_ms)
                    self._rebalance(now_ms)
                return
            if member.syncing is ticket:
                member.syncing = None
                member.touch(now_ms)

    def tick(self, now_ms: int) -> None:
        """Handle timeouts: of sessions, of joining and of syncing."""
        self.pending_members = {each: until_ms for each, until_ms in self.pending_members.items() if now_ms < until_ms}
        timed_out = [m for m in self.members.values() if not m.waiting and m.deadline_ms <= now_ms]
        if self._sync_by_ms is not None and self._sync_by_ms <= now_ms:
            self._sync_by_ms = None
            timed_out += [member for member in self.members.values() if not member.synced and member not in timed_out]
        for member in timed_out:
            self._remove_member(member, now_ms)
            self.expired += 1
        if timed_out:
            self._rebalance(now_ms)
        self._complete_join_if_ready(now_ms)
        if self._join_by_ms is not None and self._join_by_ms <= now_ms:
            self._on_join_timeout(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `tick` is due next, unless a call comes before."""
        times = [member.deadline_ms for member in self.members.values() if not member.waiting]
        times += self.pending_members.values()
        times += [each for each in (self._join_by_ms, self._sync_by_ms) if each is not None]
        return min(times, default=None)

    def close(self, error: HoldfastError, now_ms: int) -> None:
        """Fail every waiting call: this coordinator is gone."""
        for member in self.members.values():
            self._reply_join(member, error, now_ms)
            self._reply_sync(member, error, now_ms)

    def take_replies(self) -> Sequence[PendingReply]:
        """The replies to waiting calls, each once."""
        replies, self._replies = self._replies, []
        return replies

    def take_change(self) -> bool:
        """Whether there are changes to save since the last call."""
        new, self._taken = self.changes > self._taken, self.changes
        return new

    @property
    def assignments(self) -> dict[str, bytes] | None:
        """The assignments to save, by member; None while there are none."""
        if self.state is GroupState.STABLE:
            return {member.id: member.assignment for member in self.members.values()}
        return self._assigned if self.state is GroupState.COMPLETING else None

    @property
    def memory_bytes(self) -> int:
        """What its members sent, as it is kept."""
        members = sum(member.own_bytes + len(member.assignment) for member in self.members.values())
        return self.shared.size_bytes + members + sum(map(len, (self._assigned or {}).values()))

    # Parts

    def _member(self, member_id: str, instance_id: str | None) -> GroupMember:
        if instance_id is not None and self.instances.get(instance_id, member_id) != member_id:
            raise self._refused(GroupRefusal.FENCED_INSTANCE)
        member = self.members.get(member_id)
        if member is None or (instance_id is not None and instance_id not in self.instances):
            raise self._refused(GroupRefusal.UNKNOWN_MEMBER)
        return member

    def _remove_member(self, member: GroupMember, now_ms: int) -> None:
        unknown = self._refused(GroupRefusal.UNKNOWN_MEMBER)
        self._reply_join(member, unknown, now_ms)
        self._reply_sync(member, unknown, now_ms)
        del self.members[member.id]
        self.shared.release(member.protocols)
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.leader == member.id:
            self.leader = next(iter(self.members), "")

    def _reply_join(self, member: GroupMember, reply: Reply, now_ms: int) -> None:
        if member.joining is not None:
            self._replies.append((member.joining, reply))
            member.joining = None
            member.id_known = True
            member.touch(now_ms)  # a waiting member is alive

    def _reply_sync(self, member: GroupMember, reply: Reply, now_ms: int) -> None:
        if member.syncing is not None:
            self._replies.append((member.syncing, reply))
            member.syncing = None
            member.touch(now_ms)

    def _joined(self, member: GroupMember, *, replaced: bool = False) -> JoinResult:
        """The current generation, for this member."""
        leads = member.id == self.leader
        # A replaced leader must not assign again, for no other member joins: it has to skip, or must not learn that it leads.
        listed = leads and (not replaced or member.supports_skipping_assignment)
        return JoinResult(
            member_id=member.id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader if listed or not leads else "",
            members=tuple(
                MemberMetadata(each.id, each.instance_id, each.metadata(self.protocol))
                for each in self.members.values()
            )
            if listed
            else (),
            skip_assignment=leads and replaced and member.supports_skipping_assignment,
        )

    def _synced(self, member: GroupMember) -> SyncResult:
        return SyncResult(self.protocol_type, self.protocol, member.assignment)

    def _rebalance_timeout_ms(self) -> int:
        timeout_ms = max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
        return timeout_ms if self.in_store else min(timeout_ms, self.settings.unsaved_sync_ms)

    def _refused(self, refusal: GroupRefusal) -> GroupRefusedError:
        return GroupRefusedError(self.id, refusal)
