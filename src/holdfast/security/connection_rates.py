"""How many connections an address has made lately, and whether it may make another one.

The rules, after KIP-612: a connection beyond the rate waits until it is within it, for a second at most; what would have to wait
longer is closed after that second and not counted. Closed at once, a client would only try again; kept for longer, connections
would pile up. Each address is counted by itself, and forgotten when nothing of what it has used counts. Pure: time and rate are
arguments.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from holdfast.security.leaky_bucket import BURST_MS, LeakyBucket

DELAY_MAX_MS: Final = 1_000
ADDRESSES_MAX: Final = 10_000
_IDLE_MS: Final = BURST_MS + DELAY_MAX_MS  # what was served before counts no longer


class Admission(NamedTuple):
    """Whether a connection is served, or else closed; both `delay_ms` from now."""

    served: bool
    delay_ms: int


ADMITTED: Final = Admission(True, 0)


class ConnectionRates:
    """The connections of each address that has a limit."""

    def __init__(self, *, addresses_max: int = ADDRESSES_MAX) -> None:
        self._addresses_max = addresses_max
        self._buckets: OrderedDict[str, tuple[LeakyBucket, int]] = OrderedDict()  # with the time of the last one served

    def __len__(self) -> int:
        return len(self._buckets)

    def admit(self, address: str, rate_per_s: float, now_ms: int) -> Admission:
        """An address connects."""
        self.drop_idle(now_ms)
        bucket, _ = self._buckets.get(address) or (LeakyBucket(), 0)
        delay_ms = bucket.take(1, rate_per_s, now_ms)
        if delay_ms > DELAY_MAX_MS:
            bucket.take(-1, rate_per_s, now_ms)
            return Admission(False, DELAY_MAX_MS)
        self._buckets[address] = bucket, now_ms
        self._buckets.move_to_end(address)
        if len(self._buckets) > self._addresses_max:
            self._buckets.popitem(last=False)
        return Admission(True, delay_ms)

    def drop_idle(self, now_ms: int) -> None:
        """Forget who has not connected for a while."""
        while self._buckets:
            address = next(iter(self._buckets))
            if now_ms - self._buckets[address][1] < _IDLE_MS:
                return
            del self._buckets[address]
