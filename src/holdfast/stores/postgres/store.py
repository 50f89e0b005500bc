"""PostgresStore: the Store contract on PostgreSQL. What must be atomic is in the server's functions (migrations/).

The one rule: every write locks the `head` row first and holds it until it is committed, so versions follow commit order. Commits
of a process go in batches, one round trip and one flush each; so do keep-alives. The tables are in `migrations`, the handling of
broken connections in `client`; this module depends on neither.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

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
from holdfast.contracts.validation import StoreLimits, check_commit, check_key, check_ttl
from holdfast.stores.batcher import PendingWrite, WriteBatcher, WriteBatchLimits
from holdfast.stores.change_feed import ChangeFeed, ChangeLogPage
from holdfast.stores.errors import AnswerLostError
from holdfast.stores.postgres.background_tasks import PostgresBackgroundTasks
from holdfast.stores.postgres.bootstrap import open_client
from holdfast.stores.postgres.change_log import read_page
from holdfast.stores.postgres.client import PostgresClient
from holdfast.stores.postgres.commit_batch import Outcome, PendingCommit, QueuedCommit, decode, encode
from holdfast.stores.postgres.settings import PostgresSettings, parse_url
from holdfast.stores.urls import StoreUrl
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms
from holdfast.vocabulary.tasks import background_tasks

_WHAT: Final = "PostgreSQL store"

_GET: Final = "SELECT value, version, session FROM {schema}.entries WHERE key = $1"
# One statement is one snapshot, so the version is that of the entries. LEFT JOIN: the version comes even without entries.
_SCAN: Final = """
SELECT h.version AS head, e.key, e.value, e.version, e.session
FROM {schema}.head h LEFT JOIN LATERAL (
    SELECT * FROM {schema}.entries WHERE key >= $1 AND key < $2 ORDER BY key {order} LIMIT $3
) e ON true ORDER BY e.key {order}"""
_COMMIT: Final = "SELECT * FROM {schema}.commit_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_RESOLVE: Final = "SELECT * FROM {schema}.resolve_commit($1)"
_OPEN_SESSION: Final = "SELECT * FROM {schema}.open_session($1, $2)"
# The common case, all alive, in one statement; the function handles the rest.
_RENEW: Final = """
WITH renewed AS (
    UPDATE {schema}.sessions SET deadline = clock_timestamp() + ttl_ms * interval '1 millisecond'
    WHERE id = ANY ($1) AND deadline > clock_timestamp() RETURNING id, deadline
)
SELECT h.version, h.incarnation, r.alive, coalesce(h.next_due <= r.soonest, true) AS as_known
FROM {schema}.head h, (SELECT array_agg(id) AS alive, min(deadline) AS soonest FROM renewed) r"""
_RENEW_OR_REAP: Final = "SELECT * FROM {schema}.renew_sessions($1)"
_CLOSE_SESSION: Final = "SELECT * FROM {schema}.close_session($1)"
_SESSION_CALLS: Final = {
    "open": _OPEN_SESSION,
    "renew": _RENEW,
    "renew or reap": _RENEW_OR_REAP,
    "close": _CLOSE_SESSION,
}


class PostgresStore:
    """An open store. See `contracts.store.Store` for what each method promises."""

    def __init__(
        self,
        client: PostgresClient,
        feed: ChangeFeed,
        facts: StoreFacts,
        *,
        clock: Clock,
        random: Random,
        limits: StoreLimits,
    ) -> None:
        settings = client.settings
        self._background = PostgresBackgroundTasks(client, feed, clock=clock, random=random)
        self.facts = facts
        self._client, self._feed = client, feed
        self._clock, self._random, self._limits = clock, random, limits
        self._closed = False
        self._get, self._commit, self._resolve = (settings.sql(text) for text in (_GET, _COMMIT, _RESOLVE))
        self._scans = {
            reverse: settings.sql(_SCAN.replace("{order}", "DESC" if reverse else "ASC")) for reverse in (False, True)
        }
        self._sessions = {name: settings.sql(text) for name, text in _SESSION_CALLS.items()}
        batch = WriteBatchLimits(writes_max=settings.batch_writes_max, bytes_max=settings.batch_bytes_max)
        self._commits: WriteBatcher[QueuedCommit, Outcome] = WriteBatcher(_WHAT, self._run_commits, batch)
        self._renewals: WriteBatcher[str, bool] = WriteBatcher(_WHAT, self._run_renewals, batch)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str,
        settings: PostgresSettings,
        *,
        shown: str,
        clock: Clock,
        random: Random,
        limits: StoreLimits | None = None,
    ) -> AsyncIterator["PostgresStore"]:
        """Connect, check, migrate the schema, and serve for the body. `shown` is the URL without secrets."""
        client, feed, facts = await open_client(url, settings, service=shown, clock=clock, random=random)
        store = cls(client, feed, facts, clock=clock, random=random, limits=limits or StoreLimits())
        background = store._background
        try:
            async with (
                background_tasks(background.follow_log(), background.reap_when_due(), background.prune()),
                store._commits.running(),
                store._renewals.running(),
            ):
                try:
                    yield store
                finally:
                    store._closed = True
                    feed.end(ClosedError(_WHAT))
        finally:
            client.close()

    async def get(self, key: str) -> Entry | None:
        self._check_open()
        check_key(key, self._limits)
        rows = await self._client.query(self._get, key)
        return Entry(key, rows[0]["value"].encode(), rows[0]["version"], rows[0]["session"]) if rows else None

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        self._check_open()
        known_version = self._client.guard.check()
        rows = await self._client.query(self._scans[reverse], start, end, None if limit is None else limit + 1)
        if not rows:
            self._client.fail_store_missing("its tables are empty")
        version = rows[0]["head"]
        self._client.guard.observe(version, known_version=known_version)
        entries = [Entry(key, value.encode(), at, session) for _, key, value, at, session in rows if key is not None]
        more = limit is not None and len(entries) > limit
        return Scan(version, tuple(entries[:limit]), more)

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        self._check_open()
        known_version = self._client.guard.check()
        check_commit(require, apply, self._limits)
        commit = QueuedCommit(tuple(require), tuple(apply))
        # Ids grow with time: new ones go to one end of their index, and the oldest are found at the other.
        commit_id = f"{known_version:012x}-{self._random.token()}"
        return await self._commits.submit(commit_id, commit, size_bytes=commit.size_bytes)

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        self._check_open()
        row = await self._client.query_one(self._resolve, commit_id)
        version = row["committed_as"]
        return NotCommitted() if version is None else Committed(version)

    async def open_session(self, ttl_ms: int) -> Session:
        self._check_open()
        check_ttl(ttl_ms, self._limits)
        session_id = self._random.token()  # chosen here, so that a retry opens the same session
        await self._client.query_one(self._sessions["open"], session_id, ttl_ms)
        return Session(session_id, ttl_ms)

    async def keep_alive(self, session_id: str) -> bool:
        self._check_open()
        self._client.guard.check()
        return await self._renewals.submit(session_id, session_id)

    async def close_session(self, session_id: str) -> None:
        self._check_open()
        await self._client.query_one(self._sessions["close"], session_id)

    def watch(self, prefix: str, *, from_version: int) -> AbstractAsyncContextManager[AsyncIterator[Changed | Resync]]:
        self._check_open()
        self._client.guard.check()
        return self._watch(prefix, from_version)

    @asynccontextmanager
    async def _watch(self, prefix: str, from_version: int) -> AsyncIterator[AsyncIterator[Changed | Resync]]:
        async with self._feed.watch(prefix, from_version=from_version, read_log=self._read_log) as commits:
            self._background.wake()
            yield commits

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(_WHAT)

    async def _read_log(self, after: int) -> ChangeLogPage:
        """A page of the log for a watcher that is far behind. Failures are retried: they do not end a watch."""
        attempt = 0
        while True:
            self._check_open()
            try:
                page, _ = await read_page(self._client, after)
            except UnavailableError:
                await self._clock.sleep_ms(backoff_ms(attempt, base_ms=50, max_ms=2_000, random=self._random))
                attempt += 1
                continue
            return page

    async def _run_commits(self, batch: Sequence[PendingCommit]) -> Sequence[Outcome | Exception]:
        client = self._client
        known_version = client.guard.check()
        arrays = encode(batch)
        try:
            rows = await client.query_once(
                self._commit, client.guard.incarnation, known_version, *arrays, via=client.commits
            )
        except AnswerLostError as lost:
            return [
                # A commit without operations only reads: a retry is safe.
                OutcomeUnknownError(write.id, str(lost))
                if write.work.apply
                else UnavailableError(client.service, str(lost))
                for write in batch
            ]
        last = rows[-1]  # has the store's version; row 0 also the incarnation, which the server has compared anyway
        client.guard.observe(last["outcome"], known_version=known_version, incarnation=last["detail"])
        return decode(rows, len(batch))

    async def _run_renewals(self, batch: Sequence[PendingWrite[str, bool]]) -> Sequence[bool]:
        session_ids = [renewal.work for renewal in batch]
        row = await self._client.query_one(self._sessions["renew"], session_ids, via=self._client.renewals)
        alive = set(row["alive"] or ())
        if not row["as_known"] or not alive.issuperset(session_ids):
            row = await self._client.query_one(self._sessions["renew or reap"], session_ids, via=self._client.renewals)
            alive = set(row["alive"])
        return [session_id in alive for session_id in session_ids]


def open_url(url: StoreUrl, clock: Clock, random: Random) -> AbstractAsyncContextManager[PostgresStore]:
    """`postgresql://user:password@host:5432/database?schema=holdfast`."""
    driver_url, settings = parse_url(url)
    return PostgresStore.open(driver_url, settings, shown=url.shown, clock=clock, random=random)
