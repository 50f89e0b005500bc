"""Driver errors, classified by their texts, because most of them share one class.

Kept are the method, the host, the status and the service's error code: never a URL, because it may contain a signature.
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
_CERTIFICATE: Final = re.compile(r"InvalidCertificate\(\s*(\w+)")
_REASONS: Final = {
    "Connect": "connection failed",
    "Timeout": "no response in time",
    "Interrupted": "connection broke",
    "Request": "request could not be sent",
    "Decode": "response unreadable",
}

# A missing bucket is a configuration mistake, not a missing object.
NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted")
# 4xx responses that are worth a retry.
_RETRIABLE: Final = {400: ("RequestTimeout", "IncompleteBody", "ExpiredToken"), 408: (), 409: (), 425: ()}
_THROTTLED: Final = ("SlowDown", "ServerBusy", "Throttling", "RequestLimitExceeded", "TooManyRequests")


def status_of(error: BaseException) -> int:
    """The HTTP status of the response; 0 without one."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else 0


def code_of(error: BaseException) -> str:
    """The service's error code, such as `SlowDown`; empty if there is none."""
    found = _CODE.search(str(error))
    return found[1] if found else ""


def classify_error(service: str, error: BaseException) -> UnavailableError:
    """What an error of the driver means for the next attempt."""
    text, status, code = str(error), status_of(error), code_of(error)
    where = _WHERE.search(text)
    reason = f"{where[1]} {where[2]}: " if where else ""
    response = _STATUS.search(text)
    refused = None if response else _CERTIFICATE.search(text)
    if refused:
        return RequestRefusedError(service, f"{reason}its certificate is not trusted ({refused[1]}); check ca_file")
    if response:
        reason += f"{status} {response[2].strip()}" + (f" ({code})" if code else "")
    else:
        kind = _KIND.search(text)
        reason += _REASONS[kind[1]] if kind else type(error).__name__
    if status in (429, 503) or code in _THROTTLED:
        return ThrottledError(service, reason)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in (401, 403):
        return RequestRefusedError(service, f"{reason}; check the credentials and their permissions")
    if code in NO_BUCKET:
        return RequestRefusedError(service, f"{reason}; check the bucket's name")
    retriable = status in _RETRIABLE and (not _RETRIABLE[status] or code in _RETRIABLE[status])
    if 400 <= status < 500 and not retriable:
        return RequestRefusedError(service, reason)
    return UnavailableError(service, reason)
