"""The join barrier: who waits for whom, for how long, and who leads."""

import pytest
from tests.support.group import GroupHarness, protocols, refused_with

from holdfast.groups.errors import GroupRefusal, GroupRefusedError
from holdfast.groups.model import GroupState


def test_a_new_group_waits_a_moment_for_more_members() -> None:
    room = GroupHarness()
    room.join("ann")
    assert room.state() is GroupState.PREPARING
    room.advance(199)
    assert room.replies == {}
    room.advance(1)
    ann = room.joined("ann")
    assert (ann.generation, ann.leader, ann.protocol) == (1, ann.member_id, "range")
    assert [each.id for each in ann.members] == [ann.member_id]
    assert room.state() is GroupState.COMPLETING


def test_members_that_join_in_time_share_the_first_generation() -> None:
    room = GroupHarness()
    room.join("ann")
    room.advance(150)
    room.join("bob")
    room.advance(100)
    assert room.replies == {}  # bob's arrival has bought another moment
    room.advance(200)
    ann, bob = room.joined("ann"), room.joined("bob")
    assert ann.generation == bob.generation == 1
    assert ann.leader == bob.leader == ann.member_id
    assert {each.id for each in ann.members} == {ann.member_id, bob.member_id}
    assert bob.members == ()


def test_the_initial_wait_ends_with_the_rebalance_timeout() -> None:
    room = GroupHarness(initial_delay_ms=500)
    room.join("m0", rebalance_timeout_ms=1_200)
    for number in range(1, 6):
        room.advance(250)
        if room.state() is not GroupState.PREPARING:
            break
        room.join(f"m{number}", rebalance_timeout_ms=1_200)
    assert room.now_ms <= 1_000 + 1_250
    assert room.joined("m0").generation == 1


def test_without_a_delay_a_group_begins_at_once() -> None:
    room = GroupHarness(initial_delay_ms=0)
    room.join("ann")
    room.advance(0)
    assert room.joined("ann").generation == 1


def test_a_new_member_makes_all_members_join_again() -> None:
    room = GroupHarness()
    ann, bob = room.stable("ann", "bob")
    room.join("cid")
    assert room.state() is GroupState.PREPARING
    for member in (ann, bob):
        with refused_with(GroupRefusal.REBALANCE_IN_PROGRESS):
            room.heartbeat(member)
    room.join("ann again", member_id=ann)
    assert room.replies == {}
    room.join("bob again", member_id=bob)
    assert {room.joined(call).generation for call in ("ann again", "bob again", "cid")} == {2}


def test_the_leader_stays_the_leader_when_it_joins_again() -> None:
    room = GroupHarness()
    ann, bob = room.stable("ann", "bob")
    room.join("bob again", member_id=bob, protocols=protocols("range", "roundrobin"))
    room.join("ann again", member_id=ann)
    assert room.joined("bob again").leader == room.joined("ann again").leader == ann


def test_a_leader_that_does_not_join_again_is_replaced() -> None:
    room = GroupHarness()
    ann, bob = room.stable("ann", "bob")
    room.leave(ann)
    room.join("bob again", member_id=bob)
    assert room.joined("bob again").leader == bob


def test_a_member_that_does_not_join_again_in_time_is_removed() -> None:
    room = GroupHarness()
    ann, bob = room.stable("ann", "bob")
    room.join("ann again", member_id=ann)  # the leader joins again: a rebalance
    room.advance(59_000, beating=(bob,))
    assert room.replies == {}
    room.advance(1_000, beating=(bob,))
    assert [each.id for each in room.joined("ann again").members] == [ann]
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        room.heartbeat(bob)


def test_the_longest_rebalance_timeout_counts() -> None:
    room = GroupHarness()
    ann, _ = room.stable("ann", "bob")
    room.join("cid", rebalance_timeout_ms=120_000)
    room.join("ann again", member_id=ann)
    bob = next(each for each in room.group.members.values() if each.joining is None)
    room.advance(119_000, beating=(bob.id,))
    assert "cid" not in room.replies
    room.advance(1_000, beating=(bob.id,))
    assert room.joined("cid").generation == 2


def test_a_member_that_waits_is_alive_however_long_the_others_take() -> None:
    room = GroupHarness()
    ann, bob = room.stable("ann", "bob")
    room.join("ann again", member_id=ann, session_timeout_ms=6_000)
    room.advance(30_000, beating=(bob,))
    assert ann in room.group.members
    room.join("bob again", member_id=bob)
    assert room.joined("ann again").generation == 2
    room.advance(5_999)
    assert ann in room.group.members  # its session begins with the answer


def test_a_member_whose_call_was_abandoned_lives_until_its_session_times_out() -> None:
    room = GroupHarness()
    ann, bob = room.stable("ann", "bob")
    room.join("ann again", member_id=ann)
    room.group.abandon("ann again", room.now_ms)
    room.join("bob again", member_id=bob)
    assert room.replies == {}  # ann is expected to come back
    room.advance(10_000)
    assert [each.id for each in room.joined("bob again").members] == [bob]


def test_a_new_member_that_hangs_up_before_it_has_its_id_is_removed_at_once() -> None:
    room = GroupHarness()
    (ann,) = room.stable("ann")
    with pytest.raises(GroupRefusedError) as told:
        room.join("bob", require_known_member_id=True)
    room.join("bob", member_id=told.value.member_id)
    room.join("cid")
    for call in ("bob", "cid"):
        room.group.abandon(call, room.now_ms)
        room.settle()
    assert set(room.group.members) == {ann, told.value.member_id}


def test_a_follower_that_joins_again_unchanged_starts_no_rebalance() -> None:
    room = GroupHarness()
    ann, bob = room.stable("ann", "bob")
    room.join("bob again", member_id=bob)
    again = room.joined("bob again")
    assert (again.generation, again.leader, again.members) == (1, ann, ())
    assert room.state() is GroupState.STABLE


def test_a_follower_with_new_metadata_starts_a_rebalance() -> None:
    room = GroupHarness()
    _, bob = room.stable("ann", "bob")
    room.join("bob again", member_id=bob, protocols=protocols("range", topics=("orders", "bills")))
    assert room.state() is GroupState.PREPARING


def test_a_leader_that_joins_again_starts_a_rebalance() -> None:
    room = GroupHarness()
    ann, _ = room.stable("ann", "bob")
    room.join("ann again", member_id=ann)
    assert room.state() is GroupState.PREPARING


def test_a_member_that_missed_the_reply_gets_it_again_before_the_sync() -> None:
    room = GroupHarness()
    room.join("ann")
    room.advance(200)
    ann = room.joined("ann")
    room.join("ann again", member_id=ann.member_id)
    assert room.joined("ann again") == ann


def test_a_second_join_of_the_same_member_replaces_the_first() -> None:
    room = GroupHarness()
    ann, bob = room.stable("ann", "bob")
    room.join("first", member_id=ann)
    room.join("second", member_id=ann)
    assert room.refusal("first") is GroupRefusal.REBALANCE_IN_PROGRESS
    room.join("bob again", member_id=bob)
    assert room.joined("second").generation == 2


def test_a_new_member_gets_its_id_first_where_required() -> None:
    room = GroupHarness()
    with pytest.raises(GroupRefusedError) as told:
        room.join("ann", require_known_member_id=True)
    assert told.value.refusal is GroupRefusal.MEMBER_ID_REQUIRED
    assert room.group.members == {}
    room.join("ann", member_id=told.value.member_id, require_known_member_id=True)
    room.advance(200)
    assert room.joined("ann").member_id == told.value.member_id


def test_an_assigned_id_that_is_not_used_expires() -> None:
    room = GroupHarness()
    ann, _ = room.stable("ann", "bob")
    with pytest.raises(GroupRefusedError) as told:
        room.join("cid", require_known_member_id=True)
    room.advance(10_000, beating=tuple(room.group.members))
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        room.join("cid", member_id=told.value.member_id)
    assert ann in room.group.members


def test_the_barrier_waits_for_an_assigned_id() -> None:
    room = GroupHarness()
    (ann,) = room.stable("ann")
    with pytest.raises(GroupRefusedError) as told:
        room.join("bob", require_known_member_id=True)
    room.join("ann again", member_id=ann)
    assert room.replies == {}
    room.join("bob", member_id=told.value.member_id)
    assert room.joined("ann again").generation == room.joined("bob").generation == 2


def test_an_unknown_member_id_is_refused() -> None:
    room = GroupHarness()
    room.stable("ann")
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        room.join("eve", member_id="made up")


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
def test_session_timeouts_outside_the_range_are_refused(timeout_ms: int) -> None:
    with refused_with(GroupRefusal.INVALID_SESSION_TIMEOUT):
        GroupHarness().join("ann", session_timeout_ms=timeout_ms)


def test_a_group_takes_no_more_members_than_it_may_have() -> None:
    room = GroupHarness(size_max=2)
    ann, _ = room.stable("ann", "bob")
    with refused_with(GroupRefusal.GROUP_FULL):
        room.join("cid")
    room.join("ann again", member_id=ann)  # who is in may come back
    assert room.state() is GroupState.PREPARING


def test_a_member_that_does_not_fit_is_refused_alone() -> None:
    room = GroupHarness(members_bytes_max=2_000)
    (ann,) = room.stable("ann")
    with refused_with(GroupRefusal.TOO_LARGE):
        room.join("cid", protocols=protocols("range", owned=bytes(2_000)))
    room.join("bob", protocols=protocols("range", owned=bytes(1_200)))
    with refused_with(GroupRefusal.GROUP_FULL):
        room.join("dot", protocols=protocols("range", owned=bytes(1_200)))
    room.join("ann again", member_id=ann)
    assert room.joined("bob").generation == 2


def test_metadata_that_protocols_have_in_common_counts_once() -> None:
    room = GroupHarness(members_bytes_max=2_000)
    room.join("ann", protocols=protocols("range", "roundrobin", "sticky", owned=bytes(1_500)))


def test_members_of_a_group_may_grow_beyond_what_new_ones_are_admitted_to() -> None:
    room = GroupHarness(members_bytes_max=2_000)
    ann, bob = room.stable("ann", "bob")
    grown = protocols("range", owned=bytes(1_800))
    room.join("ann again", member_id=ann, protocols=grown)
    room.join("bob again", member_id=bob, protocols=grown)
    assert room.joined("ann again").generation == room.joined("bob again").generation == 2
    with refused_with(GroupRefusal.GROUP_FULL):
        room.join("cid")


def test_nobody_waits_for_a_member_that_may_not_join_again() -> None:
    room = GroupHarness(members_bytes_max=2_000)
    ann, bob, cid = room.stable("ann", "bob", "cid")
    grown = protocols("range", owned=bytes(1_800))
    room.join("ann again", member_id=ann, protocols=grown)
    room.join("bob again", member_id=bob, protocols=grown)
    with refused_with(GroupRefusal.GROUP_FULL):
        room.join("cid again", member_id=cid, protocols=grown)
    assert {each.id for each in room.joined("ann again").members} == {ann, bob}
    assert room.joined("bob again").generation == 2


def test_a_static_member_that_was_fenced_removes_nobody() -> None:
    room = GroupHarness(members_bytes_max=2_000)
    (ann,) = room.stable("ann", instance_id="a")
    with refused_with(GroupRefusal.TOO_LARGE):
        room.join("x", member_id=ann, instance_id="b", protocols=protocols("range", owned=bytes(2_000)))
    assert ann in room.group.members


def test_members_share_the_memory_of_what_they_have_in_common() -> None:
    room = GroupHarness()
    for call in ("ann", "bob"):
        room.join(call, protocols=protocols("range", "sticky"))
    room.advance(1_000)
    metadata = {id(each.metadata) for member in room.group.members.values() for each in member.protocols}
    assert len(metadata) == 1


def test_the_protocol_most_members_prefer_is_chosen_of_those_all_support() -> None:
    room = GroupHarness()
    room.join("ann", protocols=protocols("sticky", "range"))
    room.join("bob", protocols=protocols("range", "sticky", "roundrobin"))
    room.join("cid", protocols=protocols("roundrobin", "range", "sticky"))
    room.advance(1_000)
    assert room.joined("ann").protocol == "range"


def test_members_without_a_common_protocol_are_refused() -> None:
    room = GroupHarness()
    room.stable("ann")
    with refused_with(GroupRefusal.INCONSISTENT_PROTOCOL):
        room.join("bob", protocols=protocols("sticky"))
    with refused_with(GroupRefusal.INCONSISTENT_PROTOCOL):
        room.join("bob", protocol_type="connect")
    with refused_with(GroupRefusal.INCONSISTENT_PROTOCOL):
        room.join("bob", protocols=())


def test_the_only_member_may_change_its_protocols() -> None:
    room = GroupHarness()
    (ann,) = room.stable("ann")
    room.join("ann again", member_id=ann, protocols=protocols("sticky"))
    assert room.joined("ann again").protocol == "sticky"


def test_an_empty_group_may_become_one_of_another_type() -> None:
    room = GroupHarness()
    (ann,) = room.stable("ann")
    room.leave(ann)
    room.join("bob", protocol_type="connect", protocols=protocols("default"))
    room.advance(200)
    assert room.joined("bob").protocol_type == "connect"
