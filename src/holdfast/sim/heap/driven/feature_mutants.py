"""Mutants of what driven heaps have beside messages: fairness, growth, dead letters, snapshots.

The one rule: one variant, one mistake; everything else is the code that ships.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import msgspec

from holdfast.heap.fairness.index import FairIndex
from holdfast.heap.fairness.keys import FairKey
from holdfast.heap.growth.growing_partition import GrowingPartition
from holdfast.heap.growth.look_up import Found, LookUp
from holdfast.heap.model import Enqueued, NewMessage, StoredMessage
from holdfast.heap.moves import Mover
from holdfast.heap.partition_state import OutgoingMessage
from holdfast.heap.records import Operation, PartitionCount
from holdfast.heap.snapshots import SnapshotKeeper
from holdfast.kernel.keys import epoch_key
from holdfast.log.owned_snapshots import OwnedSnapshots
from holdfast.log.partition_snapshots import SnapshotRecord
from holdfast.sim.heap.driven.variant import DrivenVariant

# ── fairness ──


class _LeaseEndsUntold(GrowingPartition):
    def _tell_opened(self) -> None:
        return


class _WithIndex(GrowingPartition):
    """Has an index with a mistake from the moment it has one."""

    index: ClassVar[type[FairIndex]] = FairIndex

    def _add(self, operations: Sequence[Operation], size_bytes: int = 0) -> int:
        if type(self.state.fair) is FairIndex:
            self.state.fair.__class__ = self.index
        return super()._add(operations, size_bytes)

    def _serve_pops(self) -> None:
        if type(self.state.fair) is FairIndex:
            self.state.fair.__class__ = self.index
        super()._serve_pops()


class _UnlimitedIndex(FairIndex):
    def _at_lease_limit(self, key: FairKey) -> bool:
        return False


class _KeyLimitsOff(_WithIndex):
    index = _UnlimitedIndex


class _UnchargedIndex(FairIndex):
    def _charge(self, key: FairKey, now_ns: int) -> None:
        tag = key.tag
        super()._charge(key, now_ns)
        key.tag = tag


class _KeysUncharged(_WithIndex):
    index = _UnchargedIndex


class _BucketsRefilled(GrowingPartition):
    def __init__(self, log: Any, state: Any, rules: Any, **parts: Any) -> None:
        if state.fair is not None:
            state.fair._full_at_ns, state.fair._is_closed = 0, False
            for key in state.fair._keys:
                key.full_at_ns, key.is_closed = 0, False
                state.fair._put_in_place(key)
        super().__init__(log, state, rules, **parts)


# ── growth ──


class _GrowthUnlogged(GrowingPartition):
    def _add(self, operations: Sequence[Operation], size_bytes: int = 0) -> int:
        logged = [each for each in operations if not isinstance(each, PartitionCount)]
        return super()._add(logged, size_bytes) if logged else self.state.next_offset


class _HomesUnasked(GrowingPartition):
    async def _enqueued_before(self, messages: Sequence[NewMessage]) -> dict[int, Enqueued]:
        return {}


class _LookUpsUntold(GrowingPartition):
    _is_look_up = False

    async def look_up(self, request: LookUp) -> Found:
        self._is_look_up = True
        try:
            return await super().look_up(request)
        finally:
            self._is_look_up = False

    def _repeated(self, offsets: Iterable[int]) -> "asyncio.Future[None] | None":
        is_look_up, self._is_look_up = self._is_look_up, False
        return None if is_look_up else super()._repeated(offsets)


# ── dead letters ──


class _MovesUnnumbered(Mover):
    def _message(self, at: int, move: OutgoingMessage, stored: StoredMessage) -> NewMessage:
        return msgspec.structs.replace(super()._message(at, move, stored), producer=None)


class _ForgetsFirst(Mover):
    async def _send(self, topic: str, number: int, moves: Sequence[tuple[int, OutgoingMessage]]) -> None:
        stored = await self._partition.stored([move.offset for _, move in moves], 1 << 20)
        await self._partition.moved([at for at, _ in moves])
        messages = [self._message(*move, message) for move, message in zip(moves, stored, strict=True)]
        await self._deliver(topic, number, messages)


class _MovesBeforeDurable(GrowingPartition):
    async def stored(self, offsets: Sequence[int], bytes_max: int) -> list[StoredMessage]:
        return await self._reader.read_first(offsets, bytes_max)


# ── snapshots ──


class _HastySource:
    """A partition that takes what it has for durable."""

    def __init__(self, partition: Any) -> None:
        self._partition = partition

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partition, name)

    async def durable(self) -> None:
        await asyncio.sleep(0)  # noqa: TID251 (no time passes)


class _SnapshotsBeforeDurable(SnapshotKeeper):
    def __init__(self, source: Any, settings: Any, **parts: Any) -> None:
        super().__init__(_HastySource(source), settings, **parts)


class _SnapshotsUnfenced(OwnedSnapshots):
    async def _list(self, record: SnapshotRecord) -> None:
        lease = self._led.lease
        newest = await self._context.store.get(epoch_key(lease.resource))
        if newest is not None:
            self._led.lease = replace(lease, version=newest.version)
        await super()._list(record)


FEATURE_MUTANTS: Final = (
    DrivenVariant(
        name="lease-ends-untold",
        wrong="the spine is not told of what a limit or a rate has held back",
        partition=_LeaseEndsUntold,
    ),
    DrivenVariant(name="key-limits-off", wrong="a key's limit of leases is not looked at", partition=_KeyLimitsOff),
    DrivenVariant(name="keys-uncharged", wrong="a key is not charged for its turn", partition=_KeysUncharged),
    DrivenVariant(name="buckets-refilled", wrong="every leader begins with full buckets", partition=_BucketsRefilled),
    DrivenVariant(name="growth-unlogged", wrong="the next leader knows of fewer partitions", partition=_GrowthUnlogged),
    DrivenVariant(
        name="homes-unasked", wrong="a new partition does not look for enqueues of before", partition=_HomesUnasked
    ),
    DrivenVariant(
        name="look-ups-untold",
        wrong="a new partition is told of an enqueue that the spine does not know yet",
        partition=_LookUpsUntold,
    ),
    DrivenVariant(
        name="moves-unnumbered", wrong="a dead letter that is sent again is a second one", mover=_MovesUnnumbered
    ),
    DrivenVariant(name="forgets-first", wrong="a move is forgotten before it has arrived", mover=_ForgetsFirst),
    DrivenVariant(
        name="moves-before-durable",
        wrong="a message moves before its log says so for ever",
        partition=_MovesBeforeDurable,
    ),
    DrivenVariant(
        name="snapshots-before-durable",
        wrong="a snapshot holds what the log may lose",
        keeper=_SnapshotsBeforeDurable,
    ),
    DrivenVariant(name="snapshots-unfenced", wrong="any leader may list a snapshot", snapshots=_SnapshotsUnfenced),
)
