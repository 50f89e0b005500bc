"""The lease handler of cursor shards: serves, saves and gives them away when the plan executor calls.

The one rule: opening a shard reads nothing; a cursor is read from the store when its topic is asked for. So nothing that is stored
can keep a shard from being served.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from holdfast.contracts.store import Store
from holdfast.cursors.keys import cursors_prefix, shard_from_resource
from holdfast.cursors.settings import CursorCounters, CursorSettings
from holdfast.cursors.shard import CursorShard
from holdfast.kernel.lease import Lease, release
from holdfast.kernel.mirror import scan_all
from holdfast.kernel.session import HeldSession
from holdfast.log.topics import Topics, UnknownTopicError
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import FencedError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import gather_or_cancel

_log: Final = logging.getLogger(__name__)

_RETRY_MS: Final = 500


class CursorLeaseHandler:
    """Shards of one session of an agent. Implements `agent.lease_handlers.SessionLeaseHandler`."""

    def __init__(
        self,
        *,
        store: Store,
        session: HeldSession,
        clock: Clock,
        random: Random,
        settings: CursorSettings,
        counters: CursorCounters,
        topic_exists: Callable[[str], bool],
    ) -> None:
        self._store, self._session, self._clock, self._random = store, session, clock, random
        self._settings, self._counters, self._topic_exists = settings, counters, topic_exists
        self._topics = Topics(store, clock=clock, random=random)
        self._shards: dict[int, CursorShard] = {}
        self._unswept: set[int] = set()  # shards whose cursors of deleted topics were not looked for

    @property
    def leases(self) -> Collection[Lease]:
        """The leases of this handler."""
        return [shard.lease for shard in self._shards.values()]

    def shard(self, number: int) -> CursorShard | None:
        """The shard if it is served here."""
        return self._shards.get(number) if self._session.alive() else None

    def shards(self) -> Collection[CursorShard]:
        """Every shard served here."""
        return list(self._shards.values()) if self._session.alive() else ()

    async def open(self, lease: Lease) -> None:
        """Serve the shard."""
        number = shard_from_resource(lease.resource)
        self._shards[number] = CursorShard(
            lease,
            store=self._store,
            session=self._session,
            clock=self._clock,
            random=self._random,
            settings=self._settings,
            counters=self._counters,
        )
        self._unswept.add(number)
        self._counters.shards_opened += 1

    async def open_many(self, leases: Sequence[Lease]) -> Collection[str]:
        """Serve each of them; none is lost by that."""
        for lease in leases:
            await self.open(lease)
        return ()

    async def drain(self, lease: Lease) -> None:
        """Hand out nothing more, and save every position."""
        shard = self._shards.get(shard_from_resource(lease.resource))
        if shard is not None:
            await shard.drain()

    async def resume(self, lease: Lease) -> None:
        """Serve again."""
        shard = self._shards.get(shard_from_resource(lease.resource))
        if shard is not None:
            shard.accepting = True

    async def close(self, lease: Lease) -> None:
        """Stop serving the shard. What is not saved is delivered again by the next owner."""
        self._let_go(shard_from_resource(lease.resource))

    def _let_go(self, number: int) -> None:
        shard = self._shards.pop(number, None)
        self._unswept.discard(number)
        if shard is not None:
            shard.accepting = False
            self._counters.shards_lost += 1

    async def retire(self, within_ms: int) -> None:
        """Graceful shutdown, after the plan executor has stopped: save everything, release every lease."""
        try:
            async with asyncio.timeout(within_ms / 1000):
                await gather_or_cancel(*(self._retire(shard) for shard in list(self._shards.values())))
        except TimeoutError:
            _log.warning("not every cursor was saved in time; some records will be delivered again")
        finally:
            for number in list(self._shards):
                self._let_go(number)

    async def _retire(self, shard: CursorShard) -> None:
        while True:
            try:
                await shard.drain()
                await release(self._store, shard.lease, clock=self._clock, random=self._random)
                return
            except FencedError:
                return
            except (UnavailableError, OutcomeUnknownError) as error:
                _log.info("releasing %s failed, retrying: %s", shard.lease.resource, error)
                self._session.check()
                self._session.report_progress()
                await self._clock.sleep_ms(_RETRY_MS)

    async def run(self) -> None:
        """Save positions and bound what is read ahead, until cancelled."""
        while True:
            for shard in list(self._shards.values()):
                try:
                    await shard.save()
                    if shard.number in self._unswept:
                        await self._sweep(shard)
                except FencedError:
                    shard.accepting = False  # the plan executor closes it
            self._forget_buffers()
            await self._clock.sleep_ms(self._settings.save_ms)

    def _forget_buffers(self) -> None:
        left = self._settings.buffered_bytes_max
        for shard in self._shards.values():
            used = shard.buffered_bytes
            if used > left:
                shard.forget_buffers(left)
                used = shard.buffered_bytes
            left -= used

    def topics_changed(self, names: Collection[str]) -> None:
        """Cursors of deleted topics are removed soon."""
        if not all(map(self._topic_exists, names)):
            self._unswept.update(self._shards)

    async def _sweep(self, shard: CursorShard) -> None:
        """Remove the cursors of topics that are no more. The store decides: the mirror may be behind it."""
        self._unswept.discard(shard.number)
        prefix = cursors_prefix(shard.number)
        found = (await scan_all(self._store, prefix, clock=self._clock, random=self._random)).entries
        gone = []
        for name in (entry.key.removeprefix(prefix) for entry in found):
            if not self._topic_exists(name):
                try:
                    await self._topics.get(name)
                except UnknownTopicError:
                    gone.append(name)
        if gone:
            await shard.forget(gone)
