"""Client quotas over Kafka's own APIs. `quota_meters` and `connection_throttle` have what they do.

DescribeClientQuotas  48   versions 0–1
AlterClientQuotas     49   versions 0–1

Not implemented, and refused: `controller_mutation_rate`, and host names in place of IP addresses.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.errors import CLUSTER_NOT_AUTHORIZED, ApiError, code_of
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.enums import QuotaMatchType
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import Operation
from holdfast.security.client_quotas import DEFAULT, Quota, QuotaEntity, canonical_ip
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"
_KINDS: Final = (_USER, _CLIENT_ID, _IP)
_ALLOWED: Final = "must be user, client-id or ip"
_DONE: Final[ResponseFields] = {"error_code": ErrorCode.NONE, "error_message": None}


async def describe_client_quotas(call: RequestContext, request: Any) -> ResponseFields:
    """The entities that every component of the filter matches, with their limits."""
    if not call.allows_cluster(Operation.DESCRIBE_CONFIGS):
        return {**CLUSTER_NOT_AUTHORIZED, "entries": None}
    try:
        wanted = _filter(request.components)
        found = await call.backend.quotas.store.quotas()
    except HoldfastError as error:
        return {"error_code": code_of(error), "error_message": str(error), "entries": None}
    entries = [
        {"entity": _listed(entity), "values": [{"key": str(key), "value": value} for key, value in limits.items()]}
        for entity, limits in found.items()
        if _matches(entity, wanted, strict=request.strict)
    ]
    return {**_DONE, "entries": entries}


def _filter(components: Iterable[Any]) -> dict[str, tuple[QuotaMatchType, str | None]]:
    wanted: dict[str, tuple[QuotaMatchType, str | None]] = {}
    for each in components:
        kind = each.entity_type
        if kind not in _KINDS:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"unknown entity type {kind[:80]!r}: {_ALLOWED}")
        if kind in wanted:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"duplicate entity type {kind!r}")
        try:
            match = QuotaMatchType(each.match_type)
        except ValueError:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"unknown match type {each.match_type}") from None
        if match is QuotaMatchType.EXACT and not each.match:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"an exact match of {kind!r} needs a name")
        name = each.match
        if kind == _IP and match is QuotaMatchType.EXACT:
            name = canonical_ip(name)
        wanted[kind] = match, name
    if _IP in wanted and len(wanted) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "invalid filter: ip should not be combined with a filter of user or client-id"
        )
    return wanted


def _matches(entity: QuotaEntity, wanted: Mapping[str, tuple[QuotaMatchType, str | None]], *, strict: bool) -> bool:
    names = _names(entity)
    if strict and names.keys() != wanted.keys():
        return False
    for kind, (match, name) in wanted.items():
        if kind not in names:
            return False
        if match is QuotaMatchType.EXACT and names[kind] != name:
            return False
        if match is QuotaMatchType.DEFAULT and names[kind] != DEFAULT:
            return False
    return True


def _names(entity: QuotaEntity) -> dict[str, str]:
    named = {_USER: entity.user, _CLIENT_ID: entity.client_id, _IP: entity.ip}
    return {kind: name for kind, name in named.items() if name is not None}


def _listed(entity: QuotaEntity) -> list[ResponseFields]:
    return [{"entity_type": kind, "entity_name": name or None} for kind, name in _names(entity).items()]


async def alter_client_quotas(call: RequestContext, request: Any) -> ResponseFields:
    """Set and remove limits; those of an entity all or none."""
    allowed = call.allows_cluster(Operation.ALTER_CONFIGS)
    quotas, version, entries = call.backend.quotas, 0, []
    async for entry in call.each(request.entries):
        result: ResponseFields = _DONE if allowed else CLUSTER_NOT_AUTHORIZED
        if allowed:
            try:
                entity, changes = _entity(entry.entity), _changes(entry.ops)
                altered = await quotas.store.alter(entity, changes, validate_only=request.validate_only)
                version = max(version, altered)
            except HoldfastError as error:
                result = {"error_code": code_of(error), "error_message": str(error)}
        named = [{"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity]
        entries.append({**result, "entity": named})
    await quotas.seen(version)
    return {"entries": entries}


def _entity(components: Iterable[Any]) -> QuotaEntity:
    names: dict[str, str] = {}
    for each in components:
        kind, name = each.entity_type, each.entity_name
        if kind not in _KINDS:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"unknown entity type {kind[:80]!r}: {_ALLOWED}")
        if kind in names:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"duplicate entity type {kind!r}")
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"empty name of a {kind}: null is the default")
        if kind == _IP and name is not None:
            name = canonical_ip(name)
        names[kind] = DEFAULT if name is None else name
    return QuotaEntity(names.get(_USER), names.get(_CLIENT_ID), names.get(_IP))


def _changes(operations: Iterable[Any]) -> dict[Quota, float | None]:
    changes: dict[Quota, float | None] = {}
    for each in operations:
        try:
            quota = Quota(each.key)
        except ValueError:
            raise InvalidError("quota", each.key[:80], "one of " + ", ".join(Quota)) from None
        if quota in changes:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"duplicate quota {quota}")
        changes[quota] = None if each.remove else each.value
    return changes


APIS: Final = (
    Api(key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), flexible_from=1, control=describe_client_quotas),
    Api(key=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible_from=1, control=alter_client_quotas),
)
