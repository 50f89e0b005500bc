"""What a failed call means for the caller: nothing was done, nobody knows, or etcd said no.

The one rule: a write counts as not done only when etcd said so or when it surely never left; everything else is unknown.
"""

import asyncio
from enum import Enum, auto
from typing import Final

import grpc

from holdfast.vocabulary.errors import CorruptError, HoldfastError, InvalidError, UnavailableError


class CallFailure(Enum):
    """Why a call has no answer."""

    NOT_DONE = auto()  # never left, or refused before anything happened: try again, here or elsewhere
    LOST = auto()  # it may have happened
    TOKEN = auto()  # refused because the login has expired
    LEASE_GONE = auto()
    COMPACTED = auto()
    NO_SPACE = auto()  # the write that fills etcd's quota is applied, and answered like those after it, which are not
    REFUSED = auto()  # etcd will not do it, whoever asks again


class EtcdAnswerLostError(HoldfastError):
    """A call that must not be repeated was sent, and its answer did not come."""


class LeaseNotFoundError(HoldfastError):
    """etcd does not know the lease (any more); nothing was done."""


class CompactedError(HoldfastError):
    """The revision asked for is no longer kept."""


# What gRPC says when a call never got a connection, and what etcd says before it proposes anything.
_NEVER_SENT: Final = ("failed to connect to all addresses", "DNS resolution failed", "empty address list")
_NOT_PROPOSED: Final = ("etcdserver: no leader", "etcdserver: rpc not supported for learner", "etcdserver: not capable")
# Codes of answers that etcd gives instead of doing what was asked.
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
    """Judge what a call raised; the text is for people."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return CallFailure.LOST, "no answer in time" if isinstance(error, TimeoutError) else repr(error)
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
        return UnavailableError(server, f"{shown}; compact, defragment and disarm the alarm (etcdctl alarm list)")
    if shown.startswith("DATA_LOSS"):
        return CorruptError(server, shown)
    if "permission denied" in shown or failure is CallFailure.TOKEN:
        return InvalidError(f"etcd login at {server}", shown, "a user who may read and write below the prefix")
    return InvalidError(f"request to {server}", shown, "what this etcd accepts")


CALL_ERRORS: Final = (
    grpc.aio.AioRpcError,
    TimeoutError,
    asyncio.InvalidStateError,
)  # what a failed call or stream raises
