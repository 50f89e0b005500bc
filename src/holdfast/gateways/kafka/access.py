"""ACLs, SCRAM credentials and client quotas: there are none yet. Answers are those of an Apache Kafka without them.

DescribeAcls                  29   versions 1–3   (SECURITY_DISABLED, as without an authorizer)
CreateAcls                    30   versions 1–3   (the same)
DeleteAcls                    31   versions 1–3   (the same)
DescribeClientQuotas          48   versions 0–1   (no entries)
AlterClientQuotas             49   versions 0–1   (UNSUPPORTED_VERSION for each entry)
DescribeUserScramCredentials  50   version 0      (nobody has any)
AlterUserScramCredentials     51   version 0      (UNSUPPORTED_VERSION for each user)
"""

from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode

_NO_AUTHORIZER: Final[ResponseFields] = {
    "error_code": ErrorCode.SECURITY_DISABLED,
    "error_message": "No Authorizer is configured: Holdfast does not have ACLs yet.",
}


async def describe_acls(call: RequestContext, request: Any) -> ResponseFields:
    """Reject."""
    return {**_NO_AUTHORIZER, "resources": ()}


async def create_acls(call: RequestContext, request: Any) -> ResponseFields:
    """Reject each."""
    return {"results": [_NO_AUTHORIZER for _ in request.creations]}


async def delete_acls(call: RequestContext, request: Any) -> ResponseFields:
    """Reject each."""
    return {"filter_results": [{**_NO_AUTHORIZER, "matching_acls": ()} for _ in request.filters]}


async def describe_client_quotas(call: RequestContext, request: Any) -> ResponseFields:
    """None."""
    return {"error_code": ErrorCode.NONE, "error_message": None, "entries": ()}


async def alter_client_quotas(call: RequestContext, request: Any) -> ResponseFields:
    """Reject each."""
    return {
        "entries": [
            {
                "error_code": ErrorCode.UNSUPPORTED_VERSION,
                "error_message": "client quotas are not supported by Holdfast yet",
                "entity": [{"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity],
            }
            for entry in request.entries
        ]
    }


async def describe_user_scram_credentials(call: RequestContext, request: Any) -> ResponseFields:
    """Nobody has any: those who are asked for by name are not found."""
    names = dict.fromkeys(each.name for each in request.users or ())
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "results": [{**_no_credential(name, "describe"), "credential_infos": ()} for name in names],
    }


async def alter_user_scram_credentials(call: RequestContext, request: Any) -> ResponseFields:
    """Reject each user once."""
    results = {each.name: _no_credential(each.name, "delete") for each in request.deletions}
    for each in request.upsertions:
        results[each.name] = {
            "user": each.name,
            "error_code": ErrorCode.UNSUPPORTED_VERSION,
            "error_message": "SCRAM credentials are not supported by Holdfast yet: its listeners have no authentication",
        }
    return {"results": list(results.values())}


def _no_credential(user: str, action: str) -> ResponseFields:
    return {
        "user": user,
        "error_code": ErrorCode.RESOURCE_NOT_FOUND,
        "error_message": f"Attempt to {action} a user credential that does not exist: {user[:200]}",
    }


APIS: Final = (
    Api(key=ApiKey.DESCRIBE_ACLS, versions=(1, 3), flexible_from=2, control=describe_acls),
    Api(key=ApiKey.CREATE_ACLS, versions=(1, 3), flexible_from=2, control=create_acls),
    Api(key=ApiKey.DELETE_ACLS, versions=(1, 3), flexible_from=2, control=delete_acls),
    Api(key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), flexible_from=1, control=describe_client_quotas),
    Api(key=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible_from=1, control=alter_client_quotas),
    Api(
        key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        versions=(0, 0),
        flexible_from=0,
        control=describe_user_scram_credentials,
    ),
    Api(
        key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible_from=0, control=alter_user_scram_credentials
    ),
)
