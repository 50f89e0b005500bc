"""Groups of the newer protocol (KIP-848), which are not supported yet.

    ConsumerGroupHeartbeat  68   versions 0–1   (UNSUPPORTED_VERSION, as Apache Kafka answers where the feature is off)

It is answered, although it could be left out of ApiVersions: librdkafka with `group.protocol=consumer` waits for ever for a broker
that has it, and fails at once where it is refused. Java's consumer fails at once either way.
"""

from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import Operation, ResourceType

_NOT_SUPPORTED: Final = (
    "the consumer group protocol (KIP-848) is not supported by Holdfast yet: set group.protocol=classic"
)


async def consumer_group_heartbeat(call: RequestContext, request: Any) -> ResponseFields:
    """Reject."""
    allowed = call.allows(Operation.READ, ResourceType.GROUP, request.group_id)
    return {
        "error_code": ErrorCode.UNSUPPORTED_VERSION if allowed else ErrorCode.GROUP_AUTHORIZATION_FAILED,
        "error_message": _NOT_SUPPORTED if allowed else "Group authorization failed.",
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval": 0,
        "assignment": None,
    }


APIS: Final = (
    Api(key=ApiKey.CONSUMER_GROUP_HEARTBEAT, versions=(0, 1), flexible_from=0, control=consumer_group_heartbeat),
)
