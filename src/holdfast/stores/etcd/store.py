"""EtcdStore: the Store contract on an etcd cluster.

Reads are linearizable. Each commit is one etcd transaction; up to `in_flight_max` run at once, and etcd decides their order.
Sessions expire by etcd's own commit, up to about a second after they are due; contenders cannot hurry it.
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
    """One process's view of one prefix in an etcd cluster."""

    def __init__(
        self,
        client: EtcdClient,
        *,
        facts: StoreFacts,
        opened: EtcdIdentity,
        limits: StoreLimits,
        clock: Clock,
        random: Random,
    ) -> None:
        self.facts = facts
        self._client, self._limits = client, limits
        self._keyspace = keyspace = Keyspace(client.address.prefix)
        self._ended: Exception | None = None
        self._sentinel = IdentityGuard(client, keyspace, opened, clock=clock, on_fault=self._end)
        self._renewals = KeepAliveStreams(client)
        self._slots = CommitSlots(client, self._renewals, keyspace, clock=clock, random=random)
        self._commits = CommitSender(client, self._slots, self._sentinel, keyspace, opened.mark)
        self._watching = EtcdWatchers(client, settle=self._sentinel.settle, clock=clock, random=random)

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
            checked = await check_servers(client)
            opened = await read_or_create_identity(client, Keyspace(address.prefix), random)
            facts = StoreFacts(
                engine="etcd",
                server=checked.server,
                durability=checked.durability,
                incarnation=opened.incarnation,
                notes=checked.notes,
            )
            limits = limits or StoreLimits()
            store = cls(client, facts=facts, opened=opened, limits=limits, clock=clock, random=random)
            await store._slots.start()
            try:
                async with background_tasks(store._slots.keep_writing(), store._sentinel.stand(store._watching)):
                    yield store
            finally:
                store._end(ClosedError(address.shown))
                store._renewals.close()
                await store._slots.leave()

    async def get(self, key: str) -> Entry | None:
        answer = await self._range(pb.RangeRequest(key=self._keyspace.key(key)))
        return self._keyspace.entry(answer.kvs[0]) if answer.kvs else None

    async def scan(self, start: str, end: str, *, limit: int | None = None, reverse: bool = False) -> Scan:
        first, last = self._keyspace.key(start), self._keyspace.key(end)
        if limit is not None and (reverse or limit < 1):
            # etcd sorts the whole range to give its end, so asking for it in pages would only repeat the work.
            order = pb.RangeRequest.DESCEND if reverse else pb.RangeRequest.NONE
            answer = await self._range(
                pb.RangeRequest(key=first, range_end=last, limit=max(1, limit), sort_order=order)
            )
            entries = tuple(map(self._keyspace.entry, answer.kvs[: max(0, limit)]))
            return Scan(answer.header.revision, entries, answer.more or len(answer.kvs) > len(entries))
        while True:
            try:
                scan = await self._scan_pages(first, last, limit)
            except CompactedError:
                continue  # compaction overtook the pages: begin again at a newer revision
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
        # A grant whose answer is lost leaves a lease that nobody renews; it ends by itself.
        question = pb.LeaseGrantRequest(TTL=max(_TTL_S_MIN, -(-ttl_ms // 1000)))
        answer = await self._client.ask(LEASE_GRANT, question)
        self._sentinel.saw_member(answer.header)
        return Session(f"{answer.ID:x}", answer.TTL * 1000)

    async def keep_alive(self, session_id: str) -> bool:
        await self._ready()
        answer = await self._renewals.renew(lease_of(session_id))
        self._sentinel.saw_member(answer.header)
        await self._ready()  # it may have been renewed at the second try, by a server put back in time
        return answer.TTL > 0

    async def close_session(self, session_id: str) -> None:
        await self._ready()
        try:
            answer = await self._client.ask(LEASE_REVOKE, pb.LeaseRevokeRequest(ID=lease_of(session_id)))
        except LeaseNotFoundError:
            return
        self._sentinel.saw_member(answer.header)

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
        await self._sentinel.settle()

    def _end(self, error: Exception) -> None:
        self._ended = self._ended or error
        self._watching.end(error)

    async def _range(self, question: pb.RangeRequest) -> pb.RangeResponse:
        await self._ready()
        asked_at = self._sentinel.check()
        answer = await self._client.ask(RANGE, question)
        self._sentinel.saw(answer.header, asked_at)
        return answer

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
    """A watcher in the words of the contract."""

    def __init__(self, watcher: EtcdWatcher, keyspace: Keyspace) -> None:
        self._watcher, self._keyspace = watcher, keyspace

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Changed | Resync:
        happened = await anext(self._watcher)
        if isinstance(happened, HistoryCompacted):
            return Resync(happened.revision)
        return self._keyspace.changed(happened.revision, happened.events)


def open_url(url: StoreUrl, clock: Clock, random: Random) -> AbstractAsyncContextManager[EtcdStore]:
    """`etcd://[user:password@]host:port[,host:port…][/prefix]`, or `etcds://` for TLS; see `settings` for the options."""
    address, settings = parse_url(url)
    return EtcdStore.open(address, settings=settings, clock=clock, random=random)
