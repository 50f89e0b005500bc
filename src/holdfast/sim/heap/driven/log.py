"""A partition's log in memory, and one leadership of it as heaps use it.

The one rule: what is durable stays. What is not may be cut off when a leadership ends, or when a disk fails; what a former leader
appends is in its own copy, and is never durable.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import Operation, decode_operation
from holdfast.log.batches import decode, parse_header, patch
from holdfast.log.errors import NotLeaderError
from holdfast.log.model import OnDurable, PartitionId
from holdfast.log.owned_partition import OwnedPartition
from holdfast.log.reader import FetchedBatches
from holdfast.sim.heap.driven.network import SimNetwork
from holdfast.vocabulary.errors import FencedError, HoldfastError, UnavailableError
from holdfast.vocabulary.settings import MIB

OnAppend = Callable[[int, tuple[Operation, ...], tuple[int, ...], bool], None]
"""A batch was appended at an offset: its operations, their times, and whether it is in a former leader's copy."""


class _Batch(NamedTuple):
    base: int
    end: int
    data: bytes


@dataclass(slots=True)
class SimLog:
    """The batches of a partition, whoever leads it."""

    batches: list[_Batch] = field(default_factory=list)
    durable: int = 0

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self.batches[-1].end if self.batches else 0

    def cut(self, offset: int) -> None:
        """Remove what is from an offset on."""
        self.batches = [batch for batch in self.batches if batch.end <= offset]

    def tail_offsets(self) -> list[int]:
        """Where the log may end if what is not durable is cut off."""
        return [self.durable, *(batch.end for batch in self.batches if batch.end > self.durable)]


class SimOwnedPartition(OwnedPartition):
    """One leadership. After `depose` it goes on with a copy of the log, until it is closed."""

    def __init__(self, which: PartitionId, epoch: int, log: SimLog, network: SimNetwork, on_append: OnAppend) -> None:
        self._which, self._epoch, self._log, self._network, self._on_append = which, epoch, log, network, on_append
        self.closed: HoldfastError | None = None
        self._is_deposed = False
        self._waiters: list[tuple[int, OnDurable]] = []
        self._failures = 0  # appends of before one are not synced any more
        self._synced_at_ms = 0.0
        self._sync(log.end)  # what was found

    @property
    def partition_id(self) -> PartitionId:
        return self._which

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def start_offset(self) -> int:
        return 0

    @property
    def next_offset(self) -> int:
        return self._log.end

    @property
    def high_watermark(self) -> int:
        return self._log.durable

    @property
    def append_bytes_max(self) -> int:
        return MIB

    def is_current(self) -> bool:
        return self.closed is None

    def check_accepting(self) -> None:
        if self.closed is not None:
            raise self.closed

    async def confirm(self) -> None:
        await self._network.pause()
        if self._is_deposed or self.closed is not None:
            raise NotLeaderError(self._which.topic, self._which.number, reason="a later leader took over")

    # ── appends ──

    def append_now(self, batch: bytes) -> int | None:
        if self.closed is None and self._network.appends_wait():
            return None
        return self._append(batch)

    async def append(self, batch: bytes) -> int:
        await self._network.pause()
        return self._append(batch)

    def _append(self, batch: bytes) -> int:
        if self.closed is not None:
            raise NotLeaderError(self._which.topic, self._which.number, reason=f"nothing was appended: {self.closed}")
        base = self._log.end
        data = bytearray(batch)
        patch(data, base_offset=base, leader_epoch=self._epoch)
        end = parse_header(data).last_offset + 1
        self._log.batches.append(_Batch(base, end, bytes(data)))
        records = list(decode(data))
        operations = tuple(decode_operation(each.key, each.value, each.headers) for each in records)
        self._on_append(base, operations, tuple(each.timestamp_ms for each in records), self._is_deposed)
        self._sync(end)
        return base

    def replayed(self, mode: str, end: int) -> HeapState:
        """The state at an offset, from all of the log."""
        state = HeapState(mode)
        for batch in self._log.batches:
            for each in decode(batch.data):
                if each.offset < end:
                    state.apply(each.offset, each.timestamp_ms, decode_operation(each.key, each.value, each.headers))
        state.next_offset = end
        return state

    # ── durability ──

    def _sync(self, end: int) -> None:
        """Have everything below durable some time later, in order."""
        self._synced_at_ms = self._network.synced_at_ms(self._synced_at_ms)
        self._network.loop.post_at(self._synced_at_ms, self._synced, end, self._failures)

    def _synced(self, end: int, failures: int) -> None:
        if self._is_deposed or self.closed is not None or failures != self._failures:
            return
        self._log.durable = max(self._log.durable, end)
        self._tell([each for each in self._waiters if each[0] <= end], None)

    def _tell(self, waiters: list[tuple[int, OnDurable]], error: HoldfastError | None) -> None:
        told = {id(each) for each in waiters}
        self._waiters = [each for each in self._waiters if id(each) not in told]
        for _, on_durable in waiters:
            on_durable(error)

    def notify_durable(self, end_offset: int, on_durable: OnDurable) -> None:
        if self.closed is not None:
            on_durable(self.closed)
        elif end_offset <= self._log.durable:
            on_durable(None)
        else:
            self._waiters.append((end_offset, on_durable))

    def fail_appends(self) -> int:
        """The disk has failed: what was not durable is undone. Where the log ends now."""
        self._failures += 1
        self._log.cut(self._log.durable)
        self._tell([*self._waiters], self._disk_failed())
        return self._log.end

    def _disk_failed(self) -> UnavailableError:
        return UnavailableError(f"disk of {self._which}", "it is full")

    # ── the end ──

    def depose(self) -> None:
        """Another leader takes over, and this one does not know."""
        self._is_deposed = True
        self._log = SimLog([*self._log.batches], self._log.durable)

    def close(self) -> None:
        """It knows."""
        if self.closed is None:
            self.closed = FencedError(f"partition {self._which}", self._epoch, self._epoch + 1)
            self._tell([*self._waiters], self.closed)

    # ── reads ──

    async def read(self, offset: int, *, bytes_max: int, wait_ms: float = 0) -> FetchedBatches:
        failures = self._failures
        await self._network.pause()
        deadline_ms = self._network.loop.now_ms + wait_ms
        while offset >= self._log.durable and self._network.loop.now_ms < deadline_ms and self.closed is None:
            if failures != self._failures:
                raise self._disk_failed()  # as `Watermark.fail_above`: who waits for what is undone is told
            await self._network.pause()
        if self.closed is not None:
            raise self.closed
        self._network.check_readable(str(self._which))
        log, found, size = self._log, list[bytes](), 0
        for batch in log.batches:
            if offset >= batch.end:
                continue
            if batch.end > log.durable or (found and size + len(batch.data) > bytes_max):
                break
            found.append(batch.data)
            size += len(batch.data)
        return FetchedBatches([*found], 0, log.durable, size)
