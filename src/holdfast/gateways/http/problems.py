"""Error responses as RFC 9457 problems: `application/problem+json`.

The one table from our errors to statuses. A program decides by `type`; `errors` name each invalid value of the request by JSON
pointer, parameter or header, with what is allowed there. Credentials in URLs are redacted.
"""

import re
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from holdfast.client.types import KafkaConflictError, KafkaNotFoundError
from holdfast.gateways.http.errors import (
    CsrfError,
    MalformedBodyError,
    MissingPartError,
    SecurityDisabledError,
    UnknownAgentError,
)
from holdfast.heap.errors import (
    BatchAbortedError,
    LeaseLostError,
    MessageNotFoundError,
    ProducerFencedError,
    ResourceExhaustedError,
    SequenceForgottenError,
)
from holdfast.log.errors import NotEnoughReplicasError, NotLeaderError
from holdfast.log.topics import TopicExistsError, UnknownTopicError
from holdfast.pipeline.model.errors import (
    EditConflictError,
    InvalidValuesError,
    NotReadyError,
    PipelineNameTakenError,
    UnknownPipelineError,
)
from holdfast.security.confirmations import UnconfirmedError
from holdfast.security.identity import AuthenticationError, ForbiddenError, TooManyAttemptsError
from holdfast.security.key_store import UnknownApiKeyError
from holdfast.security.store import UnknownUserError
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

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
_TYPE_PREFIX: Final = "urn:holdfast:problem:"
_DETAIL_CHARS_MAX: Final = 4_000
_PART_PATH: Final = re.compile(r"(source|sink|mapping|filters|sql|drift)(?:: |\.)([\w.\[\]]+)(?::.*)?")
_PATHS: Final = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*")+')
_PATH_STEPS: Final = re.compile(r'\[("(?:[^"\\]|\\.)*")\]|([^.\[\]]+)')
_USER_INFO: Final = re.compile(r"(?<=//)[^/\s@'\"]*@|[^\s:@'\"/]+:[^\s@'\"]+@")


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One mistake in a request: where, what, and what is allowed instead."""

    detail: str
    pointer: str = ""
    """A JSON pointer into the body, as a fragment: `#/columns/0/type`."""
    parameter: str = ""
    header: str = ""
    allowed: str = ""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error response."""

    type: str
    title: str
    status: int
    detail: str
    errors: tuple[Fault, ...] = ()


class ProblemType(msgspec.Struct, frozen=True):
    """The name, status and title of a type of problem."""

    name: str
    status: int
    title: str


MALFORMED: Final = ProblemType("malformed", HTTPStatus.BAD_REQUEST, "Malformed request")
INVALID: Final = ProblemType("invalid", HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid value")
NOT_FOUND: Final = ProblemType("not-found", HTTPStatus.NOT_FOUND, "Not found")
METHOD_NOT_ALLOWED: Final = ProblemType("method-not-allowed", HTTPStatus.METHOD_NOT_ALLOWED, "Method not allowed")
CONFLICT: Final = ProblemType("conflict", HTTPStatus.CONFLICT, "Conflict with the current state")
PRECONDITION_FAILED: Final = ProblemType("changed", HTTPStatus.PRECONDITION_FAILED, "Changed since it was read")
UNSUPPORTED_MEDIA_TYPE: Final = ProblemType("media-type", HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Body must be JSON")
TOO_LARGE: Final = ProblemType("too-large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Body too large")
REQUEST_TIMEOUT: Final = ProblemType("too-slow", HTTPStatus.REQUEST_TIMEOUT, "Request timeout")
HEADERS_TOO_LARGE: Final = ProblemType(
    "head-too-large", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "Headers too large"
)
MISDIRECTED: Final = ProblemType("misdirected", HTTPStatus.MISDIRECTED_REQUEST, "Unknown host name")
UNCONFIRMED: Final = ProblemType("unconfirmed", HTTPStatus.PRECONDITION_REQUIRED, "Confirmation required")
FOREIGN_ORIGIN: Final = ProblemType("foreign-origin", HTTPStatus.FORBIDDEN, "Cross-origin write refused")
FORBIDDEN: Final = ProblemType("forbidden", HTTPStatus.FORBIDDEN, "Not allowed here")
UNAUTHENTICATED: Final = ProblemType("unauthenticated", HTTPStatus.UNAUTHORIZED, "Authentication required")
NOT_AUTHORIZED: Final = ProblemType("not-authorized", HTTPStatus.FORBIDDEN, "Permission missing")
CSRF: Final = ProblemType("csrf", HTTPStatus.FORBIDDEN, "CSRF token missing")
TOO_MANY_ATTEMPTS: Final = ProblemType("too-many-attempts", HTTPStatus.TOO_MANY_REQUESTS, "Too many failed logins")
BUSY: Final = ProblemType("busy", HTTPStatus.SERVICE_UNAVAILABLE, "Too many requests in flight")
UNAVAILABLE: Final = ProblemType("unavailable", HTTPStatus.SERVICE_UNAVAILABLE, "Dependency unavailable")
NOT_READY: Final = ProblemType("not-ready", HTTPStatus.SERVICE_UNAVAILABLE, "Not ready")
OUTCOME_UNKNOWN: Final = ProblemType(
    "outcome-unknown", HTTPStatus.GATEWAY_TIMEOUT, "Outcome unknown: read, then decide"
)
RESPONSE_TIMEOUT: Final = ProblemType("too-late", HTTPStatus.GATEWAY_TIMEOUT, "Timed out: read, then decide")
LEASE_LOST: Final = ProblemType("lease-lost", HTTPStatus.CONFLICT, "Lease lost")
PRODUCER_FENCED: Final = ProblemType("producer-fenced", HTTPStatus.CONFLICT, "Replaced by a newer producer")
SEQUENCE_FORGOTTEN: Final = ProblemType("sequence-forgotten", HTTPStatus.CONFLICT, "Sequence no longer known")
BATCH_ABORTED: Final = ProblemType("batch-aborted", HTTPStatus.CONFLICT, "Batch aborted, nothing was enqueued")
EXHAUSTED: Final = ProblemType("resource-exhausted", HTTPStatus.TOO_MANY_REQUESTS, "Limit reached")
FENCED: Final = ProblemType("lost", HTTPStatus.CONFLICT, "Fenced by a newer owner")
CORRUPT: Final = ProblemType("corrupt", HTTPStatus.INTERNAL_SERVER_ERROR, "Stored state is corrupt")
INTERNAL_ERROR: Final = ProblemType("failed", HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error")
REFUSED: Final = ProblemType("refused", HTTPStatus.BAD_REQUEST, "Request refused")

PROBLEM_TYPES: Final = tuple(value for value in dict(vars()).values() if isinstance(value, ProblemType))

_TYPE_BY_STATUS: Final = {
    each.status: each
    for each in (MALFORMED, NOT_FOUND, METHOD_NOT_ALLOWED, UNSUPPORTED_MEDIA_TYPE, TOO_LARGE, INTERNAL_ERROR)
}
_TYPE_BY_ERROR: Final[tuple[tuple[type[HoldfastError], ProblemType], ...]] = (
    (UnconfirmedError, UNCONFIRMED),
    (AuthenticationError, UNAUTHENTICATED),
    (TooManyAttemptsError, TOO_MANY_ATTEMPTS),
    (ForbiddenError, NOT_AUTHORIZED),
    (CsrfError, CSRF),
    (SecurityDisabledError, FORBIDDEN),
    (UnknownApiKeyError, NOT_FOUND),
    (UnknownUserError, NOT_FOUND),
    (UnknownPipelineError, NOT_FOUND),
    (UnknownTopicError, NOT_FOUND),
    (UnknownAgentError, NOT_FOUND),
    (KafkaNotFoundError, NOT_FOUND),
    (MessageNotFoundError, NOT_FOUND),
    (LeaseLostError, LEASE_LOST),
    (ProducerFencedError, PRODUCER_FENCED),
    (SequenceForgottenError, SEQUENCE_FORGOTTEN),
    (BatchAbortedError, BATCH_ABORTED),
    (ResourceExhaustedError, EXHAUSTED),
    (KafkaConflictError, CONFLICT),
    (TopicExistsError, CONFLICT),
    (NotLeaderError, UNAVAILABLE),
    (MissingPartError, NOT_FOUND),
    (MalformedBodyError, MALFORMED),
    (PipelineNameTakenError, CONFLICT),
    (EditConflictError, PRECONDITION_FAILED),
    (NotReadyError, CONFLICT),
    (InvalidError, INVALID),
    (UnavailableError, UNAVAILABLE),
    (OutcomeUnknownError, OUTCOME_UNKNOWN),
    (FencedError, FENCED),
    (ExpiredError, FENCED),
    (CorruptError, CORRUPT),
    (ClosedError, UNAVAILABLE),
)
_RETRY_LATER: Final = frozenset({BUSY.name, UNAVAILABLE.name, NOT_READY.name, EXHAUSTED.name})


def problem(kind: ProblemType, detail: str, *errors: Fault) -> Problem:
    """A problem of a type."""
    return Problem(
        type=_TYPE_PREFIX + kind.name,
        title=kind.title,
        status=kind.status,
        detail=redacted_detail(detail),
        errors=errors,
    )


def problem_type_of_status(status: int) -> ProblemType:
    """The type for a status that the framework chose."""
    if status in _TYPE_BY_STATUS:
        return _TYPE_BY_STATUS[status]
    return (
        INTERNAL_ERROR
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR
        else ProblemType(REFUSED.name, status, REFUSED.title)
    )


def problem_of_error(error: HoldfastError, *, whole: bool = False, fields: Collection[str] = ()) -> Problem:
    """The problem of one of our errors. `whole`: the body was not one part of a pipeline, but several.

    `fields`: those of the body that errors name as they are.
    """
    kind = next((kind for kinds, kind in _TYPE_BY_ERROR if isinstance(error, kinds)), INTERNAL_ERROR)
    if isinstance(error, NotEnoughReplicasError):
        kind = OUTCOME_UNKNOWN if error.appended else UNAVAILABLE
    faults: tuple[Fault, ...] = ()
    if isinstance(error, ForbiddenError):
        missing = f"an ACL that allows {error.operation} on {error.kind} {error.name[:300]!r} to {error.principal}"
        faults = (
            Fault(detail=f"{error.operation} on {error.kind} is missing", header="authorization", allowed=missing),
        )
    elif isinstance(error, NotReadyError):
        faults = tuple(Fault(detail=redacted_detail(each)) for each in error.reasons)
    elif kind is INVALID and isinstance(error, InvalidError):
        several = error.errors if isinstance(error, InvalidValuesError) else (error,)
        faults = tuple(_fault(each, whole=whole, fields=fields) for each in several)
    return problem(kind, str(error), *faults)


def _fault(error: InvalidError, *, whole: bool, fields: Collection[str]) -> Fault:
    detail = str(error).removesuffix(f": must be {error.allowed}")  # a member of its own
    pointer = _field_pointer(error.what, fields) or _pointer(error.what, whole=whole)
    return Fault(detail=redacted_detail(detail), pointer=pointer, allowed=error.allowed)


def _field_pointer(what: str, fields: Collection[str]) -> str:
    """Where in the body a field is that an error names, in words or not: `characters of messages[0].partition_key`.

    A step that is not a name is JSON in brackets: `headers["a.b"]`.
    """
    for path in _PATHS.findall(what):
        steps = [bare or msgspec.json.decode(quoted, type=str) for quoted, bare in _PATH_STEPS.findall(path)]
        if steps and steps[0] in fields:
            return "#" + "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)
    return ""


def _pointer(what: str, *, whole: bool) -> str:
    """Where in the body something is that a service names as `sink.batchSize` or `mapping.columns[0].type`."""
    found = _PART_PATH.fullmatch(what)
    if found is None:
        return ""
    steps = re.findall(r"[^.\[\]]+", found[2])
    return "#" + "".join(f"/{step}" for step in ([found[1], *steps] if whole else steps))


def problem_headers(problem_details: Problem) -> dict[str, str]:
    """The headers of a problem, beside its content type."""
    return {"retry-after": "1"} if problem_details.type.removeprefix(_TYPE_PREFIX) in _RETRY_LATER else {}


def encode_problem(problem_details: Problem, more: Mapping[str, object] | None = None) -> bytes:
    """Its JSON; `more` are additional members."""
    shown = msgspec.to_builtins(problem_details)
    if not shown["errors"]:
        del shown["errors"]
    return msgspec.json.encode({**shown, **(more or {})})


def redacted_detail(text: str) -> str:
    """A text without user and password of URLs in it, of bounded length."""
    shown = _USER_INFO.sub("***@", text)
    return shown if len(shown) <= _DETAIL_CHARS_MAX else f"{shown[:_DETAIL_CHARS_MAX]}…"
