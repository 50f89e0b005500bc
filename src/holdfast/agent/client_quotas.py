"""Client quotas as this process sees them: a mirror of the store, slightly behind it.

The one rule: `version` changes with every limit, so that what was looked up is valid while it is the same.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from holdfast.contracts.store import Store
from holdfast.kernel.mirror import OPENING_ATTEMPTS, Mirror, open_mirror
from holdfast.security.client_quotas import Limits, QuotaEntity, QuotaTable
from holdfast.security.quota_store import QUOTAS, QuotaStore, read_quota
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_SEEN_WITHIN_MS: Final = 2_000


class ClientQuotas:
    """What the mirror shows, and the store behind it."""

    def __init__(self, mirror: Mirror[tuple[QuotaEntity, Limits]], *, store: QuotaStore, clock: Clock) -> None:
        self._mirror, self._clock, self.store = mirror, clock, store
        self._table, self._table_at = QuotaTable(), -1

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._mirror.version

    @property
    def any(self) -> bool:
        """Whether there is a limit at all."""
        return bool(self._mirror.items)

    @property
    def table(self) -> QuotaTable:
        """The limits of now."""
        if self._table_at != self._mirror.version:
            self._table, self._table_at = QuotaTable(dict(self._mirror.items.values())), self._mirror.version
        return self._table

    async def seen(self, version: int) -> None:
        """Return when a commit counts here, or after a moment: other nodes may be behind as well."""
        until_ms = self._clock.boot_ms() + _SEEN_WITHIN_MS
        while self._mirror.version < version:
            left_ms = until_ms - self._clock.boot_ms()
            if left_ms <= 0:
                return
            await self._mirror.notify.wait_ms(self._clock, left_ms)


@asynccontextmanager
async def watching_client_quotas(store: Store, *, clock: Clock, random: Random) -> AsyncIterator[ClientQuotas]:
    """Limits for the body. `UnavailableError`: the store does not answer; once open, it is waited for."""
    async with open_mirror(
        store, QUOTAS, read_quota, clock=clock, random=random, opening_attempts=OPENING_ATTEMPTS
    ) as mirror:
        yield ClientQuotas(mirror, store=QuotaStore(store, clock=clock, random=random), clock=clock)
