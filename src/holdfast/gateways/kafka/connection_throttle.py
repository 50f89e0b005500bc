"""Connections of addresses that are beyond their rate: they wait, or are closed, and nobody else does.

The one rule: what is going to be closed is no connection. It is not read, does not count against `connections_max`, and gives way
to the next one where there are too many, so that one address keeps nobody out. `connection_rates` decides.
"""

import asyncio
import itertools
import logging
import socket
from collections import Counter
from collections.abc import Callable
from typing import Final

from holdfast.gateways.kafka.quota_meters import QuotaMeters
from holdfast.security.client_quotas import Quota
from holdfast.security.connection_rates import ADMITTED, Admission, ConnectionRates
from holdfast.vocabulary.clock import Clock

_log: Final = logging.getLogger(__name__)

CLOSING_MAX: Final = 1_000
_LOG_EVERY_MS: Final = 10_000  # for all addresses together: anybody could fill the log


class ConnectionThrottle:
    """Which connections are served, and when."""

    def __init__(self, meters: QuotaMeters, clock: Clock, *, closing_max: int = CLOSING_MAX) -> None:
        self._meters, self._clock, self._closing_max = meters, clock, closing_max
        self._rates = ConnectionRates()
        self._numbers = itertools.count()
        self._closing: dict[int, tuple[Callable[[], None], asyncio.TimerHandle]] = {}  # the oldest first
        self._logged_at_ms: int | None = None
        self.throttled: Counter[str] = Counter(delayed=0, closed=0)

    @property
    def closing(self) -> int:
        """Connections that wait for their end."""
        return len(self._closing)

    @property
    def addresses(self) -> int:
        """Addresses that are counted."""
        return len(self._rates)

    def decide(self, host: str) -> Admission:
        """A host connects."""
        limit = self._meters.quotas.table.connection_rate(host)
        if limit is None:
            return ADMITTED
        address, rate_per_s = limit
        admission = self._rates.admit(address, rate_per_s, self._clock.boot_ms())
        if admission != ADMITTED:
            self._count(address, rate_per_s, admission)
        return admission

    def admit(self, accepted: socket.socket, host: str) -> int | None:
        """How long a connection waits before its TLS handshake, in ms; None: it is closed here instead."""
        admission = self.decide(host)
        if admission.served:
            return admission.delay_ms
        self.close_later(accepted.close, admission.delay_ms)
        return None

    async def wait_ms(self, delay_ms: int) -> None:
        """Wait as long as `admit` says."""
        await self._clock.sleep_ms(delay_ms)

    def close_later(self, close: Callable[[], None], delay_ms: int) -> None:
        """Close a connection after a while; earlier if there are too many."""
        if len(self._closing) >= self._closing_max:
            self._close_now(next(iter(self._closing)))
        number = next(self._numbers)
        timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._close_now, number)
        self._closing[number] = close, timer

    def drop_idle(self) -> None:
        """Forget addresses that have not connected for a while."""
        self._rates.drop_idle(self._clock.boot_ms())

    def close(self) -> None:
        """Close what waits for it."""
        for number in list(self._closing):
            self._close_now(number)

    def _close_now(self, number: int) -> None:
        close, timer = self._closing.pop(number)
        timer.cancel()
        close()

    def _count(self, address: str, rate_per_s: float, admission: Admission) -> None:
        self._meters.throttled_ms[Quota.CONNECTIONS] += admission.delay_ms
        self.throttled["delayed" if admission.served else "closed"] += 1
        now_ms = self._clock.boot_ms()
        if not admission.served and (self._logged_at_ms is None or now_ms - self._logged_at_ms >= _LOG_EVERY_MS):
            self._logged_at_ms = now_ms
            _log.warning("closing connections from %s: more than %d per second", address, rate_per_s)
