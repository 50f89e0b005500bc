"""Whatever happens to a group, in whatever order: a few things are always true."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule
from tests.support.examples import examples
from tests.support.group import GroupHarness, protocols

from holdfast.groups.errors import GroupRefusedError
from holdfast.groups.model import GroupState, JoinResult
from holdfast.vocabulary.errors import UnavailableError

INSTANCES = (None, None, "a", "b")
PROTOCOLS = (("range",), ("range", "sticky"), ("sticky", "range"), ("sticky",))


class GroupMachine(RuleBasedStateMachine):
    """Members that join, sync, beat, leave, hang up and restart; a store that saves late or not at all; time that passes."""

    ids: Bundle[str] = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.room = GroupHarness(size_max=4)
        self.calls = 0
        self.waiting: set[str] = set()
        self.generation = 0
        self.told: dict[int, set[str]] = {}  # generation → who was told that it leads

    def _call(self) -> str:
        self.calls += 1
        return f"call{self.calls}"

    def _collect(self) -> None:
        for call, reply in self.room.replies.items():
            assert call in self.waiting, "nobody asked"
            self.waiting.discard(call)
            if isinstance(reply, JoinResult) and reply.leader == reply.member_id and not reply.skip_assignment:
                self.told.setdefault(reply.generation, set()).add(reply.member_id)
        self.room.replies.clear()

    @rule(target=ids, instance=st.sampled_from(INSTANCES), names=st.sampled_from(PROTOCOLS), skips=st.booleans())
    def joins(self, instance: str | None, names: tuple[str, ...], skips: bool) -> str:
        call = self._call()
        ask = {"instance_id": instance, "protocols": protocols(*names), "supports_skipping_assignment": skips}
        self.waiting.add(call)
        before = set(self.room.group.members)
        try:
            self.room.join(call, **ask)
        except GroupRefusedError:
            self.waiting.discard(call)
        self._collect()
        return next(iter(set(self.room.group.members) - before), "")

    @rule(target=ids, member=ids, names=st.sampled_from(PROTOCOLS))
    def joins_again(self, member: str, names: tuple[str, ...]) -> str:
        call = self._call()
        known = self.room.group.members.get(member)
        instance = known.instance_id if known is not None else None
        self.waiting.add(call)
        try:
            self.room.join(call, member_id=member, instance_id=instance, protocols=protocols(*names))
        except GroupRefusedError:
            self.waiting.discard(call)
        self._collect()
        return member

    @rule(member=ids)
    def syncs(self, member: str) -> None:
        call = self._call()
        self.waiting.add(call)
        try:
            self.room.sync(call, member, {each: each.encode() for each in self.room.group.members})
        except GroupRefusedError:
            self.waiting.discard(call)
        self._collect()

    @rule(member=ids)
    def beats(self, member: str) -> None:
        try:
            self.room.heartbeat(member)
        except GroupRefusedError:
            return

    @rule(member=ids)
    def leaves(self, member: str) -> None:
        try:
            self.room.leave(member)
        except GroupRefusedError:
            self.room.settle()
        self._collect()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def hangs_up(self, data: st.DataObject) -> None:
        call = data.draw(st.sampled_from(sorted(self.waiting)))
        self.room.group.abandon(call, self.room.now_ms)
        self.waiting.discard(call)

    @rule()
    def saves(self) -> None:
        self.room.save()
        self._collect()

    @precondition(lambda self: self.room.saving)
    @rule()
    def does_not_save(self) -> None:
        self.room.saving = []
        self.room.group.not_saved(UnavailableError("store", "away"), self.room.now_ms)
        self.room.settle()
        self._collect()

    @rule(duration_ms=st.sampled_from((50, 200, 5_000, 10_000, 70_000)))
    def time_passes(self, duration_ms: int) -> None:
        self.room.advance(duration_ms)
        self._collect()

    @invariant()
    def there_is_one_leader_and_it_is_a_member(self) -> None:
        group = self.room.group
        assert (group.leader in group.members) if group.members else group.leader == ""

    @invariant()
    def a_generation_has_at_most_one_leader(self) -> None:
        group = self.room.group
        # A static leader that restarts between join and sync leads under a new id, and only in a new generation.
        assert all(len(leaders) <= 1 for leaders in self.told.values()), self.told
        assert group.generation >= self.generation
        self.generation = group.generation

    @invariant()
    def instance_ids_and_members_agree(self) -> None:
        group = self.room.group
        having = {member.instance_id: member.id for member in group.members.values() if member.instance_id is not None}
        assert having == group.instances
        assert all(name == member.id for name, member in group.members.items())

    @invariant()
    def members_have_a_protocol_in_common(self) -> None:
        group = self.room.group
        if group.members:
            assert set.intersection(*({each.name for each in m.protocols} for m in group.members.values()))

    @invariant()
    def waiting_calls_belong_to_members(self) -> None:
        held = set()
        for member in self.room.group.members.values():
            held |= {each for each in (member.joining, member.syncing) if each is not None}
        assert held == self.waiting

    @invariant()
    def the_state_fits(self) -> None:
        group = self.room.group
        if group.state is GroupState.EMPTY:
            assert not group.members
        else:
            assert group.members
        if group.state is GroupState.PREPARING or (group.state is GroupState.COMPLETING and not self.room.saving):
            assert group.next_deadline_ms() is not None

    def teardown(self) -> None:
        """Everybody who waits is answered, if only in the end."""
        self.room.advance(200_000)
        self.room.save()
        self.room.advance(200_000)
        self._collect()
        assert not self.waiting
        assert self.room.state() is GroupState.EMPTY


GroupMachine.TestCase.settings = settings(examples(), stateful_step_count=30)
TestGroup = GroupMachine.TestCase
