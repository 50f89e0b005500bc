"""EtcdStore: the Store contract on an etcd cluster.

Reads are linearizable. Each commit is one etcd transaction; up to `in_flight_max` run at once, and etcd decides their order.
Sessions expire by etcd's own commit, up to about a second after their deadline; contenders cannot speed it up.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, Self

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
from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.bootstrap import EtcdIdentity, check_servers, read_or_create_identity
from holdfast.stores.etcd.client import EtcdClient
from holdfast.stores.etcd.commit_slots import CommitSlots
from holdfast.stores.etcd.commits import CommitSender
from holdfast.stores.etcd.errors import CompactedError, LeaseNotFoundError
from holdfast.stores.etcd.identity_guard import IdentityGuard
from holdfast.stores.etcd.keep_alive import KeepAliveStreams
from holdfast.stores.etcd.keyspace import Keyspace, lease_of
from holdfast.stores.etcd.members import keep_endpoints, refresh_endpoints
from holdfast.stores.etcd.rpc_methods import LEASE_GRANT, LEASE_REVOKE, RANGE
from holdfast.stores.etcd.settings import EtcdAddress, EtcdSettings, parse_url
from holdfast.stores.etcd.watchers import EtcdWatcher, EtcdWatchers, HistoryCompacted
from holdfast.stores.urls import StoreUrl
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import background_tasks

_TTL_S_MIN: Final = 2


class EtcdStore:
    """One client of one prefix in an etcd cluster."""

    def __init__(
        self,
        client: EtcdClient,
        *,
        facts: StoreFacts,
        identity: EtcdIdentity,
        limits: StoreLimits,
        clock: Clock,
        random: Random,
    ) -> None:
        self.facts = facts
        self._client, self._limits = client, limits
        self._keyspace = keyspace = Keyspace(client.address.prefix)
        self._ended: Exception | None = None
        self._guard = IdentityGuard(client, keyspace, identity, clock=clock, on_fault=self._end)
        self._renewals = KeepAliveStreams(client)
        self._slots = CommitSlots(client, self._renewals, keyspace, clock=clock, random=random)
        self._commits = CommitSender(client, self._slots, self._guard, keyspace, identity.record)
        self._watching = EtcdWatchers(client, verify=self._guard.verify_after_failure, clock=clock, random=random)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        address: EtcdAddress,
        *,
        settings: EtcdSettings | None = None,
        limits: StoreLimits | None = None,
        clock: Clock,
        random: Random,
    ) -> AsyncIterator["EtcdStore"]:
        """The store below `address.prefix`, checked, for the body."""
        async with EtcdClient.open(address, settings or EtcdSettings(), clock=clock, random=random) as client:
            if client.settings.members_every_ms:
                await refresh_endpoints(client)
            checked = await check_servers(client)
            identity = await read_or_create_identity(client, Keyspace(address.prefix), random)
            facts = StoreFacts(
                engine="etcd",
                server=checked.server,
                durability=checked.durability,
                incarnation=identity.incarnation,
                notes=checked.notes,
            )
            limits = limits or StoreLimits()
            store = cls(client, facts=facts, identity=identity, limits=limits, clock=clock, random=random)
            await store._slots.start()
            try:
                async with background_tasks(
                    store._slots.keep_writing(),
                    store._guard.watch_record(store._watching),
                    keep_endpoints(client, clock=clock),
                ):
                    yield store
            finally:
                store._end(ClosedError(address.shown))
                store._renewals.close()
                await store._slots.leave()

    async def get(self, key: str) -> Entry | None:
        response = await self._range(pb.RangeRequest(key=self._keyspace.key(key)))
        return self._keyspace.entry(response.kvs[0]) if response.kvs else None

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        first, last = self._keyspace.key(start), self._keyspace.key(end)
        if limit is not None and (reverse or limit < 1):
            # etcd sorts the whole range to return its end, so paging would only repeat the work.
            order = pb.RangeRequest.DESCEND if reverse else pb.RangeRequest.NONE
            response = await self._range(
                pb.RangeRequest(key=first, range_end=last, limit=max(1, limit), sort_order=order)
            )
            entries = tuple(map(self._keyspace.entry, response.kvs[: max(0, limit)]))
            return Scan(response.header.revision, entries, response.more or len(response.kvs) > len(entries))
        while True:
            try:
                scan = await self._scan_pages(first, last, limit)
            except CompactedError:
                continue  # compaction overtook the pages: restart at a newer revision
            return Scan(scan.version, scan.entries[::-1], scan.more) if reverse else scan

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        check_commit(require, apply, self._limits)
        await self._ready()
        return await (self._commits.commit(require, apply) if apply else self._commits.check(require))

    async def resolve(self, commit_id: str) -> Committed | NotCommitted:
        await self._ready()
        return await self._commits.resolve(commit_id)

    async def open_session(self, ttl_ms: int) -> Session:
        check_ttl(ttl_ms, self._limits)
        await self._ready()
        # A grant whose response is lost leaves a lease that is never renewed; it expires.
        request = pb.LeaseGrantRequest(TTL=max(_TTL_S_MIN, -(-ttl_ms // 1000)))
        response = await self._client.call(LEASE_GRANT, request)
        self._guard.observe_member(response.header)
        return Session(f"{response.ID:x}", response.TTL * 1000)

    async def keep_alive(self, session_id: str) -> bool:
        await self._ready()
        response = await self._renewals.renew(lease_of(session_id))
        self._guard.observe_member(response.header)
        await self._ready()  # a retry may have renewed it on a server restored from a backup
        return response.TTL > 0

    async def close_session(self, session_id: str) -> None:
        await self._ready()
        try:
            response = await self._client.call(LEASE_REVOKE, pb.LeaseRevokeRequest(ID=lease_of(session_id)))
        except LeaseNotFoundError:
            return
        self._guard.observe_member(response.header)

    def watch(self, prefix: str, *, from_version: int) -> AbstractAsyncContextManager[AsyncIterator[Changed | Resync]]:
        if self._ended is not None:
            raise self._ended
        return self._watch(prefix, from_version)

    @asynccontextmanager
    async def _watch(self, prefix: str, from_version: int) -> AsyncIterator[AsyncIterator[Changed | Resync]]:
        key, range_end = self._keyspace.below(prefix)
        async with self._watching.follow(key, range_end, after=from_version) as watcher:
            yield _Changes(watcher, self._keyspace)

    async def _ready(self) -> None:
        if self._ended is not None:
            raise self._ended
        await self._guard.verify_after_failure()

    def _end(self, error: Exception) -> None:
        self._ended = self._ended or error
        self._watching.end(error)

    async def _range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        await self._ready()
        known_version = self._guard.check()
        response = await self._client.call(RANGE, request)
        self._guard.observe(response.header, known_version)
        return response

    async def _scan_pages(self, first: bytes, last: bytes, limit: int | None) -> Scan:
        entries: list[Entry] = []
        revision, more = 0, True
        while more and (limit is None or len(entries) < limit):
            keys_max = self._client.settings.scan_keys_max
            if limit is not None:
                keys_max = min(keys_max, limit - len(entries))
            page = await self._range(pb.RangeRequest(key=first, range_end=last, limit=keys_max, revision=revision))
            revision = revision or page.header.revision  # later pages are read as of the first
            entries.extend(map(self._keyspace.entry, page.kvs))
            more = page.more
            if more:
                first = page.kvs[-1].key + b"\0"
        return Scan(revision, tuple(entries), more)


class _Changes:
    """A watcher that yields the contract's types."""

    def __init__(self, watcher: EtcdWatcher, keyspace: Keyspace) -> None:
        self._watcher, self._keyspace = watcher, keyspace

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Changed | Resync:
        event = await anext(self._watcher)
        if isinstance(event, HistoryCompacted):
            return Resync(event.revision)
        return self._keyspace.changed(event.revision, event.events)


def open_url(url: StoreUrl, clock: Clock, random: Random) -> AbstractAsyncContextManager[EtcdStore]:
    """`etcd://[user:password@]host:port[,host:port…][/prefix]`, or `etcds://` for TLS; see `settings` for the options."""
    address, settings = parse_url(url)
    return EtcdStore.open(address, settings=settings, clock=clock, random=random)
