"""The lease handler of group shards: loads, flushes and releases shards when the plan executor calls.

The one rule: a shard that cannot be loaded affects no other. Loading is retried while the lease is held; calls get
`ShardLoadingError` meanwhile. One task serves the deadlines of all shards, and another one sweeps them, which may take long.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from typing import Final

from holdfast.contracts.store import Store
from holdfast.groups.errors import ShardLoadingError
from holdfast.groups.keys import shard_from_resource
from holdfast.groups.memory import GroupMemory
from holdfast.groups.offset_expiration import TopicIdLookup
from holdfast.groups.settings import GroupCounters, GroupSettings
from holdfast.groups.shard import GroupShard
from holdfast.groups.unsaved import UnsavedGroups
from holdfast.kernel.lease import Lease, release
from holdfast.kernel.session import HeldSession
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ExpiredError, FencedError, HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify, background_tasks, gather_or_cancel

_log: Final = logging.getLogger(__name__)

_RETRY_MS: Final = 500
_IDLE_TICK_MS: Final = 60_000  # however quiet it is


class GroupShardLeaseHandler:
    """Shards of one session of an agent. Implements the kernel's `LeaseHandler` and `groups.service.LedShards`."""

    def __init__(
        self,
        *,
        store: Store,
        session: HeldSession,
        clock: Clock,
        random: Random,
        settings: GroupSettings,
        counters: GroupCounters,
        topic_id: TopicIdLookup,
    ) -> None:
        self._store, self._session, self._clock, self._random = store, session, clock, random
        self._settings, self._counters, self._topic_id = settings, counters, topic_id
        self.unsaved = UnsavedGroups(settings.unsaved_bytes_max, settings.unsaved_kept_ms)
        self.memory = GroupMemory(settings.memory_bytes_max)
        self._notify, self._sweep_notify = Notify(), Notify()
        self._locks: dict[int, asyncio.Lock] = {}
        self._shards: dict[int, GroupShard] = {}
        self._lost: dict[int, str] = {}  # commits to resolve before the shard is loaded again
        self._leases: dict[int, Lease] = {}
        self.loading: dict[int, str] = {}  # leased and not served yet → why

    @property
    def leases(self) -> Collection[Lease]:
        """The leases of this handler, served or loading."""
        return list(self._leases.values())

    def shard(self, number: int) -> GroupShard | None:
        """The shard if it is served here. `ShardLoadingError`: it is loading."""
        if not self._session.alive():
            return None
        shard = self._shards.get(number)
        if shard is None and number in self.loading:
            raise ShardLoadingError(number, self.loading[number])
        return shard

    def shards(self) -> Sequence[GroupShard]:
        """Every shard served here."""
        return list(self._shards.values()) if self._session.alive() else ()

    async def open(self, lease: Lease) -> None:
        """Load the shard, or list it as loading. `FencedError`, `ExpiredError`: the lease is lost."""
        number = shard_from_resource(lease.resource)
        self._leases[number] = lease
        self.loading.setdefault(number, "")
        async with self._lock(number):
            await self._load(number, lease)

    async def open_many(self, leases: Sequence[Lease]) -> Collection[str]:
        """Load each of them; the resources of those that are lost."""

        async def lost(lease: Lease) -> bool:
            try:
                await self.open(lease)
            except FencedError:
                return True
            return False

        found = await gather_or_cancel(*(lost(lease) for lease in leases))
        return [lease.resource for lease, is_lost in zip(leases, found, strict=True) if is_lost]

    async def drain(self, lease: Lease) -> None:
        """Accept nothing more and flush."""
        shard = self._shards.get(shard_from_resource(lease.resource))
        if shard is not None:
            shard.accepting = False
            await shard.writer.flush()

    async def resume(self, lease: Lease) -> None:
        """Serve again."""
        shard = self._shards.get(shard_from_resource(lease.resource))
        if shard is not None:
            shard.accepting = True

    async def close(self, lease: Lease) -> None:
        """Stop serving the shard: waiting calls get `NotCoordinatorError`."""
        number = shard_from_resource(lease.resource)
        async with self._lock(number):
            self._leases.pop(number, None)
            await self._let_go(number)
        self._locks.pop(number, None)

    async def retire(self, within_ms: int) -> None:
        """Graceful shutdown, after the plan executor has stopped: flush everything, release every lease."""
        try:
            async with asyncio.timeout(within_ms / 1000):
                await gather_or_cancel(*(self._retire(lease) for lease in list(self._leases.values())))
        except TimeoutError:
            _log.warning("not every group shard was released in time; their leases end with the session")
        finally:
            for number in list(self._leases):
                await self._let_go(number)
            self._leases.clear()

    async def run(self) -> None:
        """Serve deadlines, sweep, and retry failed loads, until cancelled."""
        async with background_tasks(self._sweep()):
            await self._serve()

    async def _serve(self) -> None:
        while True:
            now_ms = self._clock.boot_ms()
            for shard in list(self._shards.values()):
                shard.tick(now_ms)
            again = await self._reload_broken()
            due = (shard.next_ms() for shard in self._shards.values())
            due_ms = min((each for each in due if each is not None), default=now_ms + _IDLE_TICK_MS)
            wait_ms = min(due_ms - self._clock.boot_ms(), self._random.jitter(_RETRY_MS) if again else _IDLE_TICK_MS)
            await self._notify.wait_ms(self._clock, max(wait_ms, 1))

    async def _sweep(self) -> None:
        while True:
            for shard in list(self._shards.values()):
                await shard.sweep(self._clock.boot_ms())
            now_ms = self._clock.boot_ms()
            due_ms = min((shard.sweep_at_ms for shard in self._shards.values()), default=now_ms + _IDLE_TICK_MS)
            await self._sweep_notify.wait_ms(self._clock, min(max(due_ms - now_ms, 1), _IDLE_TICK_MS))

    def topics_changed(self) -> None:
        """A topic was created, altered or deleted."""
        for shard in self._shards.values():
            shard.sweep_soon()
        self._sweep_notify.notify()

    async def _reload_broken(self) -> bool:
        """Reload broken shards and those that failed to load; whether some are left."""
        for number, lease in list(self._leases.items()):
            shard = self._shards.get(number)
            if (shard is None or shard.writer.broken is not None) and not self._lock(number).locked():
                async with self._lock(number):
                    if self._leases.get(number) is lease:
                        await self._reload(number, lease)
        return any(number not in self._shards for number in self._leases)

    async def _reload(self, number: int, lease: Lease) -> None:
        shard = self._shards.get(number)
        if shard is not None and isinstance(shard.writer.broken, FencedError):
            shard.accepting = False  # the plan executor closes it
            return
        if shard is not None:
            self.loading[number] = str(shard.writer.broken)
            if isinstance(shard.writer.broken, OutcomeUnknownError):
                self._lost[number] = shard.writer.broken.commit_id
            del self._shards[number]
            await shard.close()
        try:
            await self._load(number, lease)
        except FencedError:
            return

    async def _load(self, number: int, lease: Lease) -> None:
        shard = GroupShard(
            lease,
            store=self._store,
            clock=self._clock,
            random=self._random,
            settings=self._settings,
            counters=self._counters,
            unsaved=self.unsaved,
            memory=self.memory,
            topic_id=self._topic_id,
            notify=self._notify,
        )
        try:
            if number in self._lost:
                await self._store.resolve(self._lost[number])  # it can no longer be applied after this
                del self._lost[number]
            await shard.load()
        except (FencedError, ExpiredError):
            raise
        except HoldfastError as error:
            if self.loading.get(number) != str(error):
                _log.warning("loading group shard %d failed, retrying: %s", number, error)
            self.loading[number] = str(error)
            return
        self._shards[number] = shard
        self.loading.pop(number, None)
        self._counters.shards_opened += 1
        self._notify.notify()
        self._sweep_notify.notify()

    async def _let_go(self, number: int) -> None:
        self.loading.pop(number, None)
        self._lost.pop(number, None)
        shard = self._shards.pop(number, None)
        if shard is not None:
            self._counters.shards_lost += 1
            await shard.close()

    async def _retire(self, lease: Lease) -> None:
        while True:
            try:
                await self.drain(lease)
                await release(self._store, lease, clock=self._clock, random=self._random)
                return
            except FencedError:
                return
            except (UnavailableError, OutcomeUnknownError) as error:
                _log.info("releasing %s failed, retrying: %s", lease.resource, error)
                self._session.check()
                self._session.report_progress()
                await self._clock.sleep_ms(_RETRY_MS)

    def _lock(self, number: int) -> asyncio.Lock:
        return self._locks.setdefault(number, asyncio.Lock())
