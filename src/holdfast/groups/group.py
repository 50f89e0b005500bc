"""A group: who is in it, which generation it is in, who waits for what. Decisions only: no I/O, no clock, no chance.

           join                     all joined, or time is up            the leader's assignment is saved
    Empty ─────▶ PreparingRebalance ─────────────────────▶ CompletingRebalance ─────────────────────▶ Stable
      ▲                ▲      │ nobody is left                     │                                   │
      └────────────────┼──────┘                                    │                                   │
                       └── a member joins, leaves, or is not heard of ─────────────────────────────────┘

A call is refused at once (raised) or waits as a ticket for its answer. Duties of the caller, in order, after every call: if
`take_change()`, save the group (`records.write_group`) and report with `saved` or `not_saved`; hand out `take_answers()`; call
`tick` at `next_deadline_ms()`.
"""

from collections.abc import Sequence

from holdfast.groups.admission import assignments_fit, check_join
from holdfast.groups.errors import GroupRefusal, GroupRefusedError
from holdfast.groups.member import GroupMember, Ticket, member_from_request
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
from holdfast.kafka.consumer_protocol import same_subscription
from holdfast.vocabulary.errors import HoldfastError

Reply = JoinResult | SyncResult | HoldfastError
PendingReply = tuple[Ticket, Reply]


class Group:
    """One group. Times are on the boot clock, except `empty_since_ms`, which outlives the process."""

    def __init__(self, group_id: str, settings: GroupSettings) -> None:
        self.id, self.settings = group_id, settings
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = self.protocol = self.leader = ""
        self.members: dict[str, GroupMember] = {}
        self.instances: dict[str, str] = {}  # instance id → member id
        self.pending_members: dict[
            str, int
        ] = {}  # ids that were given out and have not joined yet → until when they may
        self.empty_since_ms: int | None = None
        self.changes = 0
        self._handed_out = 0  # of the changes, those the caller knows of
        self.begun = self.expired = 0  # generations begun, members not heard of any more: to be counted and set to 0
        self._answers: list[PendingReply] = []
        self._join_by_ms: int | None = None
        self._initial_rebalance_until_ms: int | None = (
            None  # set while an empty group waits for company: not beyond this
        )
        self._new_member_added = False  # somebody came since the last look
        self._sync_by_ms: int | None = None
        self._assigned: dict[str, bytes] | None = None  # what the leader brought, until it is saved
        self._assigned_at = 0

    # Joining

    def join(self, ask: JoinRequest, ticket: Ticket, now_ms: int, *, new_id: str) -> None:
        """A member wants to be in the next generation; `new_id` is its id if it has none."""
        check_join(self, ask)
        if ask.member_id:
            self._rejoin(ask, ticket, now_ms)
        elif ask.instance_id is not None and ask.instance_id in self.instances:
            self._replace(self.members[self.instances[ask.instance_id]], ask, ticket, now_ms, new_id=new_id)
        elif ask.instance_id is None and ask.require_known_member_id:
            if len(self.pending_members) >= self.settings.size_max:
                raise self._refused(GroupRefusal.GROUP_FULL)
            self.pending_members[new_id] = now_ms + ask.session_timeout_ms
            raise GroupRefusedError(self.id, GroupRefusal.MEMBER_ID_REQUIRED, new_id)
        else:
            self._add(new_id, ask, ticket, now_ms)

    def _rejoin(self, ask: JoinRequest, ticket: Ticket, now_ms: int) -> None:
        if ask.member_id in self.pending_members and ask.instance_id is None:
            del self.pending_members[ask.member_id]
            self._add(ask.member_id, ask, ticket, now_ms)
            return
        member = self._member(ask.member_id, ask.instance_id)
        settled = self.state is GroupState.COMPLETING or (self.state is GroupState.STABLE and member.id != self.leader)
        same = member.protocols == ask.protocols
        member.update(ask)
        member.touch(now_ms)
        if settled and same:
            # It did not hear the answer, or asks again: nothing has changed, so that nobody else is disturbed.
            self._answers.append((ticket, self._joined(member)))
            return
        self._await_join(member, ticket, now_ms)
        self._rebalance(now_ms)

    def _replace(self, old: GroupMember, ask: JoinRequest, ticket: Ticket, now_ms: int, *, new_id: str) -> None:
        """A static member is back without its old id: it takes the old one's place, and the old one is fenced."""
        fenced = GroupRefusedError(self.id, GroupRefusal.FENCED_INSTANCE)
        self._answer_join(old, fenced, now_ms)
        self._answer_sync(old, fenced, now_ms)
        before = old.metadata(self.protocol)
        self.members = {new_id if key == old.id else key: member for key, member in self.members.items()}
        self.instances[str(old.instance_id)] = new_id
        if self.leader == old.id:
            self.leader = new_id
        old.id = new_id
        old.update(ask)
        old.touch(now_ms)
        self._await_join(old, ticket, now_ms)
        if (
            self.state is GroupState.STABLE
            and select_protocol(self.members.values()) == self.protocol
            and same_subscription(before, old.metadata(self.protocol))
        ):
            self.changes += 1  # answered once the store knows its new id
            old.replaced_at = self.changes
        else:
            self._rebalance(now_ms)

    def _add(self, member_id: str, ask: JoinRequest, ticket: Ticket, now_ms: int) -> None:
        member = member_from_request(member_id, ask)
        member.id_known = member_id == ask.member_id
        member.touch(now_ms)
        if not self.members:
            self.protocol_type = ask.protocol_type
        self.members[member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member_id
        self._new_member_added = True
        self._await_join(member, ticket, now_ms)
        self._rebalance(now_ms)

    def _await_join(self, member: GroupMember, ticket: Ticket, now_ms: int) -> None:
        # If it asks twice, the last call counts.
        self._answer_join(member, self._refused(GroupRefusal.REBALANCE_IN_PROGRESS), now_ms)
        member.joining = ticket
        if not self.leader:
            self.leader = member.id

    # The two barriers

    def _rebalance(self, now_ms: int) -> None:
        """Begin a rebalance unless one is under way; end it if everybody is there."""
        if self.state is not GroupState.PREPARING:
            patience_ms = self._rebalance_timeout_ms()
            if self.state is GroupState.EMPTY:
                self._initial_rebalance_until_ms = now_ms + patience_ms
                self._join_by_ms = now_ms + min(self.settings.initial_delay_ms, patience_ms)
                self._new_member_added = False
            else:
                self._join_by_ms = now_ms + patience_ms
            for member in self.members.values():
                self._answer_sync(member, self._refused(GroupRefusal.REBALANCE_IN_PROGRESS), now_ms)
            self.state, self._sync_by_ms, self._assigned, self.empty_since_ms = GroupState.PREPARING, None, None, None
        self._complete_join_if_ready(now_ms)

    def _complete_join_if_ready(self, now_ms: int) -> None:
        if self.state is not GroupState.PREPARING:
            return
        everybody = not self.pending_members and all(member.joining is not None for member in self.members.values())
        if not self.members or (everybody and self._initial_rebalance_until_ms is None):
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
            self._join_by_ms = now_ms + self._rebalance_timeout_ms()  # static members that are away keep their places
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
                self._answer_join(member, self._joined(member), now_ms)

    def sync(self, ask: SyncRequest, ticket: Ticket, now_ms: int) -> None:
        """A member asks for its assignment; the leader brings everybody's, and all are answered once that is saved."""
        member = self._member(ask.member_id, ask.instance_id)
        if ask.generation != self.generation:
            raise self._refused(GroupRefusal.ILLEGAL_GENERATION)
        if ask.protocol_type not in (None, self.protocol_type) or ask.protocol not in (None, self.protocol):
            raise self._refused(GroupRefusal.INCONSISTENT_PROTOCOL)
        if self.state is GroupState.PREPARING:
            raise self._refused(GroupRefusal.REBALANCE_IN_PROGRESS)
        member.touch(now_ms)
        if self.state is GroupState.STABLE:
            member.synced = True
            self._answers.append((ticket, self._synced(member)))
            return
        if member.id == self.leader and self._assigned is None:
            assigned = {each: bytes(ask.assignments.get(each, b"")) for each in self.members}
            if not assignments_fit(self, assigned.values()):
                raise self._refused(GroupRefusal.TOO_LARGE)
            self.changes += 1
            self._assigned, self._assigned_at = assigned, self.changes
        # If it asks twice, the last call counts.
        self._answer_sync(member, self._refused(GroupRefusal.REBALANCE_IN_PROGRESS), now_ms)
        member.syncing = ticket
        member.synced = True

    def saved(self, change: int, now_ms: int) -> None:
        """Everything up to this change is durable: whoever waited for it is told."""
        if self.state is GroupState.COMPLETING and self._assigned is not None and self._assigned_at <= change:
            self.state = GroupState.STABLE
            for member in self.members.values():
                member.assignment = self._assigned.get(member.id, b"")
            self._assigned = None
            for member in self.members.values():
                self._answer_sync(member, self._synced(member), now_ms)
        if self.state is GroupState.STABLE:
            for member in self.members.values():
                if 0 < member.replaced_at <= change:
                    member.replaced_at = 0
                    self._answer_join(member, self._joined(member, replaced=True), now_ms)

    def not_saved(self, error: HoldfastError, now_ms: int) -> None:
        """The store did not take it: whoever waited for it is told, and may try again."""
        if self._assigned is not None:
            self._assigned = None
            self._sync_by_ms = now_ms + self._rebalance_timeout_ms()
            for member in self.members.values():
                member.synced = False
                self._answer_sync(member, error, now_ms)
        if self.state is GroupState.STABLE:
            for member in self.members.values():
                if member.replaced_at:
                    member.replaced_at = 0
                    self._answer_join(member, error, now_ms)

    # Staying and going

    def heartbeat(self, member_id: str, generation: int, instance_id: str | None, now_ms: int) -> None:
        """The member is alive; refused if it has to join again."""
        member = self._member(member_id, instance_id)
        if generation != self.generation:
            raise self._refused(GroupRefusal.ILLEGAL_GENERATION)
        member.touch(now_ms)
        if self.state is GroupState.PREPARING:
            raise self._refused(GroupRefusal.REBALANCE_IN_PROGRESS)

    def check_commit(self, member_id: str, generation: int, instance_id: str | None, now_ms: int) -> None:
        """Whether these may commit offsets: members of this generation; anybody without a membership while there are none."""
        if not self.members and generation < 0:
            return
        if generation < 0 and not member_id and instance_id is None:
            raise self._refused(GroupRefusal.UNKNOWN_MEMBER)
        member = self._member(member_id, instance_id)
        if generation != self.generation:
            raise self._refused(GroupRefusal.ILLEGAL_GENERATION)
        member.touch(now_ms)
        if self.state is GroupState.COMPLETING:
            raise self._refused(
                GroupRefusal.REBALANCE_IN_PROGRESS
            )  # it knows of a generation in which it has nothing yet

    def leave(self, leaving: LeaveRequest, now_ms: int) -> None:
        """Remove a member, or an id that was given out."""
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
        """Whoever waited with this ticket has gone away (a broken connection): it is alive for a session timeout more.

        Unless it never learned its id: then it is gone.
        """
        for member in self.members.values():
            if member.joining is ticket:
                member.joining = None
                member.touch(now_ms)
                if not member.id_known and member.instance_id is None:  # nobody could ever come back under this id
                    self._remove_member(member, now_ms)
                    self._rebalance(now_ms)
                return
            if member.syncing is ticket:
                member.syncing = None
                member.touch(now_ms)

    def tick(self, now_ms: int) -> None:
        """Do what time asks for: forget the silent, end a barrier whose time is up."""
        self.pending_members = {each: until_ms for each, until_ms in self.pending_members.items() if now_ms < until_ms}
        silent = [m for m in self.members.values() if not m.waiting and m.deadline_ms <= now_ms]
        if self._sync_by_ms is not None and self._sync_by_ms <= now_ms:
            self._sync_by_ms = None
            silent += [member for member in self.members.values() if not member.synced and member not in silent]
        for member in silent:
            self._remove_member(member, now_ms)
            self.expired += 1
        if silent:
            self._rebalance(now_ms)
        self._complete_join_if_ready(now_ms)
        if self._join_by_ms is not None and self._join_by_ms <= now_ms:
            self._on_join_timeout(now_ms)

    def next_deadline_ms(self) -> int | None:
        """When `tick` is due next, if nothing happens before."""
        times = [member.deadline_ms for member in self.members.values() if not member.waiting]
        times += self.pending_members.values()
        times += [each for each in (self._join_by_ms, self._sync_by_ms) if each is not None]
        return min(times, default=None)

    def close(self, error: HoldfastError, now_ms: int) -> None:
        """Tell everybody who waits that this coordinator is gone."""
        for member in self.members.values():
            self._answer_join(member, error, now_ms)
            self._answer_sync(member, error, now_ms)

    def take_answers(self) -> Sequence[PendingReply]:
        """What waiting calls are to be told, once."""
        answers, self._answers = self._answers, []
        return answers

    def take_change(self) -> bool:
        """Whether there is something to save that was not there at the last call."""
        new, self._handed_out = self.changes > self._handed_out, self.changes
        return new

    @property
    def assignments(self) -> dict[str, bytes] | None:
        """Everybody's assignment as it is to be saved; None while there is none."""
        if self.state is GroupState.STABLE:
            return {member.id: member.assignment for member in self.members.values()}
        return self._assigned if self.state is GroupState.COMPLETING else None

    # Small things

    def _member(self, member_id: str, instance_id: str | None) -> GroupMember:
        if instance_id is not None and self.instances.get(instance_id, member_id) != member_id:
            raise self._refused(GroupRefusal.FENCED_INSTANCE)
        member = self.members.get(member_id)
        if member is None or (instance_id is not None and instance_id not in self.instances):
            raise self._refused(GroupRefusal.UNKNOWN_MEMBER)
        return member

    def _remove_member(self, member: GroupMember, now_ms: int) -> None:
        unknown = self._refused(GroupRefusal.UNKNOWN_MEMBER)
        self._answer_join(member, unknown, now_ms)
        self._answer_sync(member, unknown, now_ms)
        del self.members[member.id]
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.leader == member.id:
            self.leader = next(iter(self.members), "")

    def _answer_join(self, member: GroupMember, reply: Reply, now_ms: int) -> None:
        if member.joining is not None:
            self._answers.append((member.joining, reply))
            member.joining = None
            member.id_known = True
            member.touch(now_ms)  # it was alive as long as it waited

    def _answer_sync(self, member: GroupMember, reply: Reply, now_ms: int) -> None:
        if member.syncing is not None:
            self._answers.append((member.syncing, reply))
            member.syncing = None
            member.touch(now_ms)

    def _joined(self, member: GroupMember, *, replaced: bool = False) -> JoinResult:
        """The present generation as this member is told of it."""
        leads = member.id == self.leader
        # A replaced leader must not assign anew, since nobody else joins: it is told to skip, or not that it leads.
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
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _refused(self, refusal: GroupRefusal) -> GroupRefusedError:
        return GroupRefusedError(self.id, refusal)
