"""What readers see of a partition that this agent leads: its bounds, its tail, what to wait on, what outlives the session.

The one rule (docs/safety.md, rule 8): nothing at or above `high_watermark` is shown. `AppendableLog` moves it.
A `ReadablePartition` and a `ReadProgress`.
"""

import asyncio

from holdfast.kernel.lease import Lease
from holdfast.log.batches import Buffer
from holdfast.log.metadata import PartitionRecord
from holdfast.log.model import PartitionId
from holdfast.log.partition.resources import PartitionResources, RecoveredPartition
from holdfast.log.partition.retained_partition import RetainedPartition
from holdfast.log.partition.watermark import Watermark
from holdfast.log.segments import EpochStart
from holdfast.vocabulary.errors import HoldfastError


class VisibleLog:
    """The visible part of one partition. Its owner sets what is durable, acknowledged and closed."""

    __slots__ = (  # noqa: SIM905 - a list would fill the screen
        "_acknowledged _clock _closed _durable _session _store _visible fenced_record lease level partition_id segments tail"
    ).split()

    def __init__(
        self, partition_id: PartitionId, lease: Lease, state: RecoveredPartition, resources: PartitionResources
    ) -> None:
        self.partition_id, self.lease, self.segments, self.tail = partition_id, lease, state.segments, state.tail
        self.level = state.record.record.level  # until it is opened again: what was visible must not become invisible
        self.fenced_record = state.record
        self._session, self._store, self._clock = resources.session, resources.store, resources.clock
        self._durable = max(state.tail.end, state.record.record.published)
        self._acknowledged = self._durable  # what became durable while the session lived
        self._visible = Watermark(self.high_watermark)
        self._closed: HoldfastError | None = None

    @property
    def record(self) -> PartitionRecord:
        """The partition's record, as the store holds it."""
        return self.fenced_record.record

    @property
    def epoch(self) -> int:
        """The epoch of the lease, which is the leader epoch."""
        return self.lease.epoch

    @property
    def high_watermark(self) -> int:
        """Everything below is durable at the topic's level, and visible."""
        return self.record.published if self.level == "object" else self._durable

    @property
    def start_offset(self) -> int:
        """The first offset that is still kept."""
        return self.record.start

    @property
    def epochs(self) -> tuple[EpochStart, ...]:
        """The leader history."""
        return self.record.epochs

    def check_readable(self) -> None:
        """Raise unless this partition is still served under a live session."""
        if self._closed is not None:
            raise self._closed
        self._session.check()

    def is_current(self) -> bool:
        """Whether nobody else can lead it: served, and under a live session."""
        return self._closed is None and self._session.alive()

    def retained(self) -> RetainedPartition:
        """What may be read here without a session: what was acknowledged before it was lost."""
        acknowledged = self.record.published if self.level == "object" else self._acknowledged
        return RetainedPartition(
            self.partition_id,
            epoch=self.epoch,
            high_watermark=min(self.high_watermark, acknowledged),
            record=self.record,
            segments=self.segments,
            tail=self.tail,
            store=self._store,
            clock=self._clock,
        )

    def read_tail(self, offset: int, *, bytes_max: int) -> list[Buffer] | None:
        """Visible batches from `offset` on; None: not in the tail any more, read segments."""
        if offset < self.tail.start:
            return None
        return self.tail.read(offset, below=self.high_watermark, bytes_max=bytes_max)

    def resolve_beyond(self, offset: int, waiter: "asyncio.Future[None]") -> None:
        """Resolve `waiter` (shared by several partitions) once the high watermark is above `offset`, or fail it."""
        self._visible.resolve_at(offset + 1, waiter)

    def forget(self, offset: int) -> None:
        """A waiter for `offset` has stopped waiting."""
        self._visible.forget(offset + 1)

    async def wait_beyond(self, offset: int, wait_ms: float) -> bool:
        """Wait until the high watermark is above `offset`, at most `wait_ms`."""
        self.check_readable()
        return await self._visible.reaches_within(offset + 1, self._clock, wait_ms)

    async def refresh(self) -> None:
        """Nothing to do: the leader's list of segments is current."""
