"""Consumer groups over the wire, in every version of every API."""

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.support.cluster import FEW_SHARDS
from tests.support.group import subscription
from tests.support.kafka_admin import Admin, admin_of, code, versions
from tests.support.kafka_groups import committed, join_request, joined, stable, synced
from tests.support.kafka_wire import version_params
from tests.support.waiting import async_until

from holdfast.gateways.kafka import groups
from holdfast.gateways.kafka.errors import code_of, group_code_of
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.groups.errors import GroupRefusal, GroupRefusedError, NotCoordinatorError, ShardLoadingError
from holdfast.groups.keys import shard_resource
from holdfast.groups.shard import GroupShard
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kernel.keys import holder_key
from holdfast.vocabulary.errors import FencedError, OutcomeUnknownError, UnavailableError

TRANSACTION, SHARE = 1, 2


@pytest_asyncio.fixture
async def admin(tmp_path: Path) -> AsyncIterator[Admin]:
    async with admin_of(tmp_path, topics={"orders": 4}) as made:
        agent = made.gateway.node.agent
        await async_until(
            lambda: agent.groups.leading is not None and len(agent.groups.leading.shards()) == FEW_SHARDS.shards
        )
        yield made


def coordinators(answer: Any) -> list[Any]:
    """One, before version 4."""
    return list(answer.coordinators) if hasattr(answer, "coordinators") else [answer]


async def found(admin: Admin, version: int, key: str, kind: int = 0) -> Any:
    answer = await admin.ask("FindCoordinator", version, key=key, coordinator_keys=(key,), key_type=kind)
    (coordinator,) = coordinators(answer)
    return coordinator


@pytest.mark.parametrize("version", version_params(versions("FindCoordinator")))
async def test_the_coordinator_of_a_group_is_found(admin: Admin, version: int) -> None:
    coordinator = await found(admin, version, "some/group é")
    assert code(coordinator) is ErrorCode.NONE
    assert (coordinator.node_id, coordinator.host, coordinator.port) == (admin.node, "127.0.0.1", admin.gateway.port)
    assert code(await found(admin, version, "")) is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", version_params(versions("FindCoordinator")[1:]))
@pytest.mark.parametrize("kind", [TRANSACTION, SHARE])
async def test_other_coordinator_types_are_not_supported(admin: Admin, version: int, kind: int) -> None:
    assert code(await found(admin, version, "x", kind)) is ErrorCode.INVALID_REQUEST


async def test_several_coordinators_are_found_at_once(admin: Admin) -> None:
    answer = await admin.ask("FindCoordinator", 6, coordinator_keys=("a", "b", ""))
    assert [(each.key, code(each)) for each in answer.coordinators] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.NONE),
        ("", ErrorCode.INVALID_GROUP_ID),
    ]


async def _is_found(admin: Admin, group: str) -> bool:
    return code(await found(admin, 3, group)) is ErrorCode.NONE


async def test_find_coordinator_waits_a_moment_for_a_shard_without_a_leader(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_PLACED_WAIT_MS", 60_000)
    backend = admin.backend
    await async_until(lambda: _is_found(admin, "g"), what="the shard is led")
    shard = await backend.groups.coordinator("g")
    holders = backend.cluster._holders.items
    key = holder_key(shard_resource(shard))
    held = holders.pop(key)
    asking = asyncio.ensure_future(found(admin, 3, "g"))
    other = await admin.gateway.client()
    assert code(await other.ask(12, 4, {"group_id": "g", "member_id": "x"})) is ErrorCode.UNKNOWN_MEMBER_ID
    assert not asking.done()
    holders[key] = held
    backend.cluster.changed.notify()
    assert code(await asking) is ErrorCode.NONE
    del holders[key]
    monkeypatch.setattr(groups, "_PLACED_WAIT_MS", 100)
    assert code(await found(admin, 3, "g")) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", version_params(versions("JoinGroup")))
async def test_a_member_joins(admin: Admin, version: int) -> None:
    answer = await admin.ask("JoinGroup", version, **join_request("g"))
    if version >= 4:
        assert code(answer) is ErrorCode.MEMBER_ID_REQUIRED
        answer = await admin.ask("JoinGroup", version, **join_request("g", member=answer.member_id))
    assert code(answer) is ErrorCode.NONE
    assert (answer.generation_id, answer.protocol_name, answer.leader) == (1, "range", answer.member_id)
    assert [(each.member_id, each.metadata) for each in answer.members] == [(answer.member_id, subscription("orders"))]
    if version >= 7:
        assert answer.protocol_type == "consumer"


@pytest.mark.parametrize("version", version_params(versions("JoinGroup")))
async def test_joining_is_refused_with_the_right_codes(admin: Admin, version: int) -> None:
    async def refused(**changes: Any) -> ErrorCode:
        return code(await admin.ask("JoinGroup", version, **{**join_request("g"), **changes}))

    assert await refused(group_id="") is ErrorCode.INVALID_GROUP_ID
    assert await refused(member_id="made up") is ErrorCode.UNKNOWN_MEMBER_ID
    assert await refused(session_timeout=timedelta(milliseconds=1)) is ErrorCode.INVALID_SESSION_TIMEOUT
    assert await refused(protocols=[]) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", version_params(versions("SyncGroup")))
async def test_a_member_gets_its_assignment(admin: Admin, version: int) -> None:
    member = await joined(admin, "g")
    answer = await synced(admin, "g", member, version)
    assert (code(answer), answer.assignment) == (ErrorCode.NONE, b"all of it")
    if version >= 5:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert code(await synced(admin, "g", member, version, generation_id=9)) is ErrorCode.ILLEGAL_GENERATION
    assert code(await synced(admin, "g", member, version, member_id="x")) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", version_params(versions("Heartbeat")))
async def test_heartbeats(admin: Admin, version: int) -> None:
    member = await stable(admin)

    async def beat(**changes: Any) -> ErrorCode:
        given = {"group_id": "g", "generation_id": member.generation_id, "member_id": member.member_id}
        return code(await admin.ask("Heartbeat", version, **{**given, **changes}))

    assert await beat() is ErrorCode.NONE
    assert await beat(generation_id=7) is ErrorCode.ILLEGAL_GENERATION
    assert await beat(member_id="x") is ErrorCode.UNKNOWN_MEMBER_ID
    assert await beat(group_id="other") is ErrorCode.UNKNOWN_MEMBER_ID
    assert await beat(group_id="") is ErrorCode.INVALID_GROUP_ID
    other = await admin.gateway.client()
    newcomer = asyncio.ensure_future(other.ask(11, 0, join_request("g")))
    await async_until(lambda: admin.backend.groups.counters.joins >= 3)
    assert await beat() is ErrorCode.REBALANCE_IN_PROGRESS
    newcomer.cancel()


@pytest.mark.parametrize("version", version_params(versions("LeaveGroup")))
async def test_a_member_leaves(admin: Admin, version: int) -> None:
    member = await stable(admin)
    given = {"group_id": "g", "member_id": member.member_id, "members": [{"member_id": member.member_id}]}
    answer = await admin.ask("LeaveGroup", version, **given)
    assert code(answer) is ErrorCode.NONE
    again = await admin.ask("LeaveGroup", version, **given)
    if version >= 3:
        assert [code(each) for each in answer.members] == [ErrorCode.NONE]
        assert [code(each) for each in again.members] == [ErrorCode.UNKNOWN_MEMBER_ID]
    else:
        assert code(again) is ErrorCode.UNKNOWN_MEMBER_ID


async def test_the_response_to_leave_group_is_delayed(admin: Admin) -> None:
    """librdkafka hangs if it comes before its callback has returned: tests/clients/FINDINGS.md."""
    member, backend = await stable(admin), admin.backend
    object.__setattr__(backend, "settings", replace(backend.settings, leave_answer_ms=1_000))
    began_ms = backend.clock.boot_ms()
    await admin.ask("LeaveGroup", group_id="g", members=[{"member_id": member.member_id}])
    assert backend.clock.boot_ms() - began_ms >= 1_000
    assert KafkaSettings().leave_answer_ms > 0


def group_of(admin: Admin, name: str = "g") -> Any:
    assert admin.backend.groups.leading is not None
    (found,) = (each.groups[name] for each in admin.backend.groups.leading.shards() if name in each.groups)
    return found


async def test_several_members_leave_by_instance_id(admin: Admin) -> None:
    other = await admin.gateway.client()
    first = await joined(admin, "g", 9, group_instance_id="a")
    joining = asyncio.ensure_future(other.ask(11, 9, join_request("g", group_instance_id="b")))
    await async_until(lambda: len(group_of(admin).members) == 2)
    one = await joined(admin, "g", 9, member=first.member_id, group_instance_id="a")
    assert one.generation_id == (await joining).generation_id == 2
    answer = await admin.ask(
        "LeaveGroup",
        group_id="g",
        members=[{"member_id": "", "group_instance_id": name} for name in ("a", "b", "c")],
    )
    assert [(each.group_instance_id, code(each)) for each in answer.members] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.NONE),
        ("c", ErrorCode.UNKNOWN_MEMBER_ID),
    ]


@pytest.mark.parametrize("version", version_params(versions("JoinGroup")[5:]))
async def test_a_static_member_that_restarts_is_in_the_same_generation(admin: Admin, version: int) -> None:
    first = await stable(admin, group_instance_id="a")
    again = await joined(admin, "g", version, group_instance_id="a")
    assert again.generation_id == first.generation_id
    assert again.member_id != first.member_id
    if version >= 9:
        assert again.skip_assignment
        assert again.leader == again.member_id
    else:
        assert again.leader != again.member_id
    given = {"group_id": "g", "generation_id": first.generation_id, "group_instance_id": "a"}
    fenced = await admin.ask("Heartbeat", **given, member_id=first.member_id)
    assert code(fenced) is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", version_params(versions("DescribeGroups")))
async def test_groups_are_described(admin: Admin, version: int) -> None:
    member = await stable(admin)
    answer = await admin.ask("DescribeGroups", version, groups=("g", "nobody"), include_authorized_operations=True)
    group, nobody = answer.groups
    assert (code(group), group.group_state, group.protocol_type, group.protocol_data) == (
        ErrorCode.NONE,
        "Stable",
        "consumer",
        "range",
    )
    (shown,) = group.members
    assert (shown.member_id, shown.client_id, shown.client_host) == (member.member_id, "tests", "/127.0.0.1")
    assert (shown.member_metadata, shown.member_assignment) == (subscription("orders"), b"all of it")
    assert nobody.group_state == "Dead"
    assert code(nobody) is (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)
    if version >= 6:
        assert nobody.error_message == "Group nobody not found."


@pytest.mark.parametrize("version", version_params(versions("ListGroups")))
async def test_groups_are_listed(admin: Admin, version: int) -> None:
    await stable(admin)
    await committed(admin, "simple", {0: 1})
    answer = await admin.ask("ListGroups", version)
    assert code(answer) is ErrorCode.NONE
    assert [(each.group_id, each.protocol_type) for each in answer.groups] == [("g", "consumer"), ("simple", "")]
    if version >= 4:
        assert [each.group_state for each in answer.groups] == ["Stable", "Empty"]
        only = await admin.ask("ListGroups", version, states_filter=("stable", "dead"))
        assert [each.group_id for each in only.groups] == ["g"]
        assert (await admin.ask("ListGroups", version, states_filter=("odd",))).groups == ()
    if version >= 5:
        assert {each.group_type for each in answer.groups} == {"classic"}
        assert len((await admin.ask("ListGroups", version, types_filter=("Classic",))).groups) == 2
        assert (await admin.ask("ListGroups", version, types_filter=("consumer",))).groups == ()


@pytest.mark.parametrize("version", version_params(versions("DeleteGroups")))
async def test_groups_are_deleted(admin: Admin, version: int) -> None:
    await stable(admin)
    await committed(admin, "simple", {0: 1})
    answer = await admin.ask("DeleteGroups", version, groups_names=("g", "simple", "nobody"))
    assert [(each.group_id, code(each)) for each in answer.results] == [
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("simple", ErrorCode.NONE),
        ("nobody", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    assert [each.group_id for each in (await admin.ask("ListGroups")).groups] == ["g"]


async def test_a_node_that_does_not_coordinate_returns_not_coordinator(admin: Admin) -> None:
    admin.backend.groups.leading = None
    assert code(await admin.ask("JoinGroup", **join_request("g"))) is ErrorCode.NOT_COORDINATOR
    assert code(await admin.ask("Heartbeat", group_id="g", generation_id=1)) is ErrorCode.NOT_COORDINATOR
    (group,) = (await admin.ask("DescribeGroups", groups=("g",))).groups
    assert code(group) is ErrorCode.NOT_COORDINATOR
    assert (await admin.ask("ListGroups")).groups == ()
    assert await committed(admin, "g", {0: 1}) == [ErrorCode.NOT_COORDINATOR]
    for version in versions("OffsetFetch")[:-1]:
        asked = [{"name": "orders", "partition_indexes": (0,)}]
        given = {"group_id": "g", "topics": asked, "groups": [{"group_id": "g", "topics": asked}]}
        answer = await admin.ask("OffsetFetch", version, **given)
        if version == 1:
            assert code(answer.topics[0].partitions[0]) is ErrorCode.NOT_COORDINATOR
        else:
            assert code(answer.groups[0] if version >= 8 else answer) is ErrorCode.NOT_COORDINATOR


async def test_a_new_member_that_hangs_up_while_it_waits_is_removed(admin: Admin) -> None:
    member = await stable(admin)
    other = await admin.gateway.client()
    await other.send(11, 0, join_request("g"))
    group = group_of(admin)
    await async_until(lambda: len(group.members) == 2)
    other.close()
    await async_until(lambda: len(group.members) == 1)
    again = await joined(admin, "g", member=member.member_id)
    assert [each.member_id for each in again.members] == [member.member_id]


async def test_group_shards_are_never_listed_as_a_topic(admin: Admin) -> None:
    await stable(admin)
    answer = await admin.ask("Metadata", topics=None)
    assert [topic.name for topic in answer.topics] == ["orders"]


class Loading:
    """A coordinator that still reads what its predecessor wrote."""

    def shard(self, number: int) -> GroupShard | None:
        raise ShardLoadingError(number)

    def shards(self) -> Collection[GroupShard]:
        return ()


async def test_members_retry_while_their_coordinator_is_loading(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    member = await stable(admin)
    about = {"group_id": "g", "member_id": member.member_id, "generation_id": member.generation_id}
    monkeypatch.setattr(admin.backend.groups, "leading", Loading())
    assert code(await admin.ask("Heartbeat", **about)) is ErrorCode.NONE
    assert code(await synced(admin, "g", member)) is ErrorCode.REBALANCE_IN_PROGRESS
    join = join_request("g", member=member.member_id)
    assert code(await admin.ask("JoinGroup", **join)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_every_refusal_has_its_code() -> None:
    codes = {refusal: code_of(GroupRefusedError("g", refusal)) for refusal in GroupRefusal}
    assert len({each for each in codes.values() if each is not ErrorCode.INVALID_REQUEST}) == len(GroupRefusal) - 1
    assert group_code_of(NotCoordinatorError("g", 1)) is ErrorCode.NOT_COORDINATOR
    assert group_code_of(ShardLoadingError(1)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert group_code_of(UnavailableError("store", "away")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group_code_of(OutcomeUnknownError("1", "lost")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group_code_of(FencedError("r", 1, 2)) is ErrorCode.NOT_COORDINATOR
