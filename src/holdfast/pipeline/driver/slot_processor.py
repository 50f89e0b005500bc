"""One slot at work, turn by turn: take claimed partitions over, plan ranges, begin them, write them.

The one rule: a range is recorded in the partition's record (`begun`) before its first row is written, and nothing else is written
for that partition until its checkpoint has moved to the range's end. How a partition is recovered is `takeover`.
"""

from collections.abc import Callable, Sequence

from holdfast.pipeline.driver.next_mapping import next_mapping
from holdfast.pipeline.driver.owned_partitions import SlotCounters, TakenPartition, deleted_unread
from holdfast.pipeline.driver.range_plan import PlannedRange, plan_ranges
from holdfast.pipeline.driver.range_writer import RangeWriter
from holdfast.pipeline.driver.slot_context import DriverResources, SlotContext
from holdfast.pipeline.driver.slot_revisions import OpenedRevision, PermanentError
from holdfast.pipeline.driver.sources import TopicBounds
from holdfast.pipeline.driver.takeover import SlotTakeover
from holdfast.pipeline.driver.task_outcomes import TaskOutcome
from holdfast.pipeline.model.column_mapping import mapping_json
from holdfast.pipeline.model.driver_protocol import RunSlot, SlotProgress
from holdfast.pipeline.sinks.contract import BlockedError, FencedRange
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import HoldfastError


class SlotProcessor:
    """One slot of one generation. For the slot's thread alone."""

    def __init__(self, run: RunSlot, resources: DriverResources, may_write: Callable[[], bool]) -> None:
        self._slot = SlotContext(run, resources, may_write)
        self._clock = resources.clock
        self._takeover, self._writer = SlotTakeover(self._slot), RangeWriter(self._slot)
        self._taken_over_by: OpenedRevision | None = None

    @property
    def owned(self) -> dict[int, TakenPartition]:
        """The partitions that were taken over."""
        return self._slot.owned

    @property
    def counters(self) -> SlotCounters:
        """Counts since the slot began."""
        return self._slot.counters

    @property
    def blocked(self) -> str:
        """Why the slot makes no progress; empty: it does."""
        return self._slot.retries.reason

    def drop_unclaimed(self, claims: dict[int, int]) -> None:
        """Drop partitions that are no longer claimed, or are claimed under another epoch: nothing is under way for them."""
        for number, owned in list(self.owned.items()):
            if claims.get(number) != owned.epoch:
                del self.owned[number]
        self._slot.retries.keep_only(claims)

    def turn(self, claims: dict[int, int]) -> int:
        """Do what can be done now; when the next turn is due (boot clock), at the latest."""
        slot = self._slot
        slot.resources.jobs.allow(slot.run.slot)
        try:
            slot.counters.warn(*slot.revisions.refresh(self._clock.boot_ms()))
            self._drop_if_edited()
            bounds = self._read_bounds()
            for version, open_ranges in self._takeover.fence_claims(claims, bounds).items():
                self._write(slot.revisions.version(version), open_ranges, bounds)
            next_ms = self._run_batch(bounds)
        except PermanentError:
            raise
        except HoldfastError as error:
            return slot.retries.back_off(str(error))
        slot.retries.turn_succeeded()
        return next_ms

    def _drop_if_edited(self) -> None:
        """Another revision may have another sink, which is not prepared and fenced for these partitions: take them over again."""
        opened = self._slot.revisions.current.opened
        if opened is not self._taken_over_by:
            self.owned.clear()
        self._taken_over_by = opened

    def finished(self, claims: dict[int, int]) -> bool:
        """Whether every partition it owns has reached the generation's end."""
        return bool(claims) and all(number in self.owned and self.owned[number].finished for number in claims)

    def progress(self) -> SlotProgress:
        """For the status."""
        now_ms, wall_ms = self._clock.boot_ms(), self._clock.now_ms()
        partitions = {
            str(number): owned.progress(now_ms=now_ms, wall_ms=wall_ms) for number, owned in sorted(self.owned.items())
        }
        return self.counters.progress(self._slot.run.slot, partitions, self.blocked)

    def stop(self) -> None:
        """Nothing runs between two turns."""

    def close(self) -> None:
        """Close sinks and connections."""
        self._slot.revisions.close()

    def _read_bounds(self) -> TopicBounds:
        current = self._slot.revisions.current
        bounds, now_ms = current.source.bounds(), self._clock.boot_ms()
        self._slot.topic.check(current.generation, current.opened.revision.source.topic, bounds)
        if max((*self.owned, -1)) >= len(bounds.ends):
            raise BlockedError(f"the topic has {len(bounds.ends)} partitions now, it had more before")
        self.counters.source_partitions = len(bounds.ends)
        for number in bounds.unknown.keys() & self.owned.keys():
            self._slot.retry_later([number], bounds.unknown[number])
        for number, why in deleted_unread(self.owned.values(), bounds).items():
            self._slot.retry_later([number], why)
        for number, owned in self.owned.items():
            owned.update_end(bounds.ends[number], now_ms)
        return bounds

    def _run_batch(self, bounds: TopicBounds) -> int:
        current, settings, now_ms = self._slot.revisions.current, self._slot.resources.settings, self._clock.boot_ms()
        poll_ms = now_ms + settings.poll_ms
        if not self._slot.may_write():
            return poll_ms
        plan = plan_ranges(
            [owned.backlog for owned in self.owned.values()],
            current.opened.limits(settings),
            allowance=current.rate.allowance(now_ms),
            now_ms=now_ms,
        )
        if not plan.ranges:
            later = plan.next_check_ms if plan.next_check_ms is not None else poll_ms
            return min(poll_ms, max(later, current.rate.next_ms(now_ms)))
        failpoints.reached("pipeline.planned")
        ranges = [self._fenced_range(each) for each in plan.ranges]
        if current.opened.surveys_first:
            ranges = self._survey(current.opened, ranges)
        begun = self._begin(current.opened, ranges)
        if begun:
            current.rate.spend(len(begun))
            self._write(current.opened, begun, bounds)
        return now_ms

    def _fenced_range(self, planned: PlannedRange) -> FencedRange:
        current, owned = self._slot.revisions.current, self.owned[planned.partition]
        narrow = current.source.narrowed(planned, current.opened.revision.sink.batch_bytes)
        return FencedRange(
            partition=narrow.partition,
            start=narrow.start,
            end=narrow.end,
            epoch=owned.epoch,
            fence=owned.fence,
            topic_id=self._slot.topic.id,
        )

    def _survey(self, opened: OpenedRevision, ranges: list[FencedRange]) -> list[FencedRange]:
        """The ranges that can be begun. New columns make a new revision: then none, and the next turn plans under that one."""
        revisions = self._slot.revisions
        outcomes = self._writer.survey(opened, ranges)
        if stops := [each for each in outcomes if each.stop]:
            raise PermanentError(f"partition {stops[0].partition}: {stops[0].stop}")
        mapping = next_mapping(opened.revision.mapping, [column for each in outcomes for column in each.columns])
        if mapping is not None:
            self._slot.store.save_mapping(mapping_json(mapping))
            revisions.refresh_next_turn()
            revisions.refresh(self._clock.boot_ms())
            if revisions.current.opened is opened:
                raise BlockedError("new columns were saved but make no valid revision: see the pipeline's problems")
            self.counters.warn(*revisions.current.opened.prepare())
            return []
        done = {each.partition for each in outcomes if each.kind == "done"}
        return [each for each in ranges if each.partition in done]

    def _begin(self, opened: OpenedRevision, ranges: Sequence[FencedRange]) -> list[FencedRange]:
        if not ranges or not self._slot.may_write():
            return []
        try:
            begun = self._slot.store.begin(ranges, opened.revision.version)
        except HoldfastError as error:
            self._slot.retry_later([each.partition for each in ranges], str(error))
            return []
        if lost := [each.partition for each in ranges if each not in begun]:
            self._slot.retry_later(lost, "it has another owner, or another range is open")
        failpoints.reached("pipeline.begun")
        return begun

    def _write(self, opened: OpenedRevision, ranges: list[FencedRange], bounds: TopicBounds) -> None:
        began_ms = self._clock.boot_ms()
        written = self._writer.write(opened, ranges)
        for fenced_range, outcome in written:
            self._advance(opened, fenced_range, outcome, bounds, began_ms)
        checkpoints = {fenced_range.partition: fenced_range.end for fenced_range, _ in written}
        if problem := self._slot.revisions.current.group.mirror(checkpoints):
            self.counters.warn(problem)

    def _advance(
        self,
        opened: OpenedRevision,
        fenced_range: FencedRange,
        outcome: TaskOutcome,
        bounds: TopicBounds,
        began_ms: int,
    ) -> None:
        self.counters.add(outcome)
        if opened is not self._slot.revisions.current.opened:  # the fence is of a former sink
            self.owned.pop(fenced_range.partition, None)
            self._slot.retries.clear(fenced_range.partition)
        elif fenced_range.partition not in self.owned:  # an open range was finished: the takeover is complete
            try:
                self._takeover.own(fenced_range.partition, fenced_range.epoch, fenced_range.fence, bounds)
            except HoldfastError as error:
                self._slot.retry_later([fenced_range.partition], str(error))
        if (owned := self.owned.get(fenced_range.partition)) is not None:
            owned.advance(outcome, fenced_range.end, began_ms)
