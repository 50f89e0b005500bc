"""Groups with large subscriptions and assignments: what is stored of them, and what happens at the limits."""

import asyncio
import hashlib
import logging
import pickle
from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import pytest
import pytest_asyncio
from tests.support.group import refused_with, subscription
from tests.support.group_coordinators import FAST_SETTINGS, Coordinator, CoordinatorWorld

from holdfast.contracts.store import Put, Store
from holdfast.groups.errors import GroupRefusal, GroupRefusedError, LimitReached
from holdfast.groups.keys import group_key, groups_prefix
from holdfast.groups.model import AssignmentProtocol, GroupState, JoinResult, LeaveRequest
from holdfast.vocabulary.settings import KIB

TOPICS = [f"orders-of-customer-region-{number:05d}" for number in range(1_000)]
ONE_SHARD = replace(FAST_SETTINGS, shards=1, initial_delay_ms=300)


def pattern_subscription(*names: str) -> tuple[AssignmentProtocol, ...]:
    """What a consumer sends that subscribes by pattern to a thousand topics."""
    metadata = subscription(*TOPICS)
    return tuple(AssignmentProtocol(name, bytes(bytearray(metadata))) for name in names)


def noise(size_bytes: int) -> bytes:
    """Bytes that cannot be compressed."""
    return hashlib.shake_128(b"noise").digest(size_bytes)


@pytest_asyncio.fixture
async def world(store: Store) -> AsyncIterator[CoordinatorWorld]:
    made = CoordinatorWorld(store)
    yield made
    await made.end()


async def stable(ann: Coordinator, count: int, each: bytes) -> list[JoinResult]:
    """A stable group of so many members with a thousand topics, the leader first."""
    protocols = pattern_subscription("range", "roundrobin")
    joined = await asyncio.gather(*(ann.join("g", protocols=protocols) for _ in range(count)))
    joined.sort(key=lambda member: member.member_id != member.leader)
    assigned = {member.member_id: each for member in joined}
    synced = await asyncio.gather(*(ann.sync("g", member, assigned) for member in joined))
    assert {result.assignment for result in synced} == {each}
    return joined


async def stored(world: CoordinatorWorld) -> dict[str, object]:
    """The record of the group."""
    entry = await world.store.get(group_key(0, "g"))
    assert entry is not None
    found = msgspec.json.decode(entry.value)
    assert isinstance(found, dict)
    return found


async def test_many_members_subscribe_to_a_thousand_topics(world: CoordinatorWorld) -> None:
    ann = await world.coordinator(settings=ONE_SHARD)
    members = await stable(ann, 50, b"partitions")
    entry = await world.store.get(group_key(0, "g"))
    assert entry is not None
    assert len(entry.value) < 40 * KIB
    bob = await world.coordinator("bob", settings=ONE_SHARD)
    described = await bob.service.describe("g")
    assert described.state is GroupState.STABLE
    assert {each.id: (each.metadata, each.assignment) for each in described.members} == {
        each.member_id: (subscription(*TOPICS), b"partitions") for each in members
    }
    await bob.commit("g", {("orders", 0): 1}, members[0])


async def test_a_group_reads_half_a_million_partitions(world: CoordinatorWorld) -> None:
    ann = await world.coordinator(settings=ONE_SHARD)
    partitions = b"".join(number.to_bytes(4, "big") for number in range(5_000))
    each = b"".join(topic.encode() + partitions for topic in TOPICS[:50])
    members = await stable(ann, 2, each)
    bob = await world.coordinator("bob", settings=ONE_SHARD)
    assert (await bob.sync("g", members[1])).assignment == each


async def test_a_group_too_large_for_its_record_goes_on_and_rebalances_under_a_new_coordinator(
    world: CoordinatorWorld, caplog: pytest.LogCaptureFixture
) -> None:
    ann = await world.coordinator(settings=ONE_SHARD)
    with caplog.at_level(logging.WARNING, logger="holdfast.groups"):
        members = await stable(ann, 2, noise(500_000))
        await ann.commit("g", {("orders", 0): 1}, members[1])
        await ann.service.leave("g", [LeaveRequest(members[1].member_id)])
        again = await ann.join("g", member_id=members[0].member_id)
        await ann.sync("g", again, {again.member_id: noise(900_000)})
    [warning] = [record.getMessage() for record in caplog.records]
    assert "'g'" in warning
    assert f"groups.record_bytes_max = {ONE_SHARD.record_bytes_max}" in warning
    assert (await stored(world))["members_left_out"] == 1
    bob = await world.coordinator("bob", settings=ONE_SHARD)
    assert await bob.committed("g") == {("orders", 0): 1}
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        await bob.commit("g", {("orders", 0): 2}, again)
    with refused_with(GroupRefusal.UNKNOWN_MEMBER):
        await bob.service.heartbeat("g", member_id=again.member_id, generation=again.generation)
    assert (await bob.member("g")).generation > again.generation


async def test_a_small_group_is_stored_as_people_can_read_it(world: CoordinatorWorld) -> None:
    ann = await world.coordinator(settings=ONE_SHARD)
    member = await ann.member("g")
    record = await stored(world)
    assert [each["id"] for each in msgspec.convert(record["members"], list[dict[str, object]])] == [member.member_id]
    assert not {"packed", "members_left_out"} & record.keys()


async def test_large_and_small_changes_are_written_in_their_order(world: CoordinatorWorld) -> None:
    ann = await world.coordinator(settings=ONE_SHARD)
    members = await stable(ann, 3, b"")
    commits = [ann.commit("g", {("orders", number): number}, members[0]) for number in range(20)]
    joins = [ann.member(f"small-{number}") for number in range(20)]
    await asyncio.gather(*commits, *joins)
    await ann.service.leave("g", [LeaveRequest(each.member_id) for each in members])
    await ann.handler._shards[0].writer.flush()
    assert (await stored(world))["state"] == GroupState.EMPTY
    assert len((await world.store.scan(groups_prefix(0), groups_prefix(0) + "~")).entries) == 21


async def test_a_record_of_the_previous_format_is_read(world: CoordinatorWorld) -> None:
    value = (
        b'{"group":"g","state":"Stable","generation":3,"protocol_type":"consumer","protocol":"range","leader":"m",'
        b'"members":[{"id":"m","client_id":"app","session_timeout_ms":10000,"rebalance_timeout_ms":60000,'
        b'"protocols":[["range","AAA="]],"assignment":"AAE="}],"empty_since_ms":null,"format":1}'
    )
    await world.store.commit(apply=(Put(group_key(0, "g"), value),))
    ann = await world.coordinator(settings=ONE_SHARD)
    [member] = (await ann.service.describe("g")).members
    assert (member.id, member.metadata, member.assignment) == ("m", b"\0\0", b"\0\1")


@pytest.mark.parametrize("packed", ["AAAA", "KLUv/SAAAQAA"])
async def test_damaged_members_are_an_error_of_their_shard(world: CoordinatorWorld, packed: str) -> None:
    value = (
        b'{"group":"g","state":"Stable","generation":3,"protocol_type":"consumer","protocol":"range","leader":"m",'
        b'"packed":"%s","format":2}' % packed.encode()
    )
    await world.store.commit(apply=(Put(group_key(0, "g"), value),))
    ann = await world.coordinator(settings=ONE_SHARD)
    assert f"record {group_key(0, 'g')}" in ann.handler.loading[0]


async def test_refused_members_are_warned_of_once_a_minute(
    world: CoordinatorWorld, caplog: pytest.LogCaptureFixture
) -> None:
    ann = await world.coordinator(settings=replace(ONE_SHARD, members_bytes_max=64 * KIB))
    await ann.member("g", protocols=pattern_subscription("range", "roundrobin"))
    with caplog.at_level(logging.WARNING, logger="holdfast.groups"):
        for _ in range(5):
            with refused_with(GroupRefusal.GROUP_FULL):
                await ann.join("g", protocols=(AssignmentProtocol("range", noise(60 * KIB)),))
    [warning] = [record.getMessage() for record in caplog.records]
    assert "groups.members_bytes_max = 65536" in warning
    assert ann.service.counters.joins_refused == 5


def test_a_refusal_says_which_limit_it_was() -> None:
    error = GroupRefusedError("g", GroupRefusal.GROUP_FULL, limit=LimitReached("size_max", 2, 3))
    assert str(error) == "group 'g': the group is full: 3 exceeds groups.size_max = 2"
    again = pickle.loads(pickle.dumps(error))
    assert again.limit == error.limit
