"""The one table from our errors to gRPC's canonical codes.

The rules: UNAVAILABLE is said only of what had no effect, so that clients may send it again, as their retry policies do.
DEADLINE_EXCEEDED is gRPC's own word for an outcome that is not known. The reason does not change between releases: a program
decides by it where a code has several. Credentials in URLs are redacted.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from grpc import StatusCode

from holdfast.client.types import KafkaConflictError, KafkaNotFoundError
from holdfast.gateways.http.errors import UnknownAgentError
from holdfast.gateways.http.problems import redacted_detail
from holdfast.heap.errors import (
    BatchAbortedError,
    LeaseLostError,
    MessageNotFoundError,
    ProducerFencedError,
    ResourceExhaustedError,
    SequenceForgottenError,
)
from holdfast.log.errors import NotEnoughReplicasError, NotLeaderError, OffsetOutOfRangeError
from holdfast.log.topics import TopicExistsError, UnknownTopicError
from holdfast.security.confirmations import UnconfirmedError
from holdfast.security.identity import AuthenticationError, ForbiddenError, TooManyAttemptsError
from holdfast.vocabulary.errors import (
    ClosedError,
    CorruptError,
    ExpiredError,
    FencedError,
    HoldfastError,
    InvalidError,
    OutcomeUnknownError,
    UnavailableError,
)

REASON: Final = "holdfast-reason"
_PUSHBACK: Final = ("grpc-retry-pushback-ms", "500")
_DETAIL_CHARS_MAX: Final = 1_000  # of a header, where each may take nine bytes


class RequestTimeoutError(HoldfastError):
    """The request did not arrive in time. Nothing was done: send it again."""

    def __init__(self, limit_ms: int) -> None:
        super().__init__(limit_ms)
        self.limit_ms = limit_ms

    def __str__(self) -> str:
        return f"the request did not arrive within {self.limit_ms} ms"


class UnknownServiceError(HoldfastError):
    """The server has no such service, whose health was asked for."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"there is no service {self.name[:300]!r}"


class Failure(NamedTuple):
    """The status of a failed call."""

    code: StatusCode
    reason: str
    detail: str

    @property
    def metadata(self) -> Sequence[tuple[str, str]]:
        """What is sent beside code and detail."""
        retried = (_PUSHBACK,) if self.code is StatusCode.UNAVAILABLE else ()
        return ((REASON, self.reason), *retried)


_UNAVAILABLE: Final = (StatusCode.UNAVAILABLE, "UNAVAILABLE")
_UNKNOWN: Final = (StatusCode.DEADLINE_EXCEEDED, "OUTCOME_UNKNOWN")
_INTERNAL: Final = (StatusCode.INTERNAL, "INTERNAL")

CODES: Final[tuple[tuple[type[HoldfastError], tuple[StatusCode, str]], ...]] = (
    (AuthenticationError, (StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")),
    (ForbiddenError, (StatusCode.PERMISSION_DENIED, "FORBIDDEN")),
    (TooManyAttemptsError, (StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_ATTEMPTS")),
    (UnknownTopicError, (StatusCode.NOT_FOUND, "UNKNOWN_TOPIC")),
    (UnknownAgentError, (StatusCode.NOT_FOUND, "UNKNOWN_AGENT")),
    (MessageNotFoundError, (StatusCode.NOT_FOUND, "UNKNOWN_MESSAGE")),
    (LeaseLostError, (StatusCode.FAILED_PRECONDITION, "LEASE_LOST")),
    (ProducerFencedError, (StatusCode.FAILED_PRECONDITION, "PRODUCER_FENCED")),
    (SequenceForgottenError, (StatusCode.FAILED_PRECONDITION, "SEQUENCE_FORGOTTEN")),
    (BatchAbortedError, (StatusCode.ABORTED, "BATCH_ABORTED")),
    (ResourceExhaustedError, (StatusCode.RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED")),
    (UnconfirmedError, (StatusCode.FAILED_PRECONDITION, "UNCONFIRMED")),
    (KafkaNotFoundError, (StatusCode.NOT_FOUND, "NOT_FOUND")),
    (TopicExistsError, (StatusCode.ALREADY_EXISTS, "TOPIC_EXISTS")),
    (KafkaConflictError, (StatusCode.FAILED_PRECONDITION, "CONFLICT")),
    (OffsetOutOfRangeError, (StatusCode.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE")),
    (NotLeaderError, _UNAVAILABLE),
    (NotEnoughReplicasError, _UNAVAILABLE),  # unless it was sent to some
    (InvalidError, (StatusCode.INVALID_ARGUMENT, "INVALID")),
    (UnavailableError, _UNAVAILABLE),
    (OutcomeUnknownError, _UNKNOWN),
    (FencedError, (StatusCode.FAILED_PRECONDITION, "FENCED")),
    (ExpiredError, (StatusCode.FAILED_PRECONDITION, "EXPIRED")),
    (CorruptError, (StatusCode.DATA_LOSS, "CORRUPT")),
    (ClosedError, _UNAVAILABLE),
)

# What only this gateway raises.
_OWN_CODES: Final[tuple[tuple[type[HoldfastError], tuple[StatusCode, str]], ...]] = (
    (RequestTimeoutError, (StatusCode.DEADLINE_EXCEEDED, "REQUEST_TIMEOUT")),
    (UnknownServiceError, (StatusCode.NOT_FOUND, "UNKNOWN_SERVICE")),
)


def failure_of(error: HoldfastError) -> Failure:
    """The status of a call that raised one of our errors."""
    code, reason = next((said for kind, said in (*_OWN_CODES, *CODES) if isinstance(error, kind)), _INTERNAL)
    if isinstance(error, NotEnoughReplicasError) and error.appended:
        code, reason = _UNKNOWN
    return Failure(code, reason, redacted_detail(str(error))[:_DETAIL_CHARS_MAX])
