"""What clients take of this node, and how long they have to pause. Limits are each node's own, as in Kafka.

The one rule: whoever has no limit costs a look-up per client id and connection, nothing per request. A client beyond its limit gets
its answer at once, with the time it has to pause, and its connection is not read for that long; no other one waits.

Time on the event loop is what a request keeps others from, so it is what `request_percentage` is about: 100 is all of a core.
What its tasks do elsewhere, on threads and on disks, is not counted.
"""

from collections import Counter, OrderedDict
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Any, Final

from holdfast.agent.client_quotas import ClientQuotas
from holdfast.security.client_quotas import CLIENT_QUOTAS, Limit, Quota, QuotaEntity
from holdfast.security.leaky_bucket import BURST_MS, LeakyBucket
from holdfast.vocabulary.clock import Clock, stopwatch_ns

BUCKETS_MAX: Final = 10_000  # client ids are made up by clients
_NS_PER_PERCENT: Final = 10_000_000  # of a second
_TIME_PAUSE_MAX_MS: Final = 1_000  # as in Kafka: heartbeats need time, too


class QuotaMeters:
    """The buckets of everybody who has a limit."""

    def __init__(self, quotas: ClientQuotas, clock: Clock, *, buckets_max: int = BUCKETS_MAX) -> None:
        self.quotas, self._clock, self._buckets_max = quotas, clock, buckets_max
        self.throttled_ms: Counter[str] = Counter({str(quota): 0 for quota in Quota})
        self._buckets: OrderedDict[tuple[Quota, QuotaEntity], LeakyBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def client(self, user: str, client_id: str) -> "ClientLimits | None":
        """The limits of a client; None: it has none. Valid while the version of the quotas is the same."""
        table = self.quotas.table
        limits = {quota: found for quota in CLIENT_QUOTAS if (found := table.limit(quota, user, client_id)) is not None}
        return ClientLimits(self, limits) if limits else None

    def charge(self, quota: Quota, limit: Limit, amount: float) -> int:
        """Count what was taken; how long the client has to pause for it."""
        now_ms = self._clock.boot_ms()
        bucket = self._bucket(quota, limit.shared_by)
        if quota is Quota.REQUEST:
            pause_ms = min(_TIME_PAUSE_MAX_MS, bucket.take(amount, limit.value * _NS_PER_PERCENT, now_ms))
        else:
            pause_ms = bucket.take(amount, limit.value, now_ms)
        self.throttled_ms[quota] += pause_ms
        return pause_ms

    def _bucket(self, quota: Quota, shared_by: QuotaEntity) -> LeakyBucket:
        key, buckets = (quota, shared_by), self._buckets
        bucket = buckets.get(key)
        if bucket is None:
            while len(buckets) >= self._buckets_max:
                buckets.popitem(last=False)  # whoever was idle the longest
            bucket = buckets[key] = LeakyBucket()
        buckets.move_to_end(key)
        return bucket


class ClientLimits:
    """The limits of one client id of one user."""

    def __init__(self, meters: QuotaMeters, limits: dict[Quota, Limit]) -> None:
        self._meters, self._limits = meters, limits

    def charge(self, quota: Quota, amount: float) -> int:
        """Count what was taken; how long the client has to pause for it."""
        limit = self._limits.get(quota)
        return 0 if limit is None else self._meters.charge(quota, limit, amount)

    def fetch_bytes_max(self, wanted: int) -> int:
        """As much as a fetch may bring without a pause that a client takes for a dead server."""
        limit = self._limits.get(Quota.FETCH)
        return wanted if limit is None else max(1, int(min(wanted, limit.value * BURST_MS / 1_000)))


class RequestMeter:
    """What one request of a client with limits takes. `throttle_ms`: the pause, for its response."""

    __slots__ = ("_busy_ns", "_step_ns", "limits", "throttle_ms")

    def __init__(self, limits: ClientLimits) -> None:
        self.limits = limits
        self.throttle_ms = 0
        self._busy_ns = self._step_ns = 0

    def charge(self, quota: Quota, amount: float) -> None:
        """Count what was taken."""
        self.throttle_ms = max(self.throttle_ms, self.limits.charge(quota, amount))

    def charge_time(self) -> None:
        """Count the time on the event loop since the last time."""
        now_ns = stopwatch_ns()
        busy_ns, self._busy_ns, self._step_ns = self._busy_ns + now_ns - self._step_ns, 0, now_ns
        self.charge(Quota.REQUEST, busy_ns)

    def begin_step(self) -> None:
        """The request has the event loop."""
        self._step_ns = stopwatch_ns()

    def end_step(self) -> None:
        """Others have it."""
        self._busy_ns += stopwatch_ns() - self._step_ns


class MeteredCoroutine(Coroutine[Any, Any, Any]):
    """A coroutine whose steps are timed: a task drives it like any other."""

    __slots__ = ("_meter", "_of")

    def __init__(self, of: Coroutine[Any, Any, Any], meter: RequestMeter) -> None:
        self._of, self._meter = of, meter

    def send(self, value: Any) -> Any:
        self._meter.begin_step()
        try:
            return self._of.send(value)
        finally:
            self._meter.end_step()

    def throw(self, kind: Any, value: BaseException | object = None, traceback: TracebackType | None = None, /) -> Any:
        self._meter.begin_step()
        try:
            return self._of.throw(value if isinstance(value, BaseException) else kind)
        finally:
            self._meter.end_step()

    def close(self) -> None:
        self._of.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._of.__await__()
