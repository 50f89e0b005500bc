"""Consumer groups: finding the coordinator, membership, administration.

    FindCoordinator  10   versions 0–6   (groups; see below)
    JoinGroup        11   versions 0–9
    Heartbeat        12   versions 0–4
    LeaveGroup       13   versions 0–5
    SyncGroup        14   versions 0–5
    DescribeGroups   15   versions 0–6
    ListGroups       16   versions 0–5
    DeleteGroups     42   versions 0–2

The rules are in `holdfast.groups`; this module only translates requests and responses. A call that waits for other members
(JoinGroup, SyncGroup) takes that long.

Not implemented: coordinators of transactions (see `transactions`) and of share groups (INVALID_REQUEST), groups of the newer
protocol (every group is of type "classic").
"""

from datetime import timedelta
from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.errors import group_code_of, not_authorized
from holdfast.gateways.kafka.leaders import broker
from holdfast.gateways.kafka.placement_wait import wait_until
from holdfast.gateways.kafka.transactions import NOT_SUPPORTED, refusal_for
from holdfast.groups.errors import GroupRefusal, GroupRefusedError, ShardLoadingError
from holdfast.groups.keys import shard_resource
from holdfast.groups.model import (
    AssignmentProtocol,
    GroupDescription,
    GroupState,
    JoinRequest,
    LeaveRequest,
    SyncRequest,
)
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.enums import AUTHORIZED_OPERATIONS_OMITTED, CoordinatorType
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import NO_GENERATION, NO_NODE
from holdfast.security.acls import Operation, ResourceType
from holdfast.vocabulary.batching import in_batches
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.types import Member

_PLACED_WAIT_MS: Final = 1_000  # clients look up coordinators before a server that just started has any
_CLASSIC: Final = "classic"
_LEAVING_TOGETHER: Final = 100
_FIRST_WITH_REQUIRED_ID: Final = 4  # of JoinGroup
_FIRST_WITH_SKIPPING: Final = 9
_FIRST_WITH_NOT_FOUND: Final = 6  # of DescribeGroups
_STATES: Final = {state.lower(): state for state in GroupState}


async def find_coordinator(call: RequestContext, request: Any) -> ResponseFields:
    """The coordinators of groups: one key, or several from version 4 on."""
    kind = getattr(request, "key_type", CoordinatorType.GROUP)
    keys = request.coordinator_keys if hasattr(request, "coordinator_keys") else (request.key,)
    deadline_ms = call.backend.clock.boot_ms() + _PLACED_WAIT_MS
    found = [await _coordinator(call, kind, key, deadline_ms) async for key in call.each(dict.fromkeys(keys))]
    return {"coordinators": found, **(found[0] if found else {})}


async def _coordinator(call: RequestContext, kind: int, key: str, deadline_ms: int) -> dict[str, object]:
    backend = call.backend
    none = {"key": key, "node_id": NO_NODE, "host": "", "port": NO_NODE}
    if kind == CoordinatorType.TRANSACTION:
        if not call.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
            return {**none, **_refusal(not_authorized(ResourceType.TRANSACTIONAL_ID))}
        return {**none, "error_code": refusal_for(call.peer), "error_message": NOT_SUPPORTED}
    if kind != CoordinatorType.GROUP:
        return {**none, "error_code": ErrorCode.INVALID_REQUEST, "error_message": f"key type {kind} is not supported"}
    if not key:
        return {
            **none,
            "error_code": ErrorCode.INVALID_GROUP_ID,
            "error_message": "invalid group id '': must not be empty",
        }
    try:
        _check_authorized(call, Operation.DESCRIBE, key)
        shard = await backend.groups.coordinator(key)
    except HoldfastError as error:
        return {**none, **_refusal(error)}
    await wait_until(backend, lambda: _shard_leader(backend, shard) is not None, deadline_ms - backend.clock.boot_ms())
    member = _shard_leader(backend, shard)
    if member is None:
        text = f"group shard {shard} has no coordinator"
        return {**none, "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE, "error_message": text}
    node = broker(member)
    return {
        "key": key,
        "node_id": node.node,
        "host": node.host,
        "port": node.port,
        "error_code": ErrorCode.NONE,
        "error_message": None,
    }


def _refusal(error: HoldfastError) -> dict[str, object]:
    return {"error_code": group_code_of(error), "error_message": str(error)}


def _check_authorized(call: RequestContext, operation: Operation, group_id: str) -> None:
    if not call.allows(operation, ResourceType.GROUP, group_id):
        raise not_authorized(ResourceType.GROUP)


def _shard_leader(backend: KafkaBackend, shard: int) -> Member | None:
    """The agent that coordinates a shard, if it has an address."""
    held = backend.cluster.holder(shard_resource(shard))
    member = backend.cluster.reachable_member(held.holder) if held is not None else None
    return member if member is not None and member.address else None


async def join_group(call: RequestContext, request: Any) -> ResponseFields:
    """Join the group's next generation."""
    session_timeout_ms = _ms(request.session_timeout)
    rebalance_timeout = getattr(request, "rebalance_timeout", None)
    protocols = [AssignmentProtocol(each.name, bytes(each.metadata)) async for each in call.each(request.protocols)]
    join = JoinRequest(
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=call.client_id or "",
        client_host=f"/{call.peer.host}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout is None else _ms(rebalance_timeout),
        protocol_type=request.protocol_type,
        protocols=tuple(protocols),
        require_known_member_id=call.version >= _FIRST_WITH_REQUIRED_ID,
        supports_skipping_assignment=call.version >= _FIRST_WITH_SKIPPING,
        reason=getattr(request, "reason", None) or "",
    )
    try:
        _check_authorized(call, Operation.READ, request.group_id)
        joined = await call.backend.groups.join(request.group_id, join)
    except HoldfastError as error:
        given = error.member_id if isinstance(error, GroupRefusedError) else ""
        return {
            "error_code": group_code_of(error),
            "generation_id": NO_GENERATION,
            "protocol_type": None,
            "protocol_name": "",
            "leader": "",
            "member_id": given or request.member_id,
            "members": (),
        }
    return {
        "error_code": ErrorCode.NONE,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol,
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {"member_id": each.id, "group_instance_id": each.instance_id, "metadata": each.metadata}
            for each in joined.members
        ],
    }


async def sync_group(call: RequestContext, request: Any) -> ResponseFields:
    """Get the assignment; the group's leader sends those of all members."""
    sync = SyncRequest(
        member_id=request.member_id,
        generation=request.generation_id,
        instance_id=getattr(request, "group_instance_id", None),
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
        assignments={each.member_id: bytes(each.assignment) async for each in call.each(request.assignments)},
    )
    try:
        _check_authorized(call, Operation.READ, request.group_id)
        synced = await call.backend.groups.sync(request.group_id, sync)
    except ShardLoadingError:
        # A member that was joining has to join again: the only code that makes every client do so.
        return {"error_code": ErrorCode.REBALANCE_IN_PROGRESS, "assignment": b""}
    except HoldfastError as error:
        return {"error_code": group_code_of(error), "assignment": b""}
    return {
        "error_code": ErrorCode.NONE,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


async def heartbeat(call: RequestContext, request: Any) -> ResponseFields:
    """Renew a member's session."""
    try:
        _check_authorized(call, Operation.READ, request.group_id)
        await call.backend.groups.heartbeat(
            request.group_id,
            member_id=request.member_id,
            generation=request.generation_id,
            instance_id=getattr(request, "group_instance_id", None),
        )
    except ShardLoadingError:
        pass  # the member may still be known; aiokafka handles no other code
    except HoldfastError as error:
        return {"error_code": group_code_of(error)}
    return {"error_code": ErrorCode.NONE}


async def leave_group(call: RequestContext, request: Any) -> ResponseFields:
    """Leave: one member, or several from version 3 on."""
    if hasattr(request, "members"):
        leaving = [
            LeaveRequest(each.member_id, each.group_instance_id, getattr(each, "reason", None) or "")
            async for each in call.each(request.members)
        ]
    else:
        leaving = [LeaveRequest(request.member_id)]
    try:
        _check_authorized(call, Operation.READ, request.group_id)
        left = [
            each
            async for some in call.each(in_batches(leaving, _LEAVING_TOGETHER) if leaving else ((),))
            for each in await call.backend.groups.leave(request.group_id, some)
        ]
    except HoldfastError as error:
        return {"error_code": group_code_of(error), "members": ()}
    codes = [ErrorCode.NONE if each.error is None else group_code_of(each.error) async for each in call.each(left)]
    await call.backend.clock.sleep_ms(call.backend.settings.leave_answer_ms)
    return {
        "error_code": ErrorCode.NONE if hasattr(request, "members") else codes[0],
        "members": [
            {
                "member_id": each.leaving.member_id,
                "group_instance_id": each.leaving.instance_id,
                "error_code": code,
            }
            for each, code in zip(left, codes, strict=True)
        ],
    }


async def describe_groups(call: RequestContext, request: Any) -> ResponseFields:
    """Descriptions of groups, each on its own, and once: a group may be a thousand times as large as its name."""
    include = getattr(request, "include_authorized_operations", False)
    groups = []
    async for group_id in call.each(dict.fromkeys(request.groups)):
        operations = call.operations(ResourceType.GROUP, group_id) if include else AUTHORIZED_OPERATIONS_OMITTED
        try:
            _check_authorized(call, Operation.DESCRIBE, group_id)
            described = _described(await call.backend.groups.describe(group_id))
        except HoldfastError as error:
            described = _not_described(group_id, error, call.version)
        groups.append({**described, "authorized_operations": operations})
    return {"groups": groups}


def _described(group: GroupDescription) -> dict[str, object]:
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "group_id": group.id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": each.id,
                "group_instance_id": each.instance_id,
                "client_id": each.client_id,
                "client_host": each.client_host,
                "member_metadata": each.metadata,
                "member_assignment": each.assignment,
            }
            for each in group.members
        ],
    }


def _not_described(group_id: str, error: HoldfastError, version: int) -> dict[str, object]:
    """An unknown group is dead; from version 6 on, that is also an error."""
    code, state = group_code_of(error), ""
    if isinstance(error, GroupRefusedError) and error.refusal is GroupRefusal.NOT_FOUND:
        state = GroupState.DEAD
        if version < _FIRST_WITH_NOT_FOUND:
            code = ErrorCode.NONE
    return {
        "error_code": code,
        "error_message": f"Group {group_id} not found." if state else str(error),
        "group_id": group_id,
        "group_state": state,
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
    }


async def list_groups(call: RequestContext, request: Any) -> ResponseFields:
    """The groups this node coordinates: clients ask every node for its own."""
    names = [name.lower() for name in getattr(request, "states_filter", ())]
    kinds = [kind.lower() for kind in getattr(request, "types_filter", ())]
    states = [_STATES[name] for name in names if name in _STATES]
    none_match = (names and not states) or (kinds and _CLASSIC not in kinds)
    groups = () if none_match else await call.backend.groups.list(states)
    every = call.allows_cluster(Operation.DESCRIBE)
    return {
        "error_code": ErrorCode.NONE,
        "groups": [
            {
                "group_id": each.id,
                "protocol_type": each.protocol_type,
                "group_state": each.state,
                "group_type": _CLASSIC,
            }
            async for each in call.each(groups)
            if every or call.allows(Operation.DESCRIBE, ResourceType.GROUP, each.id)
        ],
    }


async def delete_groups(call: RequestContext, request: Any) -> ResponseFields:
    """Delete groups without members, each on its own."""
    results = []
    async for group_id in call.each(dict.fromkeys(request.groups_names)):
        code = ErrorCode.NONE
        try:
            _check_authorized(call, Operation.DELETE, group_id)
            await call.backend.groups.delete(group_id)
        except HoldfastError as error:
            code = group_code_of(error)
        results.append({"group_id": group_id, "error_code": code})
    return {"results": results}


def _ms(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)


APIS: Final = (
    Api(key=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible_from=3, control=find_coordinator),
    Api(key=ApiKey.JOIN_GROUP, versions=(0, 9), flexible_from=6, control=join_group, long_poll=True),
    Api(key=ApiKey.HEARTBEAT, versions=(0, 4), flexible_from=4, control=heartbeat),
    Api(key=ApiKey.LEAVE_GROUP, versions=(0, 5), flexible_from=4, control=leave_group),
    Api(key=ApiKey.SYNC_GROUP, versions=(0, 5), flexible_from=4, control=sync_group, long_poll=True),
    Api(key=ApiKey.DESCRIBE_GROUPS, versions=(0, 6), flexible_from=5, control=describe_groups),
    Api(key=ApiKey.LIST_GROUPS, versions=(0, 5), flexible_from=3, control=list_groups),
    Api(key=ApiKey.DELETE_GROUPS, versions=(0, 2), flexible_from=2, control=delete_groups),
)
