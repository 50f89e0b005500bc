"""Assignments, heartbeats, leaving, and static members."""

import pytest
from tests.support.group import GroupHarness, protocols, refused_with

from holdfast.groups.errors import GroupRefusal, GroupRefusedError
from holdfast.groups.model import GroupState
from holdfast.vocabulary.errors import UnavailableError


def completing(room: GroupHarness, *calls: str) -> list[str]:
    """Members that have joined and not synced, the leader first."""
    for call in calls:
        room.join(call)
    room.advance(1_000)
    return [room.joined(call).member_id for call in calls]


def test_members_get_their_assignments_once_the_leaders_is_saved() -> None:
    room = GroupHarness()
    ann, bob = completing(room, "ann", "bob")
    room.sync("bob", bob)
    room.sync("ann", ann, {ann: b"1", bob: b"2", "nobody": b"3"})
    assert room.replies == {}
    assert room.state() is GroupState.COMPLETING
    room.save()
    assert (room.synced("ann").assignment, room.synced("bob").assignment) == (b"1", b"2")
    assert room.state() is GroupState.STABLE


def test_a_follower_that_syncs_late_gets_its_assignment_at_once() -> None:
    room = GroupHarness()
    ann, bob = completing(room, "ann", "bob")
    room.sync("ann", ann, {ann: b"1", bob: b"2"})
    room.save()
    room.sync("bob", bob)
    assert room.synced("bob").assignment == b"2"


def test_a_member_the_leader_forgot_gets_an_empty_assignment() -> None:
    room = GroupHarness()
    ann, bob = completing(room, "ann", "bob")
    room.sync("ann", ann, {ann: b"1"})
    room.save()
    room.sync("bob", bob)
    assert room.synced("bob").assignment == b""


def test_an_assignment_that_could_not_be_saved_is_an_error_and_may_be_tried_again() -> None:
    room = GroupHarness()
    ann, bob = completing(room, "ann", "bob")
    room.sync("bob", bob)
    room.sync("ann", ann, {ann: b"1", bob: b"2"})
    room.group.not_saved(UnavailableError("store", "away"), room.now_ms)
    room.settle()
    assert isinstance(room.replies.pop("ann"), UnavailableError)
    assert isinstance(room.replies.pop("bob"), UnavailableError)
    room.saving = []
    room.sync("ann again", ann, {ann: b"1", bob: b"2"})
    room.save()
    assert room.synced("ann again").assignment == b"1"


def test_a_leader_that_does_not_try_again_is_removed() -> None:
    room = GroupHarness()
    ann, bob = completing(room, "ann", "bob")
    room.sync("ann", ann, {ann: b"1", bob: b"2"})
    room.group.not_saved(UnavailableError("store", "away"), room.now_ms)
    room.settle()
    room.sync("bob", bob)
    room.advance(60_000, beating=(ann,))
    assert room.refusal("bob") is GroupRefusal.REBALANCE_IN_PROGRESS
    assert list(room.group.members) == [bob]


def test_a_rebalance_that_begins_before_the_save_makes_all_members_join_again() -> None:
    room = GroupHarness()
    ann, bob = completing(room, "ann", "bob")
    room.sync("bob", bob)
    room.sync("ann", ann, {ann: b"1", bob: b"2"})
    room.join("cid")
    assert room.refusal("ann") is room.refusal("bob") is GroupRefusal.REBALANCE_IN_PROGRESS
    room.save()
    assert room.state() is GroupState.PREPARING


def test_a_member_that_does_not_sync_in_time_is_removed() -> None:
    room = GroupHarness()
    ann, bob = completing(room, "ann", "bob")
    room.sync("ann", ann, {ann: b"1", bob: b"2"})
    room.save()
    room.advance(60_000, beating=(ann, bob))
    assert list(room.group.members) == [ann]
    assert room.state() is GroupState.PREPARING


def test_a_leader_that_does_not_sync_in_time_is_removed_and_the_others_join_again() -> None:
    room = GroupHarness()
    ann, bob = completing(room, "ann", "bob")
    room.sync("bob", bob)
    room.advance(60_000, beating=(ann,))
    assert room.refusal("bob") is GroupRefusal.REBALANCE_IN_PROGRESS
    room.join("bob again", member_id=bob)
    assert room.joined("bob again").leader == bob


def test_sync_is_refused_in_the_wrong_generation_state_or_protocol() -> None:
    room = GroupHarness()
    ann, bob = completing(room, "ann", "bob")
    with refused_with(GroupRefusal.ILLEGAL_GENERATION):
        room.sync("x", bob, generation=7)
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        room.sync("x", "made up")
    with refused_with(GroupRefusal.INCONSISTENT_PROTOCOL):
        room.sync("x", bob, protocol="sticky")
    with refused_with(GroupRefusal.INCONSISTENT_PROTOCOL):
        room.sync("x", bob, protocol_type="connect")
    room.join("cid")
    with refused_with(GroupRefusal.REBALANCE_IN_PROGRESS):
        room.sync("x", ann)


def test_assignments_that_are_too_large_are_an_error_for_all_members() -> None:
    room = GroupHarness(assignment_bytes_max=100)
    ann, bob = completing(room, "ann", "bob")
    room.sync("bob", bob)
    with refused_with(GroupRefusal.GROUP_FULL):
        room.sync("ann", ann, {bob: bytes(101)})
    room.settle()
    assert room.refusal("bob") is GroupRefusal.GROUP_FULL
    room.sync("ann", ann, {bob: bytes(10)})
    room.save()
    assert room.state() is GroupState.STABLE
    room.join("ann again", member_id=ann)


def test_whoever_joins_after_assignments_were_too_large_is_told_for_a_while() -> None:
    room = GroupHarness(assignment_bytes_max=100)
    ann, bob = completing(room, "ann", "bob")
    with refused_with(GroupRefusal.GROUP_FULL):
        room.sync("ann", ann, {bob: bytes(101)})
    for _ in range(9):
        for call in (ann, bob, ""):
            with refused_with(GroupRefusal.GROUP_FULL):
                room.join("x", member_id=call)
        room.advance(1_000)
    assert list(room.group.members) == [ann, bob]
    room.advance(1_000)
    room.join("ann again", member_id=ann)
    assert room.joined("ann again").leader == ann


def test_a_member_whose_session_times_out_is_removed_and_the_others_join_again() -> None:
    room = GroupHarness()
    ann, bob = room.stable("ann", "bob")
    room.advance(9_999, beating=(ann,))
    assert bob in room.group.members
    room.advance(1, beating=(ann,))
    assert bob not in room.group.members
    assert room.group.expired == 1
    with refused_with(GroupRefusal.REBALANCE_IN_PROGRESS):
        room.heartbeat(ann)


def test_heartbeats_are_refused_when_the_member_or_its_generation_is_wrong() -> None:
    room = GroupHarness()
    (ann,) = room.stable("ann")
    room.heartbeat(ann)
    with refused_with(GroupRefusal.ILLEGAL_GENERATION):
        room.heartbeat(ann, generation=0)
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        room.heartbeat("made up")


def test_a_heartbeat_between_join_and_sync_is_fine() -> None:
    room = GroupHarness()
    (ann,) = completing(room, "ann")
    room.heartbeat(ann)


def test_the_last_one_to_leave_leaves_an_empty_group_that_is_saved() -> None:
    room = GroupHarness()
    (ann,) = room.stable("ann")
    room.leave(ann)
    assert (room.group.state, room.group.generation, room.group.leader) == (GroupState.EMPTY, 2, "")
    assert room.saving
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        room.leave(ann)


def test_leaving_while_the_others_wait_lets_them_begin() -> None:
    room = GroupHarness()
    ann, bob = room.stable("ann", "bob")
    room.join("ann again", member_id=ann)
    room.leave(bob)
    assert room.joined("ann again").generation == 2


def test_an_assigned_id_may_leave() -> None:
    room = GroupHarness()
    with pytest.raises(GroupRefusedError) as told:
        room.join("ann", require_known_member_id=True)
    room.leave(told.value.member_id)
    assert room.group.pending_members == {}


def test_the_waiting_call_of_a_removed_member_fails() -> None:
    room = GroupHarness()
    ann, _ = room.stable("ann", "bob")
    room.join("ann again", member_id=ann)
    room.leave(ann)
    assert room.refusal("ann again") is GroupRefusal.UNKNOWN_MEMBER


# Static members


def test_a_static_member_that_restarts_takes_its_place_back_without_a_rebalance() -> None:
    room = GroupHarness()
    ann, bob = room.stable("ann", "bob")
    room.leave(bob)
    room.join("cid", instance_id="c")
    room.join("ann again", member_id=ann)
    room.sync("s", ann, {ann: b"1", room.joined("cid").member_id: b"2"})
    room.save()
    generation, old = room.group.generation, room.group.instances["c"]
    room.join("cid again", instance_id="c")
    assert "cid again" not in room.replies  # not before the store knows
    room.save()
    again = room.joined("cid again")
    assert (again.generation, again.leader) == (generation, ann)
    assert again.member_id != old
    assert room.state() is GroupState.STABLE
    room.sync("cid", again.member_id, instance_id="c")
    assert room.synced("cid").assignment == b"2"
    with refused_with(GroupRefusal.FENCED_INSTANCE):
        room.heartbeat(old, instance_id="c")
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        room.heartbeat(old)


def test_a_static_leader_that_restarts_need_not_assign() -> None:
    room = GroupHarness()
    room.stable("ann", instance_id="a")
    room.join("again", instance_id="a", supports_skipping_assignment=True)
    room.save()
    again = room.joined("again")
    assert again.leader == again.member_id
    assert again.skip_assignment
    assert [each.id for each in again.members] == [again.member_id]


def test_a_static_leader_that_cannot_skip_does_not_learn_that_it_leads() -> None:
    room = GroupHarness()
    room.stable("ann", instance_id="a")
    room.join("again", instance_id="a")
    room.save()
    again = room.joined("again")
    assert again.leader != again.member_id
    assert (again.skip_assignment, again.members) == (False, ())


def test_a_static_member_without_its_owned_partitions_starts_no_rebalance() -> None:
    room = GroupHarness()
    room.stable("ann", instance_id="a", protocols=protocols("cooperative-sticky", owned=b"some"))
    room.join("again", instance_id="a", protocols=protocols("cooperative-sticky"))
    room.save()
    assert room.joined("again").generation == 1


def test_a_static_member_with_other_topics_starts_a_rebalance() -> None:
    room = GroupHarness()
    room.stable("ann", instance_id="a")
    room.join("again", instance_id="a", protocols=protocols("range", topics=("bills",)))
    assert room.joined("again").generation == 2


def test_the_old_call_of_a_static_member_is_fenced_by_the_new_one() -> None:
    room = GroupHarness()
    room.join("first", instance_id="a")
    room.join("second", instance_id="a")
    assert room.refusal("first") is GroupRefusal.FENCED_INSTANCE
    room.advance(1_000)
    assert len(room.joined("second").members) == 1


def test_a_static_member_between_join_and_sync_makes_a_new_rebalance() -> None:
    room = GroupHarness()
    room.join("ann", instance_id="a")
    room.advance(1_000)
    assert room.joined("ann").generation == 1
    room.join("again", instance_id="a")
    assert room.joined("again").generation == 2


def test_the_waiting_sync_of_a_static_member_is_fenced_by_its_replacement() -> None:
    room = GroupHarness()
    room.join("ann", instance_id="a")
    room.join("bob", instance_id="b")
    room.advance(1_000)
    room.joined("ann")
    bob = room.joined("bob")
    room.sync("bob syncs", bob.member_id, instance_id="b")
    room.join("bob again", instance_id="b")
    assert room.refusal("bob syncs") is GroupRefusal.FENCED_INSTANCE


def test_static_members_that_are_away_keep_their_places_until_their_session_ends() -> None:
    room = GroupHarness()
    ann, _ = room.stable("ann", "bob")
    room.join("cid", instance_id="c", session_timeout_ms=200_000)
    room.join("ann again", member_id=ann)
    room.advance(10_000)  # bob is gone by then
    cid = room.joined("cid").member_id
    assert room.joined("ann again").generation == 2
    room.sync("s", ann, {})
    room.save()
    room.sync("sc", cid)
    room.join("ann once more", member_id=ann)
    room.advance(60_000)
    assert {each.id for each in room.joined("ann once more").members} == {ann, cid}


def test_a_static_member_leaves_by_its_instance_id_alone() -> None:
    room = GroupHarness()
    room.stable("ann", instance_id="a")
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        room.leave(instance_id="b")
    with refused_with(GroupRefusal.FENCED_INSTANCE):
        room.leave("made up", instance_id="a")
    room.leave(instance_id="a")
    assert room.state() is GroupState.EMPTY
    assert room.group.instances == {}


def test_a_static_replacement_that_could_not_be_saved_is_an_error() -> None:
    room = GroupHarness()
    room.stable("ann", instance_id="a")
    room.join("again", instance_id="a")
    room.group.not_saved(UnavailableError("store", "away"), room.now_ms)
    room.settle()
    assert isinstance(room.replies.pop("again"), UnavailableError)
    room.join("once more", instance_id="a")
    room.save()
    assert room.joined("once more").generation == 1


# Who may commit


def test_members_of_this_generation_may_commit_also_while_others_join() -> None:
    room = GroupHarness()
    ann, bob = room.stable("ann", "bob")
    room.group.check_commit(ann, 1, None, room.now_ms)
    room.join("cid")
    room.group.check_commit(bob, 1, None, room.now_ms)


def test_others_may_not_commit() -> None:
    room = GroupHarness()
    (ann,) = room.stable("ann")
    with refused_with(GroupRefusal.ILLEGAL_GENERATION):
        room.group.check_commit(ann, 0, None, room.now_ms)
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        room.group.check_commit("made up", 1, None, room.now_ms)
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        room.group.check_commit("", -1, None, room.now_ms)
    with refused_with(GroupRefusal.ILLEGAL_GENERATION):
        room.group.check_commit(ann, -1, None, room.now_ms)


def test_a_member_without_an_assignment_yet_may_not_commit() -> None:
    room = GroupHarness()
    (ann,) = completing(room, "ann")
    with refused_with(GroupRefusal.REBALANCE_IN_PROGRESS):
        room.group.check_commit(ann, 1, None, room.now_ms)


def test_anybody_may_commit_for_a_group_without_members_but_no_former_member() -> None:
    room = GroupHarness()
    room.group.check_commit("", -1, None, room.now_ms)
    (ann,) = room.stable("ann")
    room.leave(ann)
    room.group.check_commit("", -1, None, room.now_ms)
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        room.group.check_commit(ann, 2, None, room.now_ms)
