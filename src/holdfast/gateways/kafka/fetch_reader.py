"""Reads the partitions of one fetch: at least `bytes_min`, at most `bytes_max`, and one wait for all of them.

What is in memory is read at once. What needs object storage is read side by side (`remote_reads`), and no partition waits for
another: once there is enough, the rest has a moment to be ready, and otherwise is left to the next fetch.

Results are in the order of the request. The first partition with records returns at least one batch, however large, so that every
reader makes progress; the others share the rest. An error is enough. Waiting holds no records.

A reader in another zone is sent to a replica in its own zone, if Metadata lists one: clients cannot ask any other. One that is in
sync shows what the leader has said is visible; any other reads published segments straight from object storage, and at their end
sends the reader back to the leader.
"""

import asyncio
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.gateways.kafka.api import RequestContext
from holdfast.gateways.kafka.errors import code_of
from holdfast.gateways.kafka.fetch_sessions import FetchPartition
from holdfast.gateways.kafka.leaders import preferred_replica, replicas_of
from holdfast.gateways.kafka.remote_reads import RemoteRead
from holdfast.gateways.kafka.response_budget import SMALL_BYTES
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import NO_NODE, NO_OFFSET
from holdfast.log.batches import Buffer, parse_header
from holdfast.log.errors import NotLeaderError, OffsetOutOfRangeError
from holdfast.log.partition_read import PartitionRead, ReadProgress
from holdfast.security.acls import Operation, ResourceType
from holdfast.vocabulary.clock import stopwatch_ns
from holdfast.vocabulary.errors import ExpiredError, HoldfastError
from holdfast.vocabulary.settings import KIB
from holdfast.vocabulary.types import Member

_NEARLY_FULL: Final = 16
_GRACE_S: Final = 0.02  # for reads under way once there is enough: less than a person notices, more than a disk takes
_REMOTE_BYTES_MIN: Final = 256 * KIB  # of one read, where several partitions share the room
_REMOTE_READS_MAX: Final = 32  # begun by one fetch at a time


class FetchLimits(NamedTuple):
    """Limits of a request."""

    wait_ms: int
    bytes_min: int
    bytes_max: int
    rack: str


@dataclass(slots=True)
class PartitionFetch:
    """The result for one partition.

    `remote`: the read it waits for; `source`: the read it has its records from; `deferred`: there was no room for a read.
    """

    wanted: FetchPartition
    topic: str | None = None
    code: ErrorCode = ErrorCode.NONE
    high_watermark: int = NO_OFFSET
    start_offset: int = NO_OFFSET
    batches: Sequence[Buffer] = ()
    size: int = 0
    preferred: int = NO_NODE
    progress: ReadProgress | None = field(default=None, repr=False)
    remote: "RemoteRead[PartitionFetch] | None" = field(default=None, repr=False)
    source: "RemoteRead[PartitionFetch] | None" = field(default=None, repr=False)
    deferred: bool = False

    @property
    def settled(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.code is not ErrorCode.NONE or self.preferred != NO_NODE

    @property
    def outdated(self) -> bool:
        """Whether reading again would bring more."""
        if self.remote is not None:
            return self.remote.task.done()
        if self.deferred:
            return True
        return self.progress is not None and self.progress.high_watermark > self.high_watermark


async def read_partitions(
    call: RequestContext, wanted: Sequence[FetchPartition], limits: FetchLimits
) -> list[PartitionFetch]:
    """The results of all partitions, in the order of the request."""
    request = _PartitionReads(call, wanted, limits)
    try:
        return await request.run()
    finally:
        request.leave_remote_reads()


class _PartitionReads:
    """One request, from its first read to its answer."""

    def __init__(self, call: RequestContext, wanted: Sequence[FetchPartition], limits: FetchLimits) -> None:
        self._call, self._wanted, self._limits = call, wanted, limits
        self._remote_reads = call.backend.remote_reads
        self._reads: list[PartitionFetch | None] = [None] * len(wanted)
        self._joined: set[RemoteRead[PartitionFetch]] = set()
        self._ends = False  # others need the room of what it names
        self._room_wanted = 0  # for a read that could not begin; 0: it waits for another read to end, or none waits

    async def run(self) -> list[PartitionFetch]:
        loop, limits, responses = asyncio.get_running_loop(), self._limits, self._call.backend.responses
        began = loop.time()
        deadline = began + limits.wait_ms / 1000
        remote_deadline = max(deadline, began + self._call.backend.settings.fetch_read_ms / 1000)
        enough_at: float | None = None
        while True:
            self._call.begin_turn()
            got = await self._read_all()
            reads = [read for read in self._reads if read is not None]
            waiting = any(read.remote is not None or read.deferred for read in reads)
            now = loop.time()
            if got >= limits.bytes_min or any(read.settled for read in reads):
                enough_at = now if enough_at is None else enough_at
            if enough_at is not None:
                until = enough_at + _GRACE_S if waiting and got < limits.bytes_max else now
            else:
                until = remote_deadline if waiting else deadline
            if self._ends:
                until = now
            if now < until and not (got and got >= limits.bytes_max):
                if not await self._wait(reads, until - now):
                    self._reads = [None] * len(self._wanted)  # one is no longer led here: read again for its error
            elif self._take_room(got):
                return reads
            elif not await responses.wait_for_room(got, remote_deadline - now):
                return [replace(read, batches=(), size=0) for read in reads]
            else:
                self._reads = [None] * len(self._wanted)
                enough_at = None

    def _take_room(self, size: int) -> bool:
        """Whether the response may be made: its bytes count from now on, until the connection has written it."""
        backend = self._call.backend
        for read in self._reads:
            if read is not None and read.source is not None:
                self._remote_reads.forget(read.source)  # its bytes are those of the response now
        if size <= SMALL_BYTES:
            return True
        if not backend.responses.take(size, backend.clock.boot_ms()):
            return False
        self._call.taken_bytes = size
        return True

    def leave_remote_reads(self) -> None:
        """Leave what is under way to the next fetch."""
        for remote in self._joined:
            self._remote_reads.leave(remote)
        self._joined.clear()

    async def _read_all(self) -> int:
        """Read what is in memory or has been read meanwhile, and begin the other reads; the bytes so far."""
        bytes_max = self._limits.bytes_max
        to_read = [at for at, read in enumerate(self._reads) if read is None or read.outdated]
        for at in to_read:
            old, self._reads[at] = self._reads[at], None
            if old is not None and old.source is not None and not old.size:
                self._forget(old.source)  # there is more by now; what it brought would be thrown away
        left = bytes_max - sum(read.size for read in self._reads if read is not None)
        to_begin: list[tuple[PartitionFetch, Hashable]] = []
        for at in to_read:  # not by `each`: it takes its time, and every consumer sends this
            read = self._reads[at] = PartitionFetch(self._wanted[at])
            # Nearly full: a read would mostly return more than fits, and be wasted.
            room = left if left == bytes_max or left > bytes_max // _NEARLY_FULL else 0
            key = self._read(read, room)
            if key is not None:
                self._read_remotely(read, key, room, first=left == bytes_max, to_begin=to_begin)
            if read.size > max(0, min(left, read.wanted.bytes_max)) and left < bytes_max:
                read.batches, read.size = (), 0  # the others filled the response: next time
            left -= read.size
            if self._call.turn_is_over:
                await self._call.next_turn()
        self._begin(to_begin, left)
        return bytes_max - left

    def _read(self, read: PartitionFetch, room: int) -> Hashable | None:
        """Fill `read` with what is in memory. Otherwise what to read: the key of the remote read."""
        (named, number), offset, bytes_max, epoch = read.wanted
        backend, rack = self._call.backend, self._limits.rack
        topic = read.topic = backend.cluster.name_of(named.hex) if isinstance(named, UUID) else named
        if topic is None:
            read.code = ErrorCode.UNKNOWN_TOPIC_ID
            return None
        if self._call.access is not None and not self._call.allows(Operation.READ, ResourceType.TOPIC, topic):
            read.code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return None
        size_max = max(0, min(room, bytes_max))
        try:
            if rack and _preferred(self._call, topic, number, rack) is not None:
                return (topic, number, offset, epoch, rack)
            found = backend.log.read_now(topic, number, offset, bytes_max=size_max, leader_epoch=epoch)
        except OffsetOutOfRangeError as error:
            read.code, read.start_offset, read.high_watermark = ErrorCode.OFFSET_OUT_OF_RANGE, error.start, error.end
            return None
        except NotLeaderError as error:
            if rack and _is_replica_in(self._call, topic, number, rack):
                return self._read_replica(read, topic, size_max)
            read.code = code_of(error)
            return None
        except HoldfastError as error:
            read.code = code_of(error)
            return None
        if found is None:
            return (topic, number, offset, epoch)
        return self._take(read, found)

    def _read_replica(self, read: PartitionFetch, topic: str, bytes_max: int) -> Hashable | None:
        """Fill `read` with what is in memory of the replica here, which another node leads."""
        (_, number), offset, _, epoch = read.wanted
        found: PartitionRead | None = None
        try:
            found = self._call.backend.log.read_replica_now(
                topic, number, offset, bytes_max=bytes_max, leader_epoch=epoch
            )
        except OffsetOutOfRangeError as error:
            read.code, read.start_offset, read.high_watermark = ErrorCode.OFFSET_OUT_OF_RANGE, error.start, error.end
            return None
        except HoldfastError:
            pass  # what is published may be read all the same
        return (topic, number, offset, epoch, self._limits.rack) if found is None else self._take(read, found)

    def _take(self, read: PartitionFetch, found: PartitionRead) -> Hashable | None:
        """Fill `read` with what was found in memory. Otherwise the key of the remote read."""
        read.batches, read.size, read.start_offset, read.high_watermark, _, read.progress, in_memory = found
        # By leadership, not by name: a topic of the same name may be another one.
        return None if in_memory else (read.progress, read.wanted.offset)

    def _read_remotely(
        self,
        read: PartitionFetch,
        key: Hashable,
        room: int,
        *,
        first: bool,
        to_begin: list[tuple[PartitionFetch, Hashable]],
    ) -> None:
        """Fill `read` with what has been read remotely, as far as it fits; or have it wait for that."""
        remote = self._remote_reads.find(key)
        for joined in self._joined if remote is None else ():  # another fetch has taken it
            remote = joined if joined.key == key else remote
        if remote is None:
            to_begin.append((read, key))
        elif not remote.task.done():
            self._join(read, remote)
        else:
            whole = self._remote_reads.result(remote)
            found = _cut(whole, min(room, read.wanted.bytes_max), first=first)
            read.code, read.preferred, read.batches, read.size = found.code, found.preferred, found.batches, found.size
            if read.progress is None or found.settled:  # otherwise what is known is younger
                read.high_watermark, read.start_offset = found.high_watermark, found.start_offset
                read.progress = found.progress if not found.size else None  # records are not read again for more
            elif found is whole and found.size:
                _read_on(read, min(room, read.wanted.bytes_max) - found.size)
            if found.size or not whole.size:  # otherwise it does not fit: next time
                read.source = remote

    def _begin(self, to_begin: Sequence[tuple[PartitionFetch, Hashable]], left: int) -> None:
        """Begin remote reads that share the room that is left."""
        self._room_wanted = 0
        if not to_begin or (left < self._limits.bytes_max and left <= self._limits.bytes_max // _NEARLY_FULL):
            return
        share = max(left // len(to_begin), min(left, _REMOTE_BYTES_MIN))
        if len(to_begin) > _REMOTE_READS_MAX:  # not always the first ones: they may fail, again and again
            first = self._remote_reads.begun % len(to_begin)
            to_begin = [*to_begin[first:], *to_begin[:first]]
        for read, key in to_begin[:_REMOTE_READS_MAX]:
            bytes_max = max(1, min(share, read.wanted.bytes_max))
            reading = partial(_read_remotely, self._call, read.wanted, read.topic or "", bytes_max, self._limits.rack)
            remote = self._remote_reads.begin(key, reading, bytes_max, self._call.backend.clock.boot_ms())
            if remote is None:
                read.deferred = True
                self._room_wanted = bytes_max if self._remote_reads.has_room(bytes_max) else 0
            else:
                self._join(read, remote)

    def _join(self, read: PartitionFetch, remote: "RemoteRead[PartitionFetch]") -> None:
        read.remote = remote
        if remote not in self._joined:
            self._joined.add(remote)
            self._remote_reads.join(remote)

    def _forget(self, remote: "RemoteRead[PartitionFetch]") -> None:
        self._remote_reads.forget(remote)
        if remote in self._joined:
            self._joined.discard(remote)
            self._remote_reads.leave(remote)

    async def _wait(self, reads: Sequence[PartitionFetch], wait_s: float) -> bool:
        """Wait until a partition has new records or a read is done; False: one of them is no longer led here."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake(_: object) -> None:
            if not waiter.done():
                waiter.set_result(None)

        # Not those that wait for a read: new records would wake them again and again.
        watched = [
            (read.progress, read.high_watermark) for read in reads if read.progress is not None and read.remote is None
        ]
        tasks = [read.remote.task for read in reads if read.remote is not None]
        began_ns = stopwatch_ns()
        for progress, seen in watched:
            progress.resolve_beyond(seen, waiter)
        for task in tasks:
            task.add_done_callback(wake)
        responses = self._call.backend.responses
        if self._room_wanted:
            responses.resolve_with_room(self._room_wanted, waiter)
        elif any(read.deferred for read in reads):
            self._remote_reads.resolve_with_room(waiter)

        def end() -> None:
            self._ends = True
            wake(None)

        place = self._call.place
        if place is not None:
            place.may_end(end)
        try:
            async with asyncio.timeout(wait_s):
                await waiter
        except TimeoutError:
            return True
        except HoldfastError:
            return False
        finally:
            if place is not None:
                place.forget()
            if not tasks:  # object storage is the server's affair
                self._call.waited_ns += stopwatch_ns() - began_ns
            for progress, seen in watched:
                progress.forget(seen)
            for task in tasks:
                task.remove_done_callback(wake)
            responses.forget(waiter)
            self._remote_reads.stop_waiting(waiter)
        return True


def _cut(read: PartitionFetch, bytes_max: int, *, first: bool) -> PartitionFetch:
    """What was read, as far as it fits: whole batches, at least one for the `first` partition with records."""
    if read.size <= bytes_max:
        return read
    kept: list[Buffer] = []
    size = 0
    for batch in read.batches:
        if size + len(batch) > bytes_max and not (first and not kept):
            break
        kept.append(batch)
        size += len(batch)
    return replace(read, batches=kept, size=size)


def _read_on(read: PartitionFetch, bytes_max: int) -> None:
    """Add what memory has behind what object storage has brought."""
    assert read.progress is not None
    more = read.progress.read_tail(parse_header(read.batches[-1]).last_offset + 1, bytes_max=bytes_max) or ()
    size = sum(map(len, more))
    if size <= bytes_max:  # a first batch may be larger
        read.batches, read.size = [*read.batches, *more], read.size + size


async def _read_remotely(
    call: RequestContext, wanted: FetchPartition, topic: str, bytes_max: int, rack: str
) -> PartitionFetch:
    """The result for a partition that has to be read from object storage, or whose topic has to be looked up."""
    read = PartitionFetch(wanted, topic)
    try:
        await _fill(call, read, topic, wanted.key[1], bytes_max, rack)
    except OffsetOutOfRangeError as error:
        read.code, read.start_offset, read.high_watermark = ErrorCode.OFFSET_OUT_OF_RANGE, error.start, error.end
    except HoldfastError as error:
        read.code = code_of(error)
    return read


async def _fill(call: RequestContext, read: PartitionFetch, topic: str, number: int, bytes_max: int, rack: str) -> None:
    log, offset, epoch = call.backend.log, read.wanted.offset, read.wanted.leader_epoch
    try:
        if rack and await _redirect(call, read, topic, number, rack):
            return
        found = await log.read(topic, number, offset, bytes_max=bytes_max, leader_epoch=epoch)
    except NotLeaderError:
        if not rack or not _is_replica_in(call, topic, number, rack):
            raise
        try:
            found = await log.read_replica(topic, number, offset, bytes_max=bytes_max, leader_epoch=epoch)
        except NotLeaderError:
            published = await log.fetch_published(topic, number, offset, bytes_max=bytes_max)
            if published is None:
                raise  # only the leader has it
            read.high_watermark, read.start_offset = published.high_watermark, published.start_offset
            read.batches, read.size = published.batches, published.size_bytes
            return
    read.batches, read.size, read.start_offset, read.high_watermark, _, read.progress, _ = found


async def _redirect(call: RequestContext, read: PartitionFetch, topic: str, number: int, rack: str) -> bool:
    """Send a reader to a replica of its own zone, if one that is in sync or needs only what is published is there."""
    if _preferred(call, topic, number, rack) is None:
        return False
    try:
        status = await call.backend.log.describe(topic, number, leader_epoch=read.wanted.leader_epoch)
    except (NotLeaderError, ExpiredError):
        return False  # without a session, what is known here is read here
    preferred = _preferred(call, topic, number, rack, status.in_sync)
    if preferred is None:
        return False
    end = status.high_watermark + 1 if preferred.wal_id in status.in_sync else status.published_until
    if not status.start_offset <= read.wanted.offset < end:
        return False
    read.preferred, read.high_watermark, read.start_offset = preferred.node, status.high_watermark, status.start_offset
    return True


def _preferred(
    call: RequestContext, topic: str, number: int, rack: str, in_sync: Collection[str] = ()
) -> Member | None:
    """The replica to which readers of this zone are sent; None: we are in it, or none is."""
    me = call.backend.me()
    if me is None or me.rack == rack:
        return None
    replicas = replicas_of(call.backend.cluster, topic, number)
    return preferred_replica(replicas, leader=me.node, rack=rack, in_sync=in_sync)


def _is_replica_in(call: RequestContext, topic: str, number: int, rack: str) -> bool:
    """Whether this node is a replica of the partition in the reader's zone: one to which the leader may have sent it."""
    me = call.backend.me()
    return me is not None and any(
        member.node == me.node and member.zone == rack for member in replicas_of(call.backend.cluster, topic, number)
    )
