"""Commit slots: how the outcome of a commit whose answer was lost can still be found, with bounded memory in etcd.

A store is a *writer*: a long lease, and below it one key per commit in flight, its slot. Each commit requires that its slot
is as the writer last left it, and writes its sequence number there. So (slot, revision before, sequence) is enough to find the
outcome later: if the slot has the sequence, the commit was applied; if the slot is unchanged, writing to it blocks the commit.

The one rule: a slot is reused only if the outcome of its last commit is known. One with an unknown outcome is retired:
it stays readable until the writer's lease ends, an hour or more after the store is closed.
"""

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.client import EtcdClient
from holdfast.stores.etcd.errors import LeaseNotFoundError
from holdfast.stores.etcd.keep_alive import KeepAliveStreams
from holdfast.stores.etcd.keyspace import Keyspace
from holdfast.stores.etcd.rpc_methods import LEASE_GRANT, LEASE_REVOKE
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify

_COMMIT_ID: Final = re.compile(r"([0-9a-f]{1,16})-(\d{1,18})-(\d{1,18})-(\d{1,18})")
_REVOKE_MS: Final = 1_000


@dataclass(slots=True, eq=False)
class SlotWriter:
    """One open store in etcd, while its lease is alive."""

    lease: int
    slots: int = 0  # created so far
    retired: int = 0
    lost: bool = False


@dataclass(slots=True, eq=False)
class CommitSlot:
    """A key that one commit at a time may write. `at` is its last revision; 0: not written yet."""

    writer: SlotWriter
    number: int
    key: bytes
    at: int = 0
    sequence: int = 0

    @property
    def commit_id(self) -> str:
        """All that is needed to resolve the commit, from any process."""
        return f"{self.writer.lease:x}-{self.number}-{self.at}-{self.sequence}"


@dataclass(frozen=True, slots=True)
class CommitId:
    """A parsed commit id."""

    lease: int
    number: int
    at: int
    sequence: int

    @classmethod
    def parse(cls, text: str) -> "CommitId":
        """Parse an id of this engine."""
        match = _COMMIT_ID.fullmatch(text)
        if match is None:
            raise InvalidError("commit id", text, "the id of an OutcomeUnknownError of an etcd store")
        lease, number, at, sequence = match.groups()
        return cls(int(lease, 16), int(number), int(at), int(sequence))


class CommitSlots:
    """The slots of one open store, at most `in_flight_max` in use."""

    def __init__(
        self, client: EtcdClient, renewals: KeepAliveStreams, keyspace: Keyspace, *, clock: Clock, random: Random
    ) -> None:
        self._client, self._renewals, self._keyspace = client, renewals, keyspace
        self._clock, self._random = clock, random
        self._permits = asyncio.Semaphore(client.settings.in_flight_max)
        self._in_use = 0
        self._free: list[CommitSlot] = []
        self._writer = SlotWriter(0, lost=True)
        self._ready = asyncio.Event()
        self._wake = Notify()

    async def take(self) -> CommitSlot:
        """A slot whose last outcome is known, for one commit; waits while too many commits are in flight."""
        if self._permits.locked() or not self._ready.is_set():
            await self._wait_for_permit()
        else:
            await self._permits.acquire()
        self._in_use += 1
        slot = self._free.pop() if self._free else self._new()
        slot.sequence += 1
        return slot

    def give_back(self, slot: CommitSlot) -> None:
        """The outcome of the slot's commit is known."""
        self._in_use -= 1
        self._permits.release()
        if not slot.writer.lost:
            self._free.append(slot)

    def retire(self, slot: CommitSlot) -> None:
        """The outcome is unknown: the slot is written again only by `resolve`."""
        self._in_use -= 1
        self._permits.release()
        slot.writer.retired += 1
        if slot.writer is self._writer and slot.writer.retired >= self._client.settings.writer_retired_max:
            self._drop(slot.writer)

    async def check(self, writer: SlotWriter) -> bool:
        """Whether the writer's lease is alive; if not, a new writer is started."""
        if not writer.lost and (await self._renewals.renew(writer.lease)).TTL > 0:
            return True
        self._drop(writer)
        return False

    async def start(self) -> None:
        """Get a writer lease."""
        response = await self._client.call(LEASE_GRANT, pb.LeaseGrantRequest(TTL=self._client.settings.writer_ttl_s))
        self._free.clear()
        self._writer = SlotWriter(response.ID)
        self._ready.set()

    async def keep_writing(self) -> None:
        """Renew the writer lease; after its loss, get a new one."""
        while True:
            pause_ms = self._client.settings.writer_ttl_s * 1000 / 6
            try:
                if not await self.check(self._writer):
                    await self.start()
            except (UnavailableError, InvalidError):  # a login may be fixed later; until then commits find no slot
                pause_ms = 500
            await self._wake.wait_ms(self._clock, self._random.jitter(pause_ms))

    async def leave(self) -> None:
        """Remove the slots, unless the outcome of a commit may still have to be resolved."""
        writer = self._writer
        if writer.lost or writer.retired or self._in_use:
            return
        with suppress(UnavailableError, InvalidError, LeaseNotFoundError):  # the end of the lease removes them then
            await self._client.call(LEASE_REVOKE, pb.LeaseRevokeRequest(ID=writer.lease), within_ms=_REVOKE_MS)

    def _new(self) -> CommitSlot:
        writer = self._writer
        writer.slots += 1
        return CommitSlot(writer, writer.slots, self._keyspace.slot(writer.lease, writer.slots))

    def _drop(self, writer: SlotWriter) -> None:
        writer.lost = True
        if writer is self._writer:
            self._free.clear()
            self._ready.clear()
            self._wake.notify()

    async def _wait_for_permit(self) -> None:
        timeout_ms = self._client.settings.timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._ready.wait()
                await self._permits.acquire()
        except TimeoutError:
            in_flight_max = self._client.settings.in_flight_max
            raise UnavailableError(
                self._client.address.shown,
                f"no free commit slot within {timeout_ms} ms: {self._in_use} of {in_flight_max} in use;"
                " check etcd's disk and network, or raise in_flight_max",
            ) from None
