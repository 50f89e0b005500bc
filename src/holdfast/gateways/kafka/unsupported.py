"""Requests that ApiVersions does not list: the connection is closed, as by Apache Kafka, which no client explains to its user.

So the server does: one log line per client software, API and version, and a counter per API. A client that tries again and again
fills no log.
"""

import logging
from collections import Counter
from typing import Final

from holdfast.gateways.kafka.api import ClientInfo
from holdfast.kafka.api_names import API_NAMES, api_name
from holdfast.kafka.wire import MalformedRequestError, WireReader

_log: Final = logging.getLogger(__name__)

_LOGGED_MAX: Final = 1_000
_UNKNOWN: Final = "unknown"  # one label for all keys without a name: a client could send any


class UnsupportedRequestError(MalformedRequestError):
    """An API, or a version of one, that this server does not have."""

    def __init__(self, key: int, version: int, supported: tuple[int, int] | None, client_id: str) -> None:
        allowed = "listed by ApiVersions" if supported is None else f"between {supported[0]} and {supported[1]}"
        what = "API" if supported is None else f"{api_name(key)} version"
        super().__init__(what, api_name(key) if supported is None else version, allowed)
        self.args = (key, version, supported, client_id)
        self.key, self.version, self.supported, self.client_id = key, version, supported, client_id


def client_id_of(frame: memoryview, at: int) -> str:
    """The client id in a request's header, empty if there is none: it stands at the same place in every version."""
    try:
        return WireReader(frame, flexible=False, at=at).string() or ""
    except MalformedRequestError:
        return ""


class UnsupportedRequests:
    """Counts them by API, and logs each kind once."""

    def __init__(self) -> None:
        self.by_api: Counter[str] = Counter()
        self._logged: set[tuple[str, int, int]] = set()

    def add(self, error: UnsupportedRequestError, peer: ClientInfo) -> None:
        """One more."""
        self.by_api[API_NAMES.get(error.key, _UNKNOWN)] += 1
        kind = (peer.software, error.key, error.version)
        if kind in self._logged or len(self._logged) >= _LOGGED_MAX:
            return
        self._logged.add(kind)
        known = "" if error.supported is None else ", which has versions {} to {} here".format(*error.supported)
        _log.warning(
            "closing connection from %s:%d: client %r (%s) sent %s v%d%s: not supported; repetitions are only counted",
            peer.host,
            peer.port,
            error.client_id,
            peer.software or "unknown software",
            api_name(error.key),
            error.version,
            known,
        )
