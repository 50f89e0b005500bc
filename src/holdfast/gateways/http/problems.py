"""Refusals as RFC 9457 describes them: `application/problem+json`, one shape for everything that is not an answer.

The one table from our errors to statuses. A `type` tells a program what to do about it; `errors` name each wrong place of the
request as a JSON pointer, a parameter or a header, and what is allowed there. No secret of a URL is repeated.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from holdfast.gateways.http.errors import MissingPartError, UnreadableError
from holdfast.pipeline.errors import EditConflictError, NotReadyError, PipelineNameTakenError, UnknownPipelineError
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

MEDIA_TYPE: Final = "application/problem+json"
_TYPES: Final = "urn:holdfast:problem:"
_DETAIL_CHARS_MAX: Final = 4_000
_PLACE: Final = re.compile(r"(source|sink|mapping|filters|sql|drift)(?:: |\.)([\w.\[\]]+)(?::.*)?")
_USER_INFO: Final = re.compile(r"(?<=//)[^/\s@'\"]*@|[^\s:@'\"/]+:[^\s@'\"]+@")


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is wrong with a request: where, what, and what may be there instead."""

    detail: str
    pointer: str = ""
    """A JSON pointer into the body, as a fragment: `#/columns/0/type`."""
    parameter: str = ""
    header: str = ""
    allowed: str = ""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no answer."""

    type: str
    title: str
    status: int
    detail: str
    errors: tuple[Fault, ...] = ()


class Kind(msgspec.Struct, frozen=True):
    """What sort of problem it is: its name, its status, and its sentence."""

    name: str
    status: int
    title: str


MALFORMED: Final = Kind("malformed", HTTPStatus.BAD_REQUEST, "The request cannot be read")
INVALID: Final = Kind("invalid", HTTPStatus.UNPROCESSABLE_ENTITY, "What was sent cannot be")
NOT_FOUND: Final = Kind("not-found", HTTPStatus.NOT_FOUND, "There is no such thing here")
METHOD: Final = Kind("method-not-allowed", HTTPStatus.METHOD_NOT_ALLOWED, "This cannot be done with it")
CONFLICT: Final = Kind("conflict", HTTPStatus.CONFLICT, "It is not in a state for this")
CHANGED: Final = Kind("changed", HTTPStatus.PRECONDITION_FAILED, "It has changed since it was read")
MEDIA: Final = Kind("media-type", HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "Bodies are JSON")
TOO_LARGE: Final = Kind("too-large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The body is too large")
TOO_SLOW: Final = Kind("too-slow", HTTPStatus.REQUEST_TIMEOUT, "The request took too long to arrive")
HEAD_TOO_LARGE: Final = Kind("head-too-large", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers are too large")
MISDIRECTED: Final = Kind("misdirected", HTTPStatus.MISDIRECTED_REQUEST, "This server does not go by that name")
FOREIGN: Final = Kind("foreign-origin", HTTPStatus.FORBIDDEN, "A page of another server may not write here")
BUSY: Final = Kind("busy", HTTPStatus.SERVICE_UNAVAILABLE, "Too many requests are under way")
UNAVAILABLE: Final = Kind("unavailable", HTTPStatus.SERVICE_UNAVAILABLE, "Something it needs does not answer")
NOT_READY: Final = Kind("not-ready", HTTPStatus.SERVICE_UNAVAILABLE, "This server is not ready")
UNKNOWN: Final = Kind("outcome-unknown", HTTPStatus.GATEWAY_TIMEOUT, "It may or may not have been done: look")
LATE: Final = Kind("too-late", HTTPStatus.GATEWAY_TIMEOUT, "The answer took too long: look what became of it")
LOST: Final = Kind("lost", HTTPStatus.CONFLICT, "Somebody else owns it now")
CORRUPT: Final = Kind("corrupt", HTTPStatus.INTERNAL_SERVER_ERROR, "Stored state contradicts itself")
FAILED: Final = Kind("failed", HTTPStatus.INTERNAL_SERVER_ERROR, "A fault of this server")
REFUSED: Final = Kind("refused", HTTPStatus.BAD_REQUEST, "The request was refused")

KINDS: Final = tuple(value for value in dict(vars()).values() if isinstance(value, Kind))

_BY_STATUS: Final = {each.status: each for each in (MALFORMED, NOT_FOUND, METHOD, MEDIA, TOO_LARGE, FAILED)}
_BY_ERROR: Final[tuple[tuple[type[HoldfastError], Kind], ...]] = (
    (UnknownPipelineError, NOT_FOUND),
    (MissingPartError, NOT_FOUND),
    (UnreadableError, MALFORMED),
    (PipelineNameTakenError, CONFLICT),
    (EditConflictError, CHANGED),
    (NotReadyError, CONFLICT),
    (InvalidError, INVALID),
    (UnavailableError, UNAVAILABLE),
    (OutcomeUnknownError, UNKNOWN),
    (FencedError, LOST),
    (ExpiredError, LOST),
    (CorruptError, CORRUPT),
    (ClosedError, UNAVAILABLE),
)
_COME_AGAIN: Final = frozenset({BUSY.name, UNAVAILABLE.name, NOT_READY.name})


def problem(kind: Kind, detail: str, *errors: Fault) -> Problem:
    """A problem of a kind."""
    return Problem(
        type=_TYPES + kind.name, title=kind.title, status=kind.status, detail=without_secrets(detail), errors=errors
    )


def kind_of_status(status: int) -> Kind:
    """The kind for a status that a framework chose."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return FAILED if status >= HTTPStatus.INTERNAL_SERVER_ERROR else Kind(REFUSED.name, status, REFUSED.title)


def of_error(error: HoldfastError, *, whole: bool = False) -> Problem:
    """What a caller is told about an error of ours. `whole`: the body was not one part of a pipeline, but all of them."""
    kind = next((kind for kinds, kind in _BY_ERROR if isinstance(error, kinds)), FAILED)
    faults: tuple[Fault, ...] = ()
    if isinstance(error, NotReadyError):
        faults = tuple(Fault(detail=without_secrets(each)) for each in error.reasons)
    elif kind is INVALID and isinstance(error, InvalidError):
        given = without_secrets(repr(error.given))
        fault = Fault(detail=f"{error.what} cannot be {given}", allowed=error.allowed)
        faults = (msgspec.structs.replace(fault, pointer=_pointer(error.what, whole=whole)),)
    return problem(kind, str(error), *faults)


def _pointer(what: str, *, whole: bool) -> str:
    """Where in the body something is that a service names as `sink.batchSize` or `mapping: columns[0].type`."""
    found = _PLACE.fullmatch(what)
    if found is None:
        return ""
    steps = re.findall(r"[^.\[\]]+", found[2])
    return "#" + "".join(f"/{step}" for step in ([found[1], *steps] if whole else steps))


def headers_of(said: Problem) -> dict[str, str]:
    """The headers that go with a problem, beside its type."""
    return {"retry-after": "1"} if said.type.removeprefix(_TYPES) in _COME_AGAIN else {}


def encoded(said: Problem, more: Mapping[str, object] | None = None) -> bytes:
    """Its JSON; `more` are members of its own kind."""
    shown = msgspec.to_builtins(said)
    if not shown["errors"]:
        del shown["errors"]
    return msgspec.json.encode({**shown, **(more or {})})


def without_secrets(text: str) -> str:
    """A sentence that may hold a URL, without the user and password of it, and never endless."""
    shown = _USER_INFO.sub("***@", text)
    return shown if len(shown) <= _DETAIL_CHARS_MAX else f"{shown[:_DETAIL_CHARS_MAX]}…"
