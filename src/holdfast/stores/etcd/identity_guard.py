"""Sentinel: sees to it that the etcd behind an open store stays the one it was opened on.

Answers of linearizable calls must never show a lower revision, every answer must come from the same cluster, and the mark
at `{prefix}/incarnation` must stay: it tells a wiped and rebuilt cluster, whose id may be the same, from the old one. The
sentinel watches the mark, so that also an idle store finds out; after any broken call it is read again before the next one.
"""

from collections.abc import Callable

from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.bootstrap import EtcdIdentity, decode_mark
from holdfast.stores.etcd.client import EtcdClient
from holdfast.stores.etcd.keyspace import Keyspace
from holdfast.stores.etcd.rpc_methods import RANGE
from holdfast.stores.etcd.watchers import EtcdWatchers, HistoryCompacted
from holdfast.stores.version_guard import VersionGuard
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError, CorruptError, InvalidError

_DENIED_PAUSE_MS = 5_000


class IdentityGuard:
    """A `Guard` that knows where to look in etcd."""

    def __init__(
        self,
        client: EtcdClient,
        keyspace: Keyspace,
        opened: EtcdIdentity,
        *,
        clock: Clock,
        on_fault: Callable[[CorruptError], None],
    ) -> None:
        self._client, self._keyspace, self._clock = client, keyspace, clock
        self._opened = opened
        self._guard = VersionGuard(
            client.address.shown, incarnation=opened.incarnation, version=opened.revision, on_fault=on_fault
        )
        self._settled_at = client.breaks

    def check(self) -> int:
        """The revision to compare the coming answer with."""
        return self._guard.check()

    def saw(self, header: pb.ResponseHeader, asked_at: int) -> None:
        """Take note of the answer to a linearizable call."""
        if header.cluster_id != self._opened.cluster:
            self._guard.saw(header.revision, asked_at=asked_at, incarnation=f"{header.cluster_id:x}")
        self._guard.saw(header.revision, asked_at=asked_at)

    def saw_member(self, header: pb.ResponseHeader) -> None:
        """Take note of an answer that one member gave by itself: it may lag, so its revision says nothing."""
        if header.cluster_id != self._opened.cluster:
            version = self._guard.version
            self._guard.saw(version, asked_at=version, incarnation=f"{header.cluster_id:x}")

    def saw_mark(self, revision: int, pair: pb.KeyValue | None, asked_at: int) -> None:
        """Take note of what lies at the mark's place."""
        if pair is None or pair.value != self._opened.mark:
            found = "removed" if pair is None else decode_mark(pair.value)
            self._guard.saw(revision, asked_at=asked_at, incarnation=f"{self._opened.cluster:x}.{found}")

    async def settle(self) -> None:
        """If a call broke since the last look, look again: the server that answers next may be another."""
        while (breaks := self._client.breaks) != self._settled_at:
            await self.look()
            self._settled_at = breaks

    async def look(self) -> None:
        """Read the mark."""
        asked_at = self.check()
        answer = await self._client.ask(RANGE, pb.RangeRequest(key=self._keyspace.incarnation))
        self.saw(answer.header, asked_at)
        self.saw_mark(answer.header.revision, answer.kvs[0] if answer.kvs else None, asked_at)

    async def stand(self, watching: EtcdWatchers) -> None:
        """Watch the mark until the store is closed or found to be another."""
        while True:
            try:
                async with watching.follow(self._keyspace.incarnation, b"", after=self._opened.revision) as happened:
                    async for what in happened:
                        if not isinstance(what, HistoryCompacted):
                            await self.look()
            except (ClosedError, CorruptError):
                return  # said to every caller by now
            except InvalidError:
                await self._clock.sleep_ms(_DENIED_PAUSE_MS)  # a login was taken away; it may be given back
