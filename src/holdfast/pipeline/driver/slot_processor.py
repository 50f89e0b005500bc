"""What a slot does between two looks at its claims: take over, plan, begin, run, checkpoint.

The one rule: recovery is takeover. Whatever goes wrong with a partition (a blocked sink, a lost answer, a failed job, a store
that does not answer), the slot forgets what it knows about it and takes it over again: it reads the record, tells the sink the
epoch, waits until nothing older runs, writes a range that was begun once more under the recipe it was begun with, and only then
plans. A driver that died and one that stumbled come back by the same steps.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.client.cluster_address import ClusterAddress
from holdfast.contracts.store import Store
from holdfast.pipeline.driver import dataframes
from holdfast.pipeline.driver.next_mapping import next_mapping
from holdfast.pipeline.driver.owned_partitions import OwnedPartition, SlotCounters, offset_errors
from holdfast.pipeline.driver.range_plan import PlannedRange, plan_ranges
from holdfast.pipeline.driver.retry_state import RetryState
from holdfast.pipeline.driver.settings import DriverSettings
from holdfast.pipeline.driver.slot_revisions import OpenedRevision, PermanentError, SlotRevisions
from holdfast.pipeline.driver.slot_store import SlotStore, intent_of
from holdfast.pipeline.driver.sources import TopicBounds
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.driver.start_offsets import StartOffsets
from holdfast.pipeline.driver.task_outcomes import TaskOutcome
from holdfast.pipeline.driver.tasks import RangeJob
from holdfast.pipeline.model.column_mapping import mapping_json
from holdfast.pipeline.model.driver_protocol import RunSlot, SlotProgress
from holdfast.pipeline.sinks.contract import BlockedError, FencedRange, WriteResult
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import FencedError, HoldfastError
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverResources:
    """What all slots of a driver share."""

    jobs: SparkJobs
    store: Store
    cluster_address: ClusterAddress
    embedded: str
    settings: DriverSettings
    clock: Clock
    random: Random


class SlotProcessor:
    """One slot of one generation. For the slot's thread alone."""

    def __init__(self, run: RunSlot, tools: DriverResources, may_write: Callable[[], bool]) -> None:
        self._run, self._tools, self._may_write = run, tools, may_write
        self._clock, settings = tools.clock, tools.settings
        self._ledger = SlotStore(
            tools.store,
            clock=tools.clock,
            random=tools.random,
            pipeline_id=run.pipeline_id,
            generation=run.generation,
            consumer=run.slot,
            timeout_ms=settings.store_timeout_ms,
        )
        self._revisions = SlotRevisions(
            run,
            self._ledger,
            jobs=tools.jobs,
            cluster_address=tools.cluster_address,
            embedded=tools.embedded,
            settings=settings,
        )
        self._retry_state = RetryState(settings, clock=tools.clock, random=tools.random)
        self.held: dict[int, OwnedPartition] = {}
        self.tally = SlotCounters()

    # --- what the slot asks for

    def let_go(self, claims: dict[int, int]) -> dict[int, int]:
        """Forget what is not claimed any more, or claimed anew: nothing is under way for it."""
        gone = {number: held.epoch for number, held in self.held.items() if claims.get(number) != held.epoch}
        for number in gone:
            del self.held[number]
        self._retry_state.only(claims)
        return gone

    def step(self, claims: dict[int, int]) -> int:
        """Do what can be done now; when to look again (boot clock), at the latest."""
        try:
            self.tally.warn(*self._revisions.refresh(self._clock.boot_ms()))
            ends = self._ends()
            self._take_over(claims, ends)
            again_ms = self._batch(ends)
        except PermanentError:
            raise
        except HoldfastError as error:
            return self._retry_state.back_off(str(error))
        self._retry_state.turn_succeeded()
        return again_ms

    @property
    def blocked(self) -> str:
        """What is in the way; empty: nothing."""
        return self._retry_state.reason

    def finished(self, claims: dict[int, int]) -> bool:
        """Whether every partition it owns has reached the generation's end."""
        return bool(claims) and all(number in self.held and self.held[number].finished for number in claims)

    def progress(self) -> SlotProgress:
        """For the status."""
        now_ms, wall_ms = self._clock.boot_ms(), self._clock.now_ms()
        partitions = {
            str(number): held.progress(now_ms=now_ms, wall_ms=wall_ms) for number, held in sorted(self.held.items())
        }
        return self.tally.progress(self._run.slot, partitions, self.blocked)

    def close(self) -> None:
        """Let connections go."""
        self._revisions.close()

    def _ends(self) -> TopicBounds:
        ends, now_ms = self._revisions.current.source.ends(), self._clock.boot_ms()
        if max((*self.held, -1)) >= len(ends.ends):
            raise BlockedError(f"the topic has {len(ends.ends)} partitions now; it had more")
        for number, held in self.held.items():
            held.see(ends.ends[number], now_ms)
        return ends

    # --- takeover

    def _take_over(self, claims: dict[int, int], ends: TopicBounds) -> None:
        """New claims, and those that something went wrong with."""
        replays: dict[int, list[FencedRange]] = {}
        for number, epoch in sorted(claims.items()):
            if number in self.held or not self._retry_state.may_try(number, epoch) or not self._may_write():
                continue
            try:
                replay = self._fence(number, epoch, ends)
            except FencedError as error:
                self._lose(number, epoch, str(error))
            except PermanentError:
                raise
            except HoldfastError as error:
                self._trouble([number], str(error))
            else:
                if replay is not None:
                    replays.setdefault(replay[0], []).append(replay[1])
        for version, fenced_ranges in replays.items():
            self._write(self._revisions.version(version), fenced_ranges, ends)

    def _fence(self, number: int, epoch: int, ends: TopicBounds) -> tuple[int, FencedRange] | None:
        """Tell the sink the epoch. If a range was begun: its recipe, and the portion to write again; else it is held now.

        A record of another epoch than was claimed is left alone: newer claims are on their way.
        """
        if number >= len(ends.ends):
            raise BlockedError(f"the topic has {len(ends.ends)} partitions, and {number} is claimed")
        state = self._ledger.partition(number)
        if state is None or state.owner != self._run.slot or state.epoch != epoch:
            return None
        intent = intent_of(state)
        work = self._revisions.current.work if intent is None else self._revisions.version(intent.revision)
        self.tally.warn(*work.prepare())
        fence = work.sink.fence(number, epoch)
        if intent is None:
            self._hold(number, epoch, fence, ends)
            return None
        again = FencedRange(partition=number, start=intent.start, end=intent.end, epoch=epoch, again=True, fence=fence)
        return intent.revision, again

    def _hold(self, number: int, epoch: int, fence: int, ends: TopicBounds) -> None:
        """Nothing older can land and nothing is open: from here on it is planned."""
        current = self._revisions.current
        state = self._ledger.partition(number)
        if state is None or state.epoch != epoch:
            return
        position = state.checkpoint
        if position == 0:
            starts = StartOffsets(
                self._tools.store,
                clock=self._clock,
                random=self._tools.random,
                pipeline_id=self._run.pipeline_id,
                generation=current.generation,
            )
            position = starts.of(number, current.work.recipe.source, current.source, ends)
        stop = None
        if current.generation.kind == "backfill":
            stop = current.generation.ends.get(str(number), position)
        held = OwnedPartition(number, epoch, position, stop, fence)
        held.see(ends.ends[number], self._clock.boot_ms())
        if wrong := offset_errors(held, ends):
            raise BlockedError(wrong)
        self.held[number] = held
        self._retry_state.solve(number)

    # --- a batch

    def _batch(self, ends: TopicBounds) -> int:
        current, settings, now_ms = self._revisions.current, self._tools.settings, self._clock.boot_ms()
        poll_ms = now_ms + settings.poll_ms
        if not self._may_write():
            return poll_ms
        made = plan_ranges(
            [held.waiting for held in self.held.values()],
            current.work.limits(settings),
            allowance=current.rate.allowance(now_ms),
            now_ms=now_ms,
        )
        if not made.ranges:
            later = made.next_check_ms if made.next_check_ms is not None else poll_ms
            return min(poll_ms, max(later, current.rate.next_ms(now_ms)))
        failpoints.reached("pipeline.planned")
        fenced_ranges = [self._portion(each) for each in made.ranges]
        if current.work.looks_first:
            fenced_ranges = self._survey(current.work, fenced_ranges)
        begun = self._begin(current.work, fenced_ranges)
        if begun:
            current.rate.spend(len(begun))
            self._write(current.work, begun, ends)
        return now_ms

    def _portion(self, wanted: PlannedRange) -> FencedRange:
        current, held = self._revisions.current, self.held[wanted.partition]
        narrow = current.source.narrowed(wanted, current.work.recipe.sink.batch_bytes)
        return FencedRange(
            partition=narrow.partition, start=narrow.start, end=narrow.end, epoch=held.epoch, fence=held.fence
        )

    def _survey(self, work: OpenedRevision, fenced_ranges: list[FencedRange]) -> list[FencedRange]:
        """Look at the records before anything is begun. New columns make a new recipe, and planning starts again with it."""
        said = self._job(work, fenced_ranges, dataframes.run_survey)
        if stops := [each for each in said if each.stop]:
            raise PermanentError(f"partition {stops[0].partition}: {stops[0].stop}")
        self._settle_failures(work, said)
        mapping = next_mapping(work.recipe.mapping, [column for each in said for column in each.columns])
        if mapping is not None:
            self._ledger.save_mapping(mapping_json(mapping))
            self._revisions.refresh_next_turn()
            self._revisions.refresh(self._clock.boot_ms())
            if self._revisions.current.work is work:
                raise BlockedError("new columns were saved, and do not make a recipe: see the pipeline's problems")
            self.tally.warn(*self._revisions.current.work.prepare())
            return []
        good = {each.partition for each in said if each.kind == "done"}
        return [fenced_range for fenced_range in fenced_ranges if fenced_range.partition in good]

    def _begin(self, work: OpenedRevision, fenced_ranges: Sequence[FencedRange]) -> list[FencedRange]:
        if not fenced_ranges or not self._may_write():
            return []
        try:
            begun = self._ledger.begin(fenced_ranges, work.recipe.version)
        except HoldfastError as error:
            self._trouble([each.partition for each in fenced_ranges], str(error))
            return []
        lost = [each.partition for each in fenced_ranges if each not in begun]
        if lost:
            self._trouble(lost, "somebody else owns it, or has begun another range")
        failpoints.reached("pipeline.begun")
        return begun

    def _write(self, work: OpenedRevision, fenced_ranges: list[FencedRange], ends: TopicBounds) -> None:
        """Run the job, commit what it staged, move the checkpoints."""
        now_ms = self._clock.boot_ms()
        said = self._job(work, fenced_ranges, dataframes.run_write)
        failpoints.reached("pipeline.job-done")
        self._settle_failures(work, said)
        done = {each.partition: each for each in said if each.kind == "done"}
        written = [fenced_range for fenced_range in fenced_ranges if fenced_range.partition in done]
        if not written or not self._commit(work, written, done):
            return
        try:
            finished = self._ledger.finish(written)
        except HoldfastError as error:
            self._trouble([each.partition for each in written], str(error))
            return
        failpoints.reached("pipeline.checkpointed")
        self.tally.batches += 1
        for fenced_range in written:
            if fenced_range in finished:
                self._advance(fenced_range, done[fenced_range.partition], ends, now_ms)
            else:
                self._lose(fenced_range.partition, fenced_range.epoch, "the checkpoint is a newer owner's")
        if problem := self._revisions.current.group.mirror({each.partition: each.end for each in finished}):
            self.tally.warn(problem)

    def _advance(self, fenced_range: FencedRange, outcome: TaskOutcome, ends: TopicBounds, now_ms: int) -> None:
        self.tally.add(outcome)
        if fenced_range.partition not in self.held:
            try:
                self._hold(fenced_range.partition, fenced_range.epoch, fenced_range.fence, ends)
            except HoldfastError as error:
                self._trouble([fenced_range.partition], str(error))
        if (held := self.held.get(fenced_range.partition)) is not None:
            held.moved(outcome, fenced_range.end, now_ms)

    def _commit(self, work: OpenedRevision, written: list[FencedRange], done: dict[int, TaskOutcome]) -> bool:
        staged = [WriteResult(fenced_range=each, staged=done[each.partition].staged) for each in written]
        numbers = [each.partition for each in written]
        if not self._may_write():
            self._trouble(numbers, "the claims ended before what was staged could be committed")
            return False
        try:
            work.sink.commit(staged)
        except HoldfastError as error:
            work.ready = False
            self._trouble(numbers, str(error))
            return False
        failpoints.reached("pipeline.committed")
        return True

    def _job(
        self, work: OpenedRevision, fenced_ranges: list[FencedRange], frame: dataframes.Frame
    ) -> list[TaskOutcome]:
        """One Spark job. If it fails as a whole, every portion is tried again."""
        job = RangeJob(
            target=work.target, cluster_address=self._tools.cluster_address, fenced_ranges=tuple(fenced_ranges)
        )
        try:
            return dataframes.completed(job, self._tools.jobs.run(self._run.slot, frame(self._tools.jobs, job)))
        except Exception as error:
            reason = f"the Spark job failed: {' '.join(str(error).split())[:500]}"
            _log.warning("slot %s: %s", self._run.slot, reason)
            return [TaskOutcome(partition=each.partition, kind="blocked", reason=reason) for each in fenced_ranges]

    # --- what goes wrong

    def _settle_failures(self, work: OpenedRevision, said: Sequence[TaskOutcome]) -> None:
        """What was not done is taken over again; if a newer epoch owns it, that finds out."""
        for each in said:
            if each.kind != "done":
                work.ready = work.ready and each.kind == "fenced"
                self._trouble([each.partition], each.reason)

    def _lose(self, number: int, epoch: int, reason: str) -> None:
        """A newer epoch owns it: nothing more under this one."""
        _log.info("slot %s lost partition %d: %s", self._run.slot, number, reason)
        self.held.pop(number, None)
        self._retry_state.lose(number, epoch)

    def _trouble(self, numbers: Sequence[int], reason: str) -> None:
        """Forget what is known about partitions, and take them over again after a pause."""
        for number in numbers:
            self.held.pop(number, None)
        self._retry_state.add(numbers, reason)
