"""What a failed call means: nothing was done, the outcome is unknown, or etcd refused.

The one rule: a write counts as not done only if etcd reported so or it was never sent; everything else is unknown.
"""

import asyncio
from enum import Enum, auto
from typing import Final

import grpc

from holdfast.vocabulary.errors import CorruptError, HoldfastError, UnavailableError, UsageError


class CallFailure(Enum):
    """Why a call failed."""

    NOT_DONE = auto()  # never sent, or refused before anything was done: retry, on any endpoint
    LOST = auto()  # it may have been done
    TOKEN = auto()  # refused because the login has expired
    LEASE_GONE = auto()
    COMPACTED = auto()
    NO_SPACE = (
        auto()
    )  # the write that fills etcd's quota is applied, yet gets this error like the later ones, which are not
    REFUSED = auto()  # a retry will not help


class LeaseNotFoundError(HoldfastError):
    """The lease does not exist, or no longer; nothing was done."""


class CompactedError(HoldfastError):
    """The requested revision was compacted."""


# gRPC's errors for a call without a connection, and etcd's before it proposes anything.
_NEVER_SENT: Final = ("failed to connect to all addresses", "DNS resolution failed", "empty address list")
_NOT_PROPOSED: Final = ("etcdserver: no leader", "etcdserver: rpc not supported for learner", "etcdserver: not capable")
# Codes of refusals: nothing was done.
_REFUSALS: Final = (
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)


def classify_failure(error: BaseException) -> tuple[CallFailure, str]:
    """Classify what a call raised, with a text for errors."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return CallFailure.LOST, "no response in time" if isinstance(error, TimeoutError) else repr(error)
    code, text = error.code(), error.details() or ""
    shown = f"{code.name}: {text}"
    if code is grpc.StatusCode.UNAVAILABLE:
        return (CallFailure.NOT_DONE if text.startswith(_NEVER_SENT + _NOT_PROPOSED) else CallFailure.LOST), shown
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "too many requests" in text:
        return CallFailure.NOT_DONE, shown
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "space" in text:
        return CallFailure.NO_SPACE, shown
    if "invalid auth token" in text or "revision of auth store is old" in text:
        return CallFailure.TOKEN, shown
    if code is grpc.StatusCode.NOT_FOUND and "lease" in text:
        return CallFailure.LEASE_GONE, shown
    if code is grpc.StatusCode.OUT_OF_RANGE and "compacted" in text:
        return CallFailure.COMPACTED, shown
    return (CallFailure.REFUSED if code in _REFUSALS else CallFailure.LOST), shown


def error_for(failure: CallFailure, shown: str, server: str) -> HoldfastError:
    """The error for a call that etcd refused for good."""
    if failure is CallFailure.LEASE_GONE:
        return LeaseNotFoundError(shown)
    if failure is CallFailure.COMPACTED:
        return CompactedError(shown)
    if failure is CallFailure.NO_SPACE:
        return UnavailableError(
            server, f"{shown}; compact, defragment and disarm the alarm: `holdfast store defragment`"
        )
    if shown.startswith("DATA_LOSS"):
        return CorruptError(server, shown)
    if "permission denied" in shown or failure is CallFailure.TOKEN:
        return UsageError(
            f"{server} denied access ({shown}): the user needs read and write permission below the prefix"
        )
    return UsageError(f"{server} refused the request: {shown}")


# What a failed call or stream raises.
CALL_ERRORS: Final = (grpc.aio.AioRpcError, TimeoutError, asyncio.InvalidStateError)
