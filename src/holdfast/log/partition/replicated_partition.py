"""A partition at `quorum` under this agent's lease: appends go to all replicas of its set, and are durable when enough have them.

Its rules (docs/replication.md, docs/safety.md rule 11):
- Durable, visible and publishable is what lies below the leader's high watermark.
- Offsets are never given again: a write that this agent's own disk refused may be on others. Whatever ends the leader closes the
  partition, and what was not acknowledged has an unknown outcome.
- Its frames in the WAL are the replica's: nothing is written, released or remembered here.

What is sent to whom is the `Leader`'s to say, and is sent by its `MemberStreams`.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec
from crc32c import crc32c

from holdfast.kernel.lease import Lease
from holdfast.log.errors import NotEnoughReplicasError
from holdfast.log.figures import PartitionFigures
from holdfast.log.metadata import PartitionRecord, SegmentRecord
from holdfast.log.model import PartitionConfig, PartitionId
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.replica_members import can_hand_over_log
from holdfast.log.partition.resources import PartitionResources, RecoveredPartition
from holdfast.log.replica_sets import replica_set_write, replicas_needed
from holdfast.log.replication.entry_log import EntryLog
from holdfast.log.replication.leader import Ended
from holdfast.log.replication.takeover_run import TakeoverRun
from holdfast.log.wal import WalFrame
from holdfast.vocabulary.errors import FencedError, HoldfastError, InvalidError

_CAUGHT_UP_MS: Final = 1_000  # a learner that had the log so lately has it
_SILENT_MS: Final = 3_000  # a member that has not kept up for so long is missing
_TEACHING_MS: Final = 5_000  # as long as one that does not keep up is waited for


class ReplicatedPartition(LeadingPartition):
    """One partition whose tail several agents keep. Made by `takeover.open_partitions`."""

    __slots__ = (  # noqa: SIM905 - a list would fill the screen
        "_catch_up_rate _in_sync _leader _matched _needed _own _seen_durable _streams _teaching_since_ms _unannounced "
        "drain_failed in_sync_committed_ms on_ended"
    ).split()

    def __init__(
        self,
        partition_id: PartitionId,
        lease: Lease,
        state: RecoveredPartition,
        resources: PartitionResources,
        run: TakeoverRun,
    ) -> None:
        """The open commit of `run` is known to have been made."""
        super().__init__(partition_id, lease, state, resources)
        assert run.streams is not None
        assert resources.replication is not None
        self._leader, self._streams = run.takeover.committed(), run.streams
        self._own, self._unannounced = resources.replication.network.wal_id, resources.replication.unannounced
        self._catch_up_rate = resources.replication.catch_up_rate
        self._needed = replicas_needed(state.config)
        self._in_sync = self._matched = self._leader.matched
        self.in_sync_committed_ms = self._clock.boot_ms()
        self.drain_failed = False
        self._teaching_since_ms, self._seen_durable = 0.0, (0, 0.0)
        self.on_ended: Callable[[ReplicatedPartition], None] = lambda _: None  # called once, when it is closed
        self._streams.on_progress = self._on_progress
        self._unannounced[self] = None
        if len(self.members) < self._needed and state.tail.size_bytes:
            self.request_publish()  # fewer copies than were promised: object storage makes up for them

    @property
    def members(self) -> tuple[str, ...]:
        """The set of this epoch, by WAL ids."""
        return self._leader.members

    @property
    def log(self) -> EntryLog:
        """Everything that is not published; what was acknowledged among it."""
        return self._leader.log

    @property
    def in_sync(self) -> tuple[str, ...]:
        """The members that keep up, as of the last look."""
        return self._in_sync

    @property
    def adds_to_totals(self) -> bool:
        """Its replicas do."""
        return True

    @property
    def figures(self) -> PartitionFigures:
        """What metrics show of it, and of its replicas."""
        leader, end = self._leader, self._leader.log.position.offset
        return super().figures._replace(
            replicas=len(leader.members),
            replicas_needed=self._needed,
            in_sync=len(self._in_sync),
            lag_records=max((end - leader.acked(each).offset for each in leader.members), default=0),
        )

    @property
    def ended(self) -> Ended | None:
        """Why it does not lead any more, if it does not."""
        return self._leader.ended

    @property
    def awaits_replicas(self) -> bool:
        """Whether nothing can be published before more replicas answer."""
        return self._durable <= self.record.published

    @property
    def is_durable(self) -> bool:
        """Whether enough replicas have everything that was appended."""
        return self._durable == self._next

    def can_move_to(self, planned: Sequence[str]) -> bool:
        """Whether these replicas, the next leader first, may have the tail in a moment: then it need not be published to move."""
        keeping_up = [each for each in self._in_sync if self._streams.is_reachable(each)]
        return can_hand_over_log(planned, self._own, keeping_up, self._needed)

    async def wait_replicated_to(self, planned: Sequence[str]) -> None:
        """Return when everything numbered so far is durable, and the tail can move to these replicas: they have all of it.

        That they keep up is not enough: what is durable may be here and on one that is gone by now.
        """
        while not (self.is_durable and can_hand_over_log(planned, self._own, self._complete(), self._needed)):
            if self._closed is not None:
                raise self._closed
            await self._settled.wait()

    def _complete(self) -> list[str]:
        """The members that have the whole log."""
        leader = self._leader
        return [each for each in leader.members if leader.acked(each) >= leader.log.position]

    @property
    def can_advance(self) -> bool:
        """Whether enough members can be reached for an append to become durable."""
        reachable = sum(map(self._streams.is_reachable, self._leader.members))
        return reachable >= self._leader.needed

    @property
    def awaits_members(self) -> bool:
        """Whether appends are refused until more members keep up."""
        return len(self._in_sync) < self._needed

    @property
    def can_be_drained(self) -> bool:
        """Whether it may be published completely: it can advance, and no attempt to drain it has failed in this epoch."""
        return self.can_advance and not self.drain_failed

    def teach(self, learners: Collection[str], now_ms: float) -> bool:
        """Send the log to these, too, and to no others beside the members; whether an epoch with them may begin.

        That is when they have it, but for what is on its way, or when one of them has not kept up for a while and nothing is gained
        by waiting: another one has it, or a member is missing. Only where none is, their rate is limited.
        """
        leader = self._leader
        if not learners and not leader.learners:
            return True
        if not leader.learners.issuperset(learners):
            self._teaching_since_ms = now_ms
            self._seen_durable = (self._durable, now_ms)
        if self.is_durable or self._durable > self._seen_durable[0]:
            self._seen_durable = (self._durable, now_ms)
        advances = now_ms - self._seen_durable[1] < _SILENT_MS  # whoever has what nobody else has counts as keeping up
        is_complete = advances and leader.in_sync(now_ms, _SILENT_MS) == leader.members
        self._streams.teach(learners, self._catch_up_rate if is_complete else None)
        taught = leader.taught(now_ms, _CAUGHT_UP_MS)
        return taught == leader.learners or (
            now_ms - self._teaching_since_ms >= _TEACHING_MS and (bool(taught) or not is_complete)
        )

    def announce(self) -> None:
        """Tell replicas that have everything what is visible and what is published."""
        self._streams.announce()

    def check_members(self, now_ms: float, lag_ms: float) -> bool:
        """See who keeps up, and ask those again that lost a message. Whether that differs from what the store says."""
        leader = self._leader
        leader.heard(self._own, now_ms)
        keeping_up = leader.in_sync(now_ms, lag_ms)
        self._in_sync = tuple(each for each in leader.matched if each in keeping_up)
        self._streams.retry()
        return self._in_sync != self.record.in_sync

    async def commit_in_sync(self) -> None:
        """Write who keeps up. `FencedError`: the partition is lost."""
        async with self.record_lock:
            await self.resolve_record()
            in_sync = self._in_sync
            if in_sync != self.record.in_sync:
                record = msgspec.structs.replace(self.record, in_sync=in_sync)
                await self.change_record(record, apply=(replica_set_write(self.partition_id, record),))
            self.in_sync_committed_ms = self._clock.boot_ms()

    def next_record(self, published: int, *, closing: bool) -> PartitionRecord:
        """As everywhere, and the epoch of the last entry that is published."""
        record = super().next_record(published, closing=closing)
        return msgspec.structs.replace(record, published_epoch=self._leader.log.position_at(published).epoch)

    def apply_published(self, segments: Sequence[SegmentRecord]) -> None:
        """The segments are committed: the replicas may forget what is in them."""
        super().apply_published(segments)
        self._streams.announce()

    def change_config(self, partition_config: PartitionConfig) -> None:
        """How many replicas an append needs may have changed, too."""
        super().change_config(partition_config)
        self._needed = replicas_needed(partition_config)
        self._leader.require(self._needed)

    async def wait_durable(self) -> None:
        """Return when everything numbered so far is durable. Raises why it was closed before."""
        while self._durable < self._next:
            if self._closed is not None:
                raise self._closed
            await self._settled.wait()

    def close(self, error: HoldfastError) -> None:
        """Stop serving; the outcome of what was not acknowledged is unknown."""
        self._leader.end(Ended("closed"))
        self._streams.close()
        self._unannounced.pop(self, None)
        super().close(error)
        self._settled.notify()

    def unpublished_frames(self) -> list[WalFrame]:
        """None: the replica has them, and a takeover asks it."""
        return []

    def _check_accepting(self) -> None:
        super()._check_accepting()
        if len(self._in_sync) < self._needed:
            raise NotEnoughReplicasError(str(self.partition_id), len(self._in_sync), self._needed)

    def _write(self, frame: WalFrame) -> None:
        size = sum(map(len, frame.payload))
        if size > self._wal.replicated_bytes_max:
            raise InvalidError("append", f"{size} bytes", f"at most {self._wal.replicated_bytes_max} at a time")
        checksum = frame.checksum
        if checksum is None:  # once for all: this disk and every message need it
            checksum = 0
            for part in frame.payload:
                checksum = crc32c(part, checksum)
        self._leader.append(frame.count, frame.payload, checksum)
        self._streams.wake()

    def _release_frames(self, end_offset: int) -> None:
        self._leader.release(end_offset)

    def _on_progress(self) -> None:
        """A replica has answered, or the leader has ended."""
        leader = self._leader
        if leader.ended is not None:
            self._end(leader.ended)
            return
        self._synced.set(min(leader.acked(self._own).offset, self._next))
        if leader.hw > self._durable:
            self._advance(leader.hw)
        if not self._accepting:  # somebody may wait for a replica that was behind
            self._settled.notify()
        if len(self._matched) < len(leader.members) and len(matched := leader.matched) > len(self._matched):
            self._in_sync += tuple(each for each in matched if each not in self._matched)  # until the next look
            self._matched = matched

    def _advance(self, end: int) -> None:
        awaited = self.awaits_replicas
        self._durable = end
        if self._session.alive():
            self._acknowledged = end
        self._producers.settle(end)
        self._visible.set(self.high_watermark)
        self._unannounced[self] = None
        if self.tail.size_bytes >= self.publish_bytes and not self.publish_requested:
            self.request_publish()
        elif awaited:
            self.mark_dirty()
        self._settled.notify()

    def _end(self, ended: Ended) -> None:
        if self._closed is None:
            self.close(FencedError(self.lease.resource, self.lease.epoch, ended.promised or self.lease.epoch + 1))
            self.on_ended(self)
