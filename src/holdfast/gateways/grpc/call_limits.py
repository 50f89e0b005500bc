"""How many of the server's calls one caller may have at a time.

The one rule: nobody has all of them. Who has not logged in has a small part, of which calls and streams are counted apart: whoever
keeps streams open does not keep anybody from asking whether the server is healthy.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from holdfast.gateways.grpc.settings import GrpcSettings
from holdfast.heap.errors import ResourceExhaustedError

_PUBLIC_SHARE = 4  # of all calls
_CALLER_SHARE = 2


class CallLimits:
    """The calls of one server that are under way."""

    def __init__(self, settings: GrpcSettings) -> None:
        public_max = min(settings.public_calls_max, max(1, settings.calls_max // _PUBLIC_SHARE))
        caller_max = min(settings.caller_calls_max, max(1, settings.calls_max // _CALLER_SHARE))
        self._public = {
            streams: _Places("public streams" if streams else "public calls", public_max, settings.public_peer_max)
            for streams in (False, True)
        }
        self._callers = _Places("calls", settings.calls_max, caller_max)

    def public(self, host: str, *, streams: bool) -> AbstractContextManager[None]:
        """A call of somebody who has not logged in. `ResourceExhaustedError`: there are too many."""
        return self._public[streams].taken(host)

    def caller(self, name: str) -> AbstractContextManager[None]:
        """A call of a caller. `ResourceExhaustedError`: it has too many."""
        return self._callers.taken(name)


class _Places:
    def __init__(self, what: str, most: int, each_max: int) -> None:
        self._what, self._most, self._each_max = what, most, each_max
        self._taken: Counter[str] = Counter()
        self._count = 0

    @contextmanager
    def taken(self, name: str) -> Iterator[None]:
        if self._taken[name] >= self._each_max:
            raise ResourceExhaustedError(f"{self._what} of {name}", self._taken[name], self._each_max)
        if self._count >= self._most:
            raise ResourceExhaustedError(self._what, self._count, self._most)
        self._taken[name] += 1
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            self._taken[name] -= 1
            if not self._taken[name]:
                del self._taken[name]
