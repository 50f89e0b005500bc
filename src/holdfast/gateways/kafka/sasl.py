"""Logging in. `login` has the mechanisms and their order.

    SaslHandshake     17   versions 0–1   (0 is refused: messages without a header would follow, which no current client sends.
                                           It is listed because librdkafka before 2.6 logs in nowhere without it)
    SaslAuthenticate  36   versions 0–2   (the lifetime of the session from version 1 on)

A listener without SASL answers ILLEGAL_SASL_STATE, as Kafka's do.
"""

from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode

_NO_SASL: Final = "this listener has no SASL: set security.protocol to PLAINTEXT or SSL"


async def sasl_handshake(call: RequestContext, request: Any) -> ResponseFields:
    """Choose a mechanism."""
    security = call.backend.security
    if security is None or call.access is None or not security.mechanisms:
        return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": ()}
    if call.version == 0:
        call.access.login.refused = True
        return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "mechanisms": security.mechanisms}
    return {"error_code": call.access.login.handshake(request.mechanism), "mechanisms": security.mechanisms}


async def sasl_authenticate(call: RequestContext, request: Any) -> ResponseFields:
    """One message of the mechanism, and its answer."""
    security = call.backend.security
    if security is None or call.access is None or not security.mechanisms:
        return {"error_code": ErrorCode.ILLEGAL_SASL_STATE, "error_message": _NO_SASL, "auth_bytes": b""}
    answer = await call.access.login.authenticate(bytes(request.auth_bytes))
    return {
        "error_code": answer.code,
        "error_message": answer.message,
        "auth_bytes": answer.data,
        "session_lifetime": answer.lifetime_ms,
    }


APIS: Final = (
    Api(key=ApiKey.SASL_HANDSHAKE, versions=(0, 1), flexible_from=2, control=sasl_handshake),
    Api(key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible_from=2, control=sasl_authenticate),
)
