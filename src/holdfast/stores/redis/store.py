"""RedisStore: the contract on one Redis or Valkey primary. Every write is a Lua script, so each is one atomic step.

Sessions expire by the server's clock, commits are kept in its append-only file, pub/sub notifies watchers. The checks of the server
are in `durability` and `bootstrap`, the keys in `key_layout`, the requests in `client`.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any, Final

from holdfast.contracts.store import (
    Changed,
    Committed,
    Conflict,
    Entry,
    NotCommitted,
    Operation,
    Requirement,
    Resync,
    Scan,
    Session,
    StoreFacts,
)
from holdfast.contracts.validation import StoreLimits, check_commit, check_ttl
from holdfast.stores.change_feed import ChangeFeed
from holdfast.stores.redis.bootstrap import open_namespace
from holdfast.stores.redis.change_log import ChangeLogFollower
from holdfast.stores.redis.client import STORE, RedisClient
from holdfast.stores.redis.connection import pack
from holdfast.stores.redis.key_layout import PRUNE, RESOLVE, SCAN, KeyLayout, unpack_entry
from holdfast.stores.redis.session_reaper import SessionReaper
from holdfast.stores.redis.settings import RedisAddress, RedisSettings, parse_url
from holdfast.stores.redis.write_batch import close_write, commit_write, keep_alive_write, open_write, reap_write
from holdfast.stores.urls import StoreUrl
from holdfast.stores.version_guard import VersionGuard
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError, InvalidError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import background_tasks

_NO_LIMIT: Final = 1 << 50


class RedisStore:
    """One client of one namespace of a server."""

    def __init__(
        self,
        address: RedisAddress,
        settings: RedisSettings,
        *,
        clock: Clock,
        random: Random,
        limits: StoreLimits,
        facts: StoreFacts,
        version: int,
    ) -> None:
        self.facts = facts
        self._settings, self._limits, self._random = settings, limits, random
        self._layout = layout = KeyLayout(settings.namespace)
        self._closed = False
        self._feed = ChangeFeed(head=version)
        guard = VersionGuard(
            f"namespace {settings.namespace} of {address.shown}",
            incarnation=facts.incarnation,
            version=version,
            on_fault=self._feed.end,
        )
        self._guard = guard
        self._reaper = SessionReaper(clock=clock, random=random)
        due = self._reaper.update_due
        self._client = RedisClient(address, layout, settings, guard=guard, clock=clock, random=random, on_due=due)
        self._follower = ChangeLogFollower(
            self._client, self._feed, guard, layout, settings, clock=clock, random=random, on_due=due
        )

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        address: RedisAddress,
        settings: RedisSettings,
        *,
        clock: Clock,
        random: Random,
        limits: StoreLimits | None = None,
    ) -> AsyncIterator["RedisStore"]:
        """Check the server, create the namespace if it is new, and serve for the body."""
        facts, version = await open_namespace(address, settings, random)
        store = cls(
            address,
            settings,
            clock=clock,
            random=random,
            limits=limits or StoreLimits(),
            facts=facts,
            version=version,
        )
        async with store._client.running():
            try:
                async with background_tasks(
                    store._follower.follow(),
                    store._follower.tick(),
                    store._follower.listen(address),
                    store._reaper.run(lambda: store._client.write(reap_write)),
                ):
                    yield store
            finally:
                store._closed = True
                store._feed.end(ClosedError(STORE))

    async def get(self, key: str) -> Entry | None:
        self._check_usable()
        packed = await self._client.read(pack("HGET", self._layout.entries, key))
        return None if packed is None else unpack_entry(key, packed)

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        self._check_usable()
        for _ in range(self._settings.scan_restarts_max + 1):
            scan = await self._scan_pages(start, end, limit, reverse)
            if scan is not None:
                return scan
        keys_max = -1 if limit is None else limit
        head, more, entries = await self._scan_page(None, f"[{start}", f"({end}", reverse, keys_max, _NO_LIMIT)
        return Scan(head, tuple(entries), more)

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        self._check_usable()
        check_commit(require, apply, self._limits)
        outcome = await self._client.commit(commit_write(require, apply))
        assert not isinstance(outcome, bool)
        return outcome

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        self._check_usable()
        lane, batch, place = _read_commit_id(commit_id)
        known_version = self._guard.check()
        command = RESOLVE.call((self._layout.meta,), self.facts.incarnation, known_version, lane, batch, place)
        status, head, result = await self._client.read(command)
        if status == b"back":
            raise self._client.regression_error(head, result, known_version=known_version)
        # Lost responses leave lanes behind, so this is the time to prune old ones.
        with suppress(UnavailableError):
            await self._client.read(PRUNE.call((self._layout.meta,), self._settings.outcomes_kept_s))
        return Committed(result) if result else NotCommitted()

    async def open_session(self, ttl_ms: int) -> Session:
        self._check_usable()
        check_ttl(ttl_ms, self._limits)
        session_id = self._random.token()
        await self._client.write(lambda: open_write(session_id, ttl_ms))
        return Session(session_id, ttl_ms)

    async def keep_alive(self, session_id: str) -> bool:
        self._check_usable()
        return bool(await self._client.write(lambda: keep_alive_write(session_id)))

    async def close_session(self, session_id: str) -> None:
        self._check_usable()
        await self._client.write(lambda: close_write(session_id))

    def watch(self, prefix: str, *, from_version: int) -> AbstractAsyncContextManager[AsyncIterator[Changed | Resync]]:
        self._check_usable()
        return self._follower.watch(prefix, from_version)

    def _check_usable(self) -> None:
        if self._closed:
            raise ClosedError(STORE)
        self._guard.check()

    async def _scan_pages(self, start: str, end: str, limit: int | None, reverse: bool) -> Scan | None:
        """The range in pages that are all at the version of the first, or None if the store changed meanwhile."""
        lower, upper = f"[{start}", f"({end}"
        version: int | None = None
        entries: list[Entry] = []
        while True:
            left = _NO_LIMIT if limit is None else limit - len(entries)
            keys_max = min(left, self._settings.page_keys_max)
            page = await self._scan_page(version, lower, upper, reverse, keys_max, self._settings.page_bytes_max)
            version, more, found = page
            if more is None:
                return None
            entries += found
            if not more or len(entries) == limit:
                return Scan(version, tuple(entries), more)
            lower, upper = (lower, f"({entries[-1].key}") if reverse else (f"({entries[-1].key}", upper)

    async def _scan_page(
        self, version: int | None, lower: str, upper: str, reverse: bool, keys_max: int, bytes_max: int
    ) -> tuple[int, Any, list[Entry]]:
        layout = self._layout
        command = SCAN.call(
            (layout.meta, layout.entries, layout.index),
            b"" if version is None else version,
            lower,
            upper,
            int(reverse),
            keys_max,
            bytes_max,
        )
        _, head, more, *words = await self._client.read(command)
        entries = [unpack_entry(words[at].decode(), words[at + 1]) for at in range(0, len(words), 2)]
        return head, None if more < 0 else bool(more), entries


def _read_commit_id(commit_id: str) -> tuple[str, int, int]:
    lane, _, rest = commit_id.partition(".")
    batch, _, place = rest.partition(".")
    if not (lane.isalnum() and lane.isascii() and batch.isdecimal() and place.isdecimal()):
        raise InvalidError("commit id", commit_id, "the id of an OutcomeUnknownError of this store")
    return lane, int(batch), int(place)


def open_url(url: StoreUrl, clock: Clock, random: Random) -> AbstractAsyncContextManager[RedisStore]:
    """`redis://`, `rediss://` (TLS), `valkey://` or `valkeys://`; see `RedisSettings` for the options."""
    address, settings = parse_url(url)
    return RedisStore.open(address, settings, clock=clock, random=random)
