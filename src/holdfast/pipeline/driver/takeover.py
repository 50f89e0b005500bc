"""Takeover: how a claimed partition becomes one that ranges are planned for.

The one rule: recovery is takeover. After any failure (a blocked sink, a lost answer, a failed job, an unavailable store) the slot
drops its state of the partition and takes it over again: it reads the record, raises the sink's fence to the epoch, waits
until no older insert runs, and writes an open range again under the revision it was begun with. Only then is anything planned. A
driver after a crash and one after a failed batch take the same steps.
"""

from typing import Final

from holdfast.pipeline.driver.owned_partitions import TakenPartition, offset_errors
from holdfast.pipeline.driver.slot_context import SlotContext
from holdfast.pipeline.driver.slot_revisions import PermanentError
from holdfast.pipeline.driver.slot_store import intent_of
from holdfast.pipeline.driver.sources import TopicBounds
from holdfast.pipeline.driver.start_offsets import StartOffsets
from holdfast.pipeline.sinks.contract import BlockedError, FencedRange, PipelineSink
from holdfast.vocabulary.errors import FencedError, HoldfastError

_RESTORED: Final = (
    "it was restored from a backup, and ranges would be written a second time, or left out. Use the newer store; if that is lost, "
    "rewind the pipeline"
)


class SlotTakeover:
    """Of the partitions of one slot."""

    def __init__(self, slot: SlotContext) -> None:
        self._slot = slot

    def fence_claims(self, claims: dict[int, int], bounds: TopicBounds) -> dict[int, list[FencedRange]]:
        """Fence every claimed partition that is not owned yet. Those without an open range are owned then; the open ranges of
        the others are returned, by the version of their revision."""
        slot = self._slot
        open_ranges: dict[int, list[FencedRange]] = {}
        for number, epoch in sorted(claims.items()):
            if number in slot.owned or not slot.retries.may_try(number, epoch) or not slot.may_write():
                continue
            try:
                found = self._fence(number, epoch, bounds)
            except FencedError as error:
                slot.fenced_out(number, epoch, str(error))
            except PermanentError:
                raise
            except HoldfastError as error:
                slot.retry_later([number], str(error))
            else:
                if found is not None:
                    version, fenced_range = found
                    open_ranges.setdefault(version, []).append(fenced_range)
        return open_ranges

    def own(self, number: int, epoch: int, fence: int, bounds: TopicBounds) -> None:
        """No older write can land and no range is open: from here on ranges are planned."""
        slot, current = self._slot, self._slot.revisions.current
        state = slot.store.partition(number)
        if state is None or state.epoch != epoch:
            return
        position = state.checkpoint or self._start_offset(number, bounds)
        stop = None
        if current.generation.kind == "backfill":
            stop = current.generation.ends.get(str(number), position)
        owned = TakenPartition(number, epoch, position, stop, fence)
        owned.update_end(bounds.ends[number], slot.resources.clock.boot_ms())
        if wrong := offset_errors(owned, bounds):
            raise BlockedError(wrong)
        _check_history(current.opened.sink, number, position)
        if not state.checkpoint:
            _check_start(current.opened.sink, number, position)
        slot.owned[number] = owned
        slot.retries.clear(number)

    def _fence(self, number: int, epoch: int, bounds: TopicBounds) -> tuple[int, FencedRange] | None:
        """The open range with the version of its revision; None: the partition is owned, or its record has another epoch than
        was claimed, in which case newer claims are on their way."""
        slot = self._slot
        if number >= len(bounds.ends):
            raise BlockedError(f"partition {number} is claimed, the topic has {len(bounds.ends)} partitions")
        if number in bounds.unknown:
            raise BlockedError(bounds.unknown[number])
        state = slot.store.partition(number)
        if state is None or state.owner != slot.run.slot or state.epoch != epoch:
            return None
        intent = intent_of(state, pipeline_id=slot.run.pipeline_id, generation=slot.run.generation)
        opened = slot.revisions.current.opened if intent is None else slot.revisions.version(intent.revision)
        slot.counters.warn(*opened.prepare())
        fence = self._raise_fence(opened.sink, number, epoch)
        if intent is None:
            self.own(number, epoch, fence, bounds)
            return None
        _check_history(opened.sink, number, intent.end)
        return intent.revision, FencedRange(
            partition=number,
            start=intent.start,
            end=intent.end,
            epoch=epoch,
            may_be_written=True,
            fence=fence,
            topic_id=intent.topic_id if intent.pipeline else slot.topic.id,
            legacy=not intent.pipeline,
            digest=intent.digest,
        )

    def _raise_fence(self, sink: PipelineSink, number: int, epoch: int) -> int:
        """Owners claim a partition before they fence it: an epoch that only the sink knows is of a store that is lost."""
        try:
            return sink.fence(number, epoch)
        except FencedError as error:
            state = self._slot.store.partition(number)
            if state is None or state.epoch != epoch:
                raise
            raise BlockedError(
                f"the sink has seen epoch {error.current} of partition {number}, the store knows epochs up to {epoch}: {_RESTORED}"
            ) from None

    def _start_offset(self, number: int, bounds: TopicBounds) -> int:
        current, resources = self._slot.revisions.current, self._slot.resources
        starts = StartOffsets(
            resources.store,
            clock=resources.clock,
            random=resources.random,
            pipeline_id=self._slot.run.pipeline_id,
            generation=current.generation,
        )
        return starts.of(number, current.opened.revision.source, current.source, bounds)


def _check_history(sink: PipelineSink, number: int, end: int) -> None:
    """Ranges are begun in the store first: one that only the sink has is of a store that is lost, which cut it otherwise."""
    if beyond := sink.written_beyond(number, end):
        raise BlockedError(
            f"the sink has ranges up to offset {beyond} of partition {number}, the store knows those up to {end}: {_RESTORED}"
        )


def _check_start(sink: PipelineSink, number: int, start: int) -> None:
    """Without a checkpoint no range was begun, unless the store that knew it is lost: `latest` may be beyond what followed it."""
    if (written := sink.written_beyond(number, 0)) and written != start:
        raise BlockedError(
            f"the sink has ranges up to offset {written} of partition {number}, the store knows none and would start at {start}: "
            f"{_RESTORED}"
        )
