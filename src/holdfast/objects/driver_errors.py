"""Answers: what the driver's errors say, read from their texts, because most of them share one class.

What is kept is the method, the host, the status and the service's error code: never a URL, because those may carry a signature.
"""

import re
from typing import Final

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from holdfast.objects.errors import RequestRefusedError, ThrottledError
from holdfast.vocabulary.errors import UnavailableError

_WHERE: Final = re.compile(r"Error performing (\w+) https?://(?:[^/?\s@]*@)?([^/?\s]+)")
_STATUS: Final = re.compile(r"status code: (\d{3}) ([A-Za-z' -]*)")
_CODE: Final = re.compile(r"<Code>(\w{1,60})</Code>")
_KIND: Final = re.compile(r"kind: (Connect|Timeout|Interrupted|Request|Decode)\b")
_SAID: Final = {
    "Connect": "connection failed",
    "Timeout": "no answer in time",
    "Interrupted": "connection broke",
    "Request": "request could not be sent",
    "Decode": "answer was unreadable",
}

# A bucket that is not there is no object that is not there: the first is a mistake of the operator.
NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted")
# Answers of the 400 family that only mean "again, please".
_AGAIN: Final = {400: ("RequestTimeout", "IncompleteBody", "ExpiredToken"), 408: (), 409: (), 425: ()}
_SLOW: Final = ("SlowDown", "ServerBusy", "Throttling", "RequestLimitExceeded", "TooManyRequests")


def status_of(error: BaseException) -> int:
    """The HTTP status the service answered with; 0 when it did not answer."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else 0


def code_of(error: BaseException) -> str:
    """The service's own word for the error, such as `SlowDown`; empty when there is none."""
    found = _CODE.search(str(error))
    return found[1] if found else ""


def classify_error(service: str, error: BaseException) -> UnavailableError:
    """What an error of the driver means for the next attempt."""
    text, status, code = str(error), status_of(error), code_of(error)
    where = _WHERE.search(text)
    reason = f"{where[1]} {where[2]}: " if where else ""
    answered = _STATUS.search(text)
    if answered:
        reason += f"{status} {answered[2].strip()}" + (f" ({code})" if code else "")
    else:
        kind = _KIND.search(text)
        reason += _SAID[kind[1]] if kind else type(error).__name__
    if status in (429, 503) or code in _SLOW:
        return ThrottledError(service, reason)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in (401, 403):
        return RequestRefusedError(service, f"{reason}; check the credentials and what they may do")
    if code in NO_BUCKET:
        return RequestRefusedError(service, f"{reason}; check the bucket's name")
    again = status in _AGAIN and (not _AGAIN[status] or code in _AGAIN[status])
    if 400 <= status < 500 and not again:
        return RequestRefusedError(service, reason)
    return UnavailableError(service, reason)
