"""Identity guard: checks that the etcd behind an open store stays the one it was opened on.

Responses to linearizable calls must never have a lower revision, every response must come from the same cluster, and the record
at `{prefix}/incarnation` must stay: it tells a wiped and rebuilt cluster, whose id may be the same, from the old one. The guard
watches the record, so that an idle store detects it too; after a failed call the record is read again before the next one.
"""

from collections.abc import Callable

from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.bootstrap import EtcdIdentity, decode_record
from holdfast.stores.etcd.client import EtcdClient
from holdfast.stores.etcd.keyspace import Keyspace
from holdfast.stores.etcd.rpc_methods import RANGE
from holdfast.stores.etcd.watchers import EtcdWatchers, HistoryCompacted
from holdfast.stores.version_guard import VersionGuard
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError, CorruptError, InvalidError

_DENIED_PAUSE_MS = 5_000


class IdentityGuard:
    """A `VersionGuard` on etcd's responses."""

    def __init__(
        self,
        client: EtcdClient,
        keyspace: Keyspace,
        identity: EtcdIdentity,
        *,
        clock: Clock,
        on_fault: Callable[[CorruptError], None],
    ) -> None:
        self._client, self._keyspace, self._clock = client, keyspace, clock
        self._identity = identity
        self._guard = VersionGuard(
            client.address.shown, incarnation=identity.incarnation, version=identity.revision, on_fault=on_fault
        )
        self._verified_at = client.breaks

    def check(self) -> int:
        """The revision to compare the next response with."""
        return self._guard.check()

    def observe(self, header: pb.ResponseHeader, known_version: int) -> None:
        """Check the response to a linearizable call."""
        if header.cluster_id != self._identity.cluster:
            self._guard.observe(header.revision, known_version=known_version, incarnation=f"{header.cluster_id:x}")
        self._guard.observe(header.revision, known_version=known_version)

    def observe_member(self, header: pb.ResponseHeader) -> None:
        """Check a response from one member alone: it may lag, so its revision is ignored."""
        if header.cluster_id != self._identity.cluster:
            version = self._guard.version
            self._guard.observe(version, known_version=version, incarnation=f"{header.cluster_id:x}")

    def observe_record(self, revision: int, pair: pb.KeyValue | None, known_version: int) -> None:
        """Check the incarnation record."""
        if pair is None or pair.value != self._identity.record:
            found = "removed" if pair is None else decode_record(pair.value)
            self._guard.observe(
                revision, known_version=known_version, incarnation=f"{self._identity.cluster:x}.{found}"
            )

    async def verify_after_failure(self) -> None:
        """Read the record again if a call has failed since: another server may respond next."""
        while (breaks := self._client.breaks) != self._verified_at:
            await self.verify()
            self._verified_at = breaks

    async def verify(self) -> None:
        """Read and check the record."""
        known_version = self.check()
        response = await self._client.call(RANGE, pb.RangeRequest(key=self._keyspace.incarnation))
        self.observe(response.header, known_version)
        self.observe_record(response.header.revision, response.kvs[0] if response.kvs else None, known_version)

    async def watch_record(self, watching: EtcdWatchers) -> None:
        """Watch the record until the store is closed or replaced."""
        while True:
            try:
                async with watching.follow(self._keyspace.incarnation, b"", after=self._identity.revision) as events:
                    async for event in events:
                        if not isinstance(event, HistoryCompacted):
                            await self.verify()
            except (ClosedError, CorruptError):
                return  # every call fails with it
            except InvalidError:
                await self._clock.sleep_ms(_DENIED_PAUSE_MS)  # permission was revoked; it may be granted again
