"""The memory of what members sent, and the time that reading it takes, whatever they sent."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from tests.support.group import GroupHarness, protocols, refused_with, subscription
from tests.support.group_coordinators import FAST_SETTINGS, Coordinator, CoordinatorWorld, one_of

from holdfast.contracts.store import Put, Store
from holdfast.groups import records
from holdfast.groups.errors import GroupRefusal, LimitReached
from holdfast.groups.keys import group_key
from holdfast.groups.limit_warnings import LimitWarnings
from holdfast.groups.member import MemberRecord
from holdfast.groups.model import AssignmentProtocol, GroupState, JoinRequest, LeaveRequest, SyncRequest
from holdfast.groups.records import encode_large_group, group_record
from holdfast.log.batches.compression import codec_number, compress, decompress
from holdfast.vocabulary.settings import KIB
from holdfast.vocabulary.types import TopicPartition

ONE_SHARD = replace(FAST_SETTINGS, shards=1)
BUDGET = replace(ONE_SHARD, memory_bytes_max=100 * KIB)
ZSTD = codec_number("zstd")


@pytest_asyncio.fixture
async def world(store: Store) -> AsyncIterator[CoordinatorWorld]:
    made = CoordinatorWorld(store)
    yield made
    await made.end()


def alike(count: int, size_bytes: int) -> tuple[AssignmentProtocol, ...]:
    """Protocols with equal metadata, each read from the network on its own."""
    metadata = subscription("orders", owned=bytes(size_bytes))
    return tuple(AssignmentProtocol(f"p{number}", bytes(bytearray(metadata))) for number in range(count))


def kept(room: GroupHarness) -> int:
    """How many metadata the members keep."""
    return len({id(each.metadata) for member in room.group.members.values() for each in member.protocols})


# What several protocols have in common


def test_the_protocols_of_a_member_keep_what_they_have_in_common_once() -> None:
    room = GroupHarness()
    room.join("ann", instance_id="a", protocols=alike(10, 100))
    assert kept(room) == 1
    room.advance(1_000)
    member_id = room.joined("ann").member_id
    room.sync("s", member_id, {member_id: b""})
    room.save()
    room.join("ann again", instance_id="a", protocols=alike(10, 200))
    assert kept(room) == 1
    assert room.group.memory_bytes == room.group.members[next(iter(room.group.members))].size_bytes


def test_members_share_before_a_generation_begins() -> None:
    room = GroupHarness()
    for call in ("ann", "bob"):
        room.join(call, protocols=alike(2, 10_000))
    assert room.state() is GroupState.PREPARING
    assert kept(room) == 1
    assert 10_000 < room.group.memory_bytes < 12_000


async def test_what_protocols_have_in_common_is_stored_once(
    world: CoordinatorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_UNPACKED_MAX_BYTES", 1_000_000)
    ann = await world.coordinator("ann", ONE_SHARD)
    member = await ann.member("g", protocols=alike(100, 100_000))
    bob = await world.coordinator("bob", ONE_SHARD)
    described = await bob.service.describe("g")
    assert [(each.id, each.metadata) for each in described.members] == [
        (member.member_id, alike(1, 100_000)[0].metadata)
    ]
    await bob.commit("g", {("orders", 0): 1}, member)


async def test_members_that_could_not_be_read_again_are_left_out(
    world: CoordinatorWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(records, "_UNPACKED_MAX_BYTES", 1_000_000)
    ann = await world.coordinator("ann", ONE_SHARD)
    with caplog.at_level(logging.WARNING, logger="holdfast.groups"):
        member = await ann.member("g", protocols=alike(1, 2_000_000))
    assert "too large to be stored" in caplog.text
    await ann.commit("g", {("orders", 0): 1}, member)
    bob = await world.coordinator("bob", ONE_SHARD)
    assert await bob.committed("g") == {("orders", 0): 1}
    assert (await bob.member("g")).generation > member.generation


async def test_members_that_are_too_large_to_be_read_block_no_other_group(
    world: CoordinatorWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ann = await world.coordinator("ann", ONE_SHARD)
    member = await ann.member("g", protocols=alike(1, 2_000_000))
    other = await ann.member("other")
    await ann.commit("g", {("orders", 0): 1}, member)
    monkeypatch.setattr(records, "_UNPACKED_MAX_BYTES", 1_000_000)
    with caplog.at_level(logging.WARNING, logger="holdfast.groups"):
        bob = await world.coordinator("bob", ONE_SHARD)
    assert bob.handler.loading == {}
    assert "group 'g': its members are too large to be read" in caplog.text
    assert await bob.committed("g") == {("orders", 0): 1}
    await bob.commit("other", {("orders", 0): 1}, other)
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        await bob.commit("g", {("orders", 0): 2}, member)
    assert (await bob.member("g")).generation > member.generation


async def test_the_packed_members_of_earlier_builds_are_read(world: CoordinatorWorld) -> None:
    member = MemberRecord(
        id="m",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocols=(("range", b"one" * 20_000), ("sticky", b"two" * 20_000)),
        assignment=b"everything",
    )
    record = {
        "group": "g",
        "state": "Stable",
        "generation": 3,
        "protocol_type": "consumer",
        "protocol": "sticky",
        "leader": "m",
        "packed": compress(ZSTD, msgspec.msgpack.encode((member,))),
        "format": 2,
    }
    await world.store.commit(apply=(Put(group_key(0, "g"), msgspec.json.encode(record)),))
    ann = await world.coordinator("ann", ONE_SHARD)
    [found] = (await ann.service.describe("g")).members
    assert (found.id, found.metadata, found.assignment) == ("m", b"two" * 20_000, b"everything")


async def test_earlier_builds_find_no_members_in_a_large_record_instead_of_failing(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann", ONE_SHARD)
    await ann.member("g", protocols=alike(2, 40_000))
    entry = await world.store.get(group_key(0, "g"))
    assert entry is not None
    record = msgspec.json.decode(entry.value)
    assert "packed" not in record
    assert record["members"] == []


def test_many_members_with_many_protocols_are_small_before_they_are_compressed() -> None:
    room = GroupHarness(size_max=100)
    for number in range(100):
        room.group.join(
            JoinRequest(session_timeout_ms=10_000, protocols=alike(100, 1_000)), object(), 0, new_id=f"m{number}"
        )
    room.advance(1_000)
    ask = SyncRequest(member_id=room.group.leader, generation=1)
    room.group.sync(ask, object(), room.now_ms)
    record = group_record(room.group)
    assert record is not None
    value, size_bytes = encode_large_group(record, 400 * KIB)
    assert len(value) < 20_000
    assert size_bytes < 20_000
    packed = msgspec.json.decode(value, type=records.GroupRecord).packed_members
    assert not isinstance(packed, msgspec.UnsetType)
    assert len(decompress(ZSTD, packed, bytes_max=1_000_000)) < 200_000


# One budget for all groups


async def test_groups_share_a_budget_of_memory(world: CoordinatorWorld, caplog: pytest.LogCaptureFixture) -> None:
    ann = await world.coordinator("ann", BUDGET)
    members = {group_id: await ann.member(group_id, protocols=alike(1, 40_000)) for group_id in ("one", "two")}
    with caplog.at_level(logging.WARNING, logger="holdfast.groups"):
        for number in range(5):
            with refused_with(GroupRefusal.GROUP_FULL):
                await ann.join(f"more-{number}", protocols=alike(1, 40_000))
    [warning] = [record.getMessage() for record in caplog.records]
    assert "groups.memory_bytes_max = 102400" in warning
    assert ann.service.counters.joins_refused == 5
    assert {each.id for each in await ann.service.list()} == {"one", "two"}
    await ann.service.leave("one", [LeaveRequest(members["one"].member_id)])
    await ann.member("more", protocols=alike(1, 40_000))


async def test_a_member_of_a_full_process_joins_again_unchanged(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann", BUDGET)
    members = {group_id: await ann.member(group_id, protocols=alike(1, 45_000)) for group_id in ("one", "two")}
    again = await ann.join("one", member_id=members["one"].member_id, protocols=alike(1, 45_000))
    await ann.sync("one", again, {again.member_id: b"everything"})
    with refused_with(GroupRefusal.GROUP_FULL):
        await ann.join("two", member_id=members["two"].member_id, protocols=alike(1, 70_000))
    assert {each.id: each.state for each in await ann.service.list()} == {
        "one": GroupState.STABLE,
        "two": GroupState.EMPTY,
    }


async def test_members_that_were_alike_and_differ_now_take_more(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann", replace(BUDGET, initial_delay_ms=100))
    [one, two] = await asyncio.gather(*(ann.join("g", protocols=alike(1, 60_000)) for _ in range(2)))
    other = protocols("p0", topics=("bills",), owned=bytes(60_000))
    with refused_with(GroupRefusal.GROUP_FULL):
        await ann.join("g", member_id=one.member_id, protocols=other)
    again = await ann.join("g", member_id=two.member_id, protocols=other)  # nobody else has the first one now
    assert again.members[0].metadata == other[0].metadata
    with refused_with(GroupRefusal.GROUP_FULL):
        await ann.join("g", member_id=two.member_id, protocols=(*other, *protocols("p1", owned=bytes(60_000))))


async def test_members_that_are_alike_take_memory_once(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann", replace(BUDGET, initial_delay_ms=100))
    joined = await asyncio.gather(*(ann.join("g", protocols=alike(2, 40_000)) for _ in range(20)))
    assert len({each.member_id for each in joined}) == 20


async def test_assignments_are_in_the_budget(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann", BUDGET)
    one = await ann.join("one")
    await ann.sync("one", one, {one.member_id: bytes(70_000)})
    two = await ann.join("two")
    with refused_with(GroupRefusal.GROUP_FULL):
        await ann.sync("two", two, {two.member_id: bytes(70_000)})
    again = await ann.join("one", member_id=one.member_id)
    await ann.sync("one", again, {again.member_id: bytes(70_000)})


async def test_groups_that_are_taken_over_are_counted_and_never_refused(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann", ONE_SHARD)
    members = {f"g{number}": await ann.member(f"g{number}", protocols=alike(1, 60_000)) for number in range(3)}
    bob = await world.coordinator("bob", BUDGET)
    assert bob.handler.memory.bytes_held > 180_000
    for group_id, member in members.items():
        await bob.commit(group_id, {("orders", 0): 1}, member)
        again = await bob.join(group_id, member_id=member.member_id, protocols=alike(1, 60_000))
        await bob.sync(group_id, again, {again.member_id: b"everything"})
    with refused_with(GroupRefusal.GROUP_FULL):
        await bob.join("more")


@pytest.mark.parametrize("ended_by", ["leaving", "timeouts", "closing", "reloading", "eviction"])
async def test_groups_give_their_memory_back(world: CoordinatorWorld, ended_by: str) -> None:
    settings = replace(BUDGET, unsaved_bytes_max=64 * KIB, unsaved_kept_ms=1, session_min_ms=1)
    ann = await world.coordinator("ann", settings)
    if ended_by == "eviction":
        await ann.join("g", protocols=alike(1, 40_000))
        await world.clock.sleep_ms(5)
        await ann.join("other")
        await ann.service.leave(
            "other", [LeaveRequest(each.id) for each in (await ann.service.describe("other")).members]
        )
    else:
        session_timeout_ms = 50 if ended_by == "timeouts" else 60_000
        member = await ann.member("g", protocols=alike(3, 40_000), session_timeout_ms=session_timeout_ms)
        assert ann.handler.memory.bytes_held > 40_000
        held = ann.handler.memory.bytes_held
    if ended_by == "leaving":
        await ann.service.leave("g", [LeaveRequest(member.member_id)])
    elif ended_by == "closing":
        for lease in ann.leases:
            await ann.handler.close(lease)
    elif ended_by == "reloading":
        for lease in ann.leases:
            await ann.handler.close(lease)
            await ann.handler.open(lease)
        assert ann.handler.memory.bytes_held == held
        await ann.service.leave("g", [LeaveRequest(member.member_id)])
    async with asyncio.timeout(10):
        while ann.handler.memory.bytes_held:
            await world.clock.sleep_ms(5)
    assert ann.handler.memory.bytes_held == 0


def test_a_limit_of_all_groups_is_logged_once_whichever_reaches_it(
    world: CoordinatorWorld, caplog: pytest.LogCaptureFixture
) -> None:
    warnings = LimitWarnings(world.clock)
    with caplog.at_level(logging.WARNING, logger="holdfast.groups"):
        for number in range(3):
            warnings.warn(f"g{number}", LimitReached("memory_bytes_max", 1, 2), "a request was refused")
            warnings.warn(f"g{number}", LimitReached("size_max", 1, 2), "a request was refused")
    assert len(caplog.records) == 4


# The time that subscriptions take


def test_a_static_member_with_very_many_topics_is_compared_by_its_bytes() -> None:
    topics = tuple(f"t{number}" for number in range(20_000))
    room = GroupHarness()
    room.stable("ann", instance_id="a", protocols=protocols("range", topics=topics))
    room.join("same", instance_id="a", protocols=protocols("range", topics=topics))
    assert room.state() is GroupState.STABLE
    room.join("other", instance_id="a", protocols=protocols("range", topics=topics, owned=b"0,1"))
    assert room.state() is not GroupState.STABLE


@pytest.mark.parametrize("idle", [True, False])
async def test_a_sweep_reads_subscriptions_in_turns_and_only_if_an_offset_may_have_expired(
    world: CoordinatorWorld, monkeypatch: pytest.MonkeyPatch, idle: bool
) -> None:
    many = subscription(*[f"t{number}" for number in range(100_000)])
    ann = await world.coordinator("ann", replace(ONE_SHARD, retention_ms=1 if idle else 600_000))
    member = await ann.member("g", protocols=(AssignmentProtocol("range", many),))
    await ann.commit("g", {("orders", 0): 1}, member)
    await world.clock.sleep_ms(5)
    turns = await turns_of_sweep(ann)
    assert turns >= 9 if idle else turns <= 2
    await ann.handler._shards[0].writer.flush()
    assert await ann.committed("g") == ({} if idle else {("orders", 0): 1})


async def turns_of_sweep(ann: Coordinator) -> int:
    """Turns of the event loop that others get during a sweep."""
    sweeping = asyncio.ensure_future(ann.handler._shards[0].sweep(1 << 60))
    turns = 0
    while not sweeping.done():
        await asyncio.sleep(0)  # noqa: TID251 (no time passes)
        turns += 1
    await sweeping
    return turns


@pytest.mark.parametrize("change", ["another topic", "this topic", "a commit", "nothing"])
async def test_what_changes_during_a_sweep_counts(world: CoordinatorWorld, change: str) -> None:
    many = subscription(*[f"t{number}" for number in range(50_000)])
    ann = await world.coordinator("ann", replace(ONE_SHARD, retention_ms=500))
    member = await ann.member("g", instance_id="a", protocols=(AssignmentProtocol("range", many),))
    await ann.commit("g", {("orders", 0): 1}, member)
    await world.clock.sleep_ms(520)
    shard = ann.handler._shards[0]
    sweeping = asyncio.ensure_future(shard.sweep(1 << 60))
    await asyncio.sleep(0)  # noqa: TID251 (no time passes)
    assert not sweeping.done()
    changing: asyncio.Future[Any] | None = None
    if change in ("another topic", "this topic"):
        topic = "orders" if change == "this topic" else "bills"
        changing = asyncio.ensure_future(ann.join("g", client_id="second", protocols=one_of(topic)))
    elif change == "a commit":
        changing = asyncio.ensure_future(ann.commit("g", {("orders", 0): 2}, member))
    await sweeping
    if changing is not None and change != "a commit":
        changing.cancel()
    elif changing is not None:
        await changing
    await shard.writer.flush()
    expected = {"a commit": {("orders", 0): 2}, "nothing": {}}.get(change, {("orders", 0): 1})
    assert await ann.committed("g") == expected


async def test_an_answer_about_subscriptions_is_kept_while_they_stay(world: CoordinatorWorld) -> None:
    many = subscription("orders", *[f"t{number}" for number in range(50_000)])
    last = subscription(*[f"t{number}" for number in range(50_000)], "bills")
    ann = await world.coordinator("ann", replace(ONE_SHARD, retention_ms=1))
    ways = (AssignmentProtocol("range", many), AssignmentProtocol("sticky", last))
    member = await ann.member("g", protocols=ways)
    await ann.commit("g", {("orders", 0): 1, ("bills", 0): 1}, member)
    await world.clock.sleep_ms(5)
    assert await turns_of_sweep(ann) >= 5
    assert await turns_of_sweep(ann) <= 2
    assert await ann.committed("g") == {("orders", 0): 1, ("bills", 0): 1}


async def test_deleting_offsets_reads_subscriptions_in_turns(world: CoordinatorWorld) -> None:
    ann = await world.coordinator("ann", ONE_SHARD)
    last = subscription(*[f"t{number}" for number in range(50_000)], "bills")
    member = await ann.member("g", protocols=(AssignmentProtocol("range", last),))
    await ann.commit("g", {("orders", 0): 1, ("bills", 0): 1}, member)
    asked = [TopicPartition("orders", 0), TopicPartition("bills", 0)]
    deleting = asyncio.ensure_future(ann.service.delete_offsets("g", asked))
    turns = 0
    while ("orders", 0) in await ann.committed("g"):
        await asyncio.sleep(0)  # noqa: TID251 (no time passes)
        turns += 1
    assert turns >= 5
    assert {each.topic: error is None for each, error in (await deleting).items()} == {"orders": True, "bills": False}
