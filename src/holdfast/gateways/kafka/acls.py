"""ACLs over Kafka's own APIs.

    DescribeAcls  29   versions 1–3
    CreateAcls    30   versions 1–3
    DeleteAcls    31   versions 1–3

A listener without authentication answers SECURITY_DISABLED, as a Kafka without an authorizer: there is nobody to authorize. A
change counts on this node when it is answered, on others a moment later.

Not implemented: ACLs for delegation tokens and for users, of which there is nothing to protect (INVALID_REQUEST).
"""

from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.errors import CLUSTER_NOT_AUTHORIZED, ApiError, code_of
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.enums import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    by_resource,
)
from holdfast.security.principals import Principal
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_DISABLED: Final[ResponseFields] = {
    "error_code": ErrorCode.SECURITY_DISABLED,
    "error_message": "No Authorizer is configured: this listener has no authentication.",
}
_DONE: Final[ResponseFields] = {"error_code": ErrorCode.NONE, "error_message": None}
_UNSUPPORTED_TYPES: Final = (6, 7)  # delegation tokens, users


async def describe_acls(call: RequestContext, request: Any) -> ResponseFields:
    """The ACLs that a filter accepts, as the store has them now."""
    security = call.backend.security
    if security is None:
        return {**_DISABLED, "resources": ()}
    if not call.allows_cluster(Operation.DESCRIBE):
        return {**CLUSTER_NOT_AUTHORIZED, "resources": ()}
    try:
        wanted = _filter(request)
        found = await security.control.store.acls(wanted) if wanted is not None else []
    except HoldfastError as error:
        return {"error_code": code_of(error), "error_message": str(error), "resources": ()}
    return {
        **_DONE,
        "resources": [
            {
                **_resource(resource),
                "pattern_type": AclPatternType[resource.pattern.name],
                "acls": list(map(_entry, acls)),
            }
            for resource, acls in by_resource(found).items()
        ],
    }


async def create_acls(call: RequestContext, request: Any) -> ResponseFields:
    """Add ACLs, each on its own."""
    security = call.backend.security
    if security is None:
        return {"results": [_DISABLED] * len(request.creations)}
    if not call.allows_cluster(Operation.ALTER):
        return {"results": [CLUSTER_NOT_AUTHORIZED] * len(request.creations)}
    results: list[ResponseFields] = []
    version = 0
    async for each in call.each(request.creations):
        try:
            version = max(version, await security.control.store.create_acls([_acl(each)]))
            results.append(_DONE)
        except HoldfastError as error:
            results.append({"error_code": code_of(error), "error_message": str(error)})
    await security.control.acls_seen(version)
    return {"results": results}


async def delete_acls(call: RequestContext, request: Any) -> ResponseFields:
    """Delete the ACLs that filters accept; which they were."""
    security = call.backend.security
    if security is None:
        return {"filter_results": [{**_DISABLED, "matching_acls": ()}] * len(request.filters)}
    if not call.allows_cluster(Operation.ALTER):
        return {"filter_results": [{**CLUSTER_NOT_AUTHORIZED, "matching_acls": ()}] * len(request.filters)}
    results: list[ResponseFields] = []
    seen = 0
    async for each in call.each(request.filters):
        try:
            wanted = _filter(each)
            gone, version = await security.control.store.delete_acls(wanted) if wanted is not None else ([], 0)
            seen = max(seen, version)
            results.append({**_DONE, "matching_acls": list(map(_deleted, gone))})
        except HoldfastError as error:
            results.append({"error_code": code_of(error), "error_message": str(error), "matching_acls": ()})
    await security.control.acls_seen(seen)
    return {"filter_results": results}


def _acl(given: Any) -> Acl:
    try:
        resource = ResourcePattern(
            ResourceType[AclResourceType(given.resource_type).name],
            given.resource_name,
            PatternType[AclPatternType(given.resource_pattern_type).name],
        )
        operation = Operation[AclOperation(given.operation).name]
        permission = Permission[AclPermissionType(given.permission_type).name]
    except (ValueError, KeyError):
        text = "invalid resource type, pattern type, operation or permission: must be a specific one"
        raise ApiError(ErrorCode.INVALID_REQUEST, text) from None
    return Acl(resource, _principal(given.principal), operation, permission, given.host)


def _filter(given: Any) -> AclFilter | None:
    """None: it is about a type of which there are no ACLs."""
    if given.resource_type_filter in _UNSUPPORTED_TYPES:
        return None
    try:
        kind = AclResourceType(given.resource_type_filter)
        pattern = AclPatternType(given.pattern_type_filter)
        operation = AclOperation(given.operation)
        permission = AclPermissionType(given.permission_type)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"invalid filter: {error}") from None
    specific = pattern in (AclPatternType.LITERAL, AclPatternType.PREFIXED)
    return AclFilter(
        type=None if kind is AclResourceType.ANY else ResourceType[kind.name],
        name=given.resource_name_filter,
        pattern=PatternType[pattern.name] if specific else None,
        match=pattern is AclPatternType.MATCH,
        principal=None if given.principal_filter is None else _principal(given.principal_filter),
        host=given.host_filter,
        operation=None if operation is AclOperation.ANY else Operation[operation.name],
        permission=None if permission is AclPermissionType.ANY else Permission[permission.name],
    )


def _principal(text: str) -> Principal:
    try:
        return Principal.parse("principal", text)
    except InvalidError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None


def _resource(resource: ResourcePattern) -> dict[str, object]:
    return {"resource_type": AclResourceType[resource.type.name], "resource_name": resource.name}


def _entry(acl: Acl) -> dict[str, object]:
    return {
        "principal": str(acl.principal),
        "host": acl.host,
        "operation": AclOperation[acl.operation.name],
        "permission_type": AclPermissionType[acl.permission.name],
    }


def _deleted(acl: Acl) -> ResponseFields:
    pattern = AclPatternType[acl.resource.pattern.name]
    return {**_DONE, **_resource(acl.resource), "pattern_type": pattern, **_entry(acl)}


APIS: Final = (
    Api(key=ApiKey.DESCRIBE_ACLS, versions=(1, 3), flexible_from=2, control=describe_acls),
    Api(key=ApiKey.CREATE_ACLS, versions=(1, 3), flexible_from=2, control=create_acls),
    Api(key=ApiKey.DELETE_ACLS, versions=(1, 3), flexible_from=2, control=delete_acls),
)
