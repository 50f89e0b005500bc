"""Client quotas: there are none yet. Answers are those of an Apache Kafka without them.

DescribeClientQuotas  48   versions 0–1   (no entries)
AlterClientQuotas     49   versions 0–1   (UNSUPPORTED_VERSION for each entry)
"""

from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.errors import CLUSTER_NOT_AUTHORIZED
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import Operation

_NOT_SUPPORTED: Final[ResponseFields] = {
    "error_code": ErrorCode.UNSUPPORTED_VERSION,
    "error_message": "client quotas are not supported by Holdfast yet",
}


async def describe_client_quotas(call: RequestContext, request: Any) -> ResponseFields:
    """None."""
    if not call.allows_cluster(Operation.DESCRIBE_CONFIGS):
        return {**CLUSTER_NOT_AUTHORIZED, "entries": None}
    return {"error_code": ErrorCode.NONE, "error_message": None, "entries": ()}


async def alter_client_quotas(call: RequestContext, request: Any) -> ResponseFields:
    """Reject each."""
    refusal = _NOT_SUPPORTED if call.allows_cluster(Operation.ALTER_CONFIGS) else CLUSTER_NOT_AUTHORIZED
    return {
        "entries": [
            {
                **refusal,
                "entity": [{"entity_type": each.entity_type, "entity_name": each.entity_name} for each in entry.entity],
            }
            for entry in request.entries
        ]
    }


APIS: Final = (
    Api(key=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), flexible_from=1, control=describe_client_quotas),
    Api(key=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible_from=1, control=alter_client_quotas),
)
