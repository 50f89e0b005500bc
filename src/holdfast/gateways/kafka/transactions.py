"""Transactions: there are none yet, so none are listed, and producers that want one are refused at once.

    DescribeTransactions  65   version 0      (TRANSACTIONAL_ID_NOT_FOUND for each)
    ListTransactions      66   versions 0–2   (none)

A transactional producer looks up its coordinator first. FindCoordinator refuses, and the code depends on the client: librdkafka
takes every code but a missing right for a passing one and asks until its timeout, so it gets that code, with the reason as the
message; other clients stop at INVALID_REQUEST and show the reason.
"""

from typing import Any, Final

from holdfast.gateways.kafka.api import Api, ClientInfo, RequestContext, ResponseFields
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import Operation, ResourceType

NOT_SUPPORTED: Final = (
    "transactions are not supported by Holdfast yet: use an idempotent producer without transactional.id"
)

_STATES: Final = frozenset(
    {
        "CompleteAbort",
        "CompleteCommit",
        "Dead",
        "Empty",
        "Ongoing",
        "PrepareAbort",
        "PrepareCommit",
        "PrepareEpochFence",
    }
)


def refusal_for(peer: ClientInfo) -> ErrorCode:
    """The code by which this client gives up at once. librdkafka and its bindings have `rdkafka` in name or version."""
    is_librdkafka = "rdkafka" in peer.software.lower()
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if is_librdkafka else ErrorCode.INVALID_REQUEST


async def list_transactions(call: RequestContext, request: Any) -> ResponseFields:
    """None."""
    unknown = [state for state in request.state_filters if state not in _STATES]
    return {"error_code": ErrorCode.NONE, "unknown_state_filters": unknown, "transaction_states": ()}


async def describe_transactions(call: RequestContext, request: Any) -> ResponseFields:
    """Not found, each."""
    return {
        "transaction_states": [
            {
                "error_code": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                if call.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each)
                else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "transactional_id": each,
                "transaction_state": "",
                "transaction_timeout": 0,
                "transaction_start_time": 0,
                "producer_id": 0,
                "producer_epoch": 0,
                "topics": (),
            }
            async for each in call.each(request.transactional_ids)
        ]
    }


APIS: Final = (
    Api(key=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), flexible_from=0, control=describe_transactions),
    Api(key=ApiKey.LIST_TRANSACTIONS, versions=(0, 2), flexible_from=0, control=list_transactions),
)
