"""Ranges written: the Spark jobs, the digests in their intents, the sink's commit, the checkpoints.

The one rule: what a range is written as is recorded in its intent before anything of it is visible, and it counts as written when
its checkpoint has moved. Whatever fails in between, the partition is taken over again and the range written once more, if it is
still the same.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from holdfast.pipeline.driver import dataframes
from holdfast.pipeline.driver.mapped_ranges import NOTHING
from holdfast.pipeline.driver.slot_context import SlotContext
from holdfast.pipeline.driver.slot_revisions import OpenedRevision
from holdfast.pipeline.driver.spark_jobs import cause_of
from holdfast.pipeline.driver.task_outcomes import TaskOutcome
from holdfast.pipeline.driver.tasks import replace_outcome
from holdfast.pipeline.sinks.contract import FencedRange, WriteResult
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import HoldfastError

_log: Final = logging.getLogger(__name__)


class RangeWriter:
    """For one slot."""

    def __init__(self, slot: SlotContext) -> None:
        self._slot = slot

    def survey(self, opened: OpenedRevision, ranges: Sequence[FencedRange]) -> list[TaskOutcome]:
        """What the records of ranges require of the mapping. Ranges that could not be read are retried later."""
        outcomes = self._run_job(opened, ranges, dataframes.run_survey)
        self._retry_failed(opened, outcomes)
        return outcomes

    def write(self, opened: OpenedRevision, ranges: Sequence[FencedRange]) -> list[tuple[FencedRange, TaskOutcome]]:
        """Run the jobs, commit what they staged, move the checkpoints. The ranges that were written, with their outcomes."""
        outcomes = self._write_staging(opened, ranges) if opened.sink.stages else self._write_at_once(opened, ranges)
        failpoints.reached("pipeline.job-done")
        self._retry_failed(opened, outcomes)
        done = {each.partition: each for each in outcomes if each.kind == "done"}
        written = [each for each in ranges if each.partition in done]
        if not written or not self._commit(opened, written, done):
            return []
        try:
            finished = self._slot.store.finish(written)
        except HoldfastError as error:
            self._slot.retry_later([each.partition for each in written], str(error))
            return []
        failpoints.reached("pipeline.checkpointed")
        self._slot.counters.batches += 1
        for each in written:
            if each not in finished:
                self._slot.fenced_out(each.partition, each.epoch, "the checkpoint is a newer owner's")
        return [(each, done[each.partition]) for each in finished]

    def _write_staging(self, opened: OpenedRevision, ranges: Sequence[FencedRange]) -> list[TaskOutcome]:
        """One job. What it stages is nobody's until it is committed, so digests are recorded after it."""
        new = [each for each in ranges if each.digest is None]
        outcomes = self._with_refused(opened, new, self._run_job(opened, ranges, dataframes.run_write))
        recorded = {each.partition for each in self._record_digests(new, outcomes)}
        lost = {each.partition for each in new} - recorded
        return [each for each in outcomes if each.kind != "done" or each.partition not in lost]

    def _write_at_once(self, opened: OpenedRevision, ranges: Sequence[FencedRange]) -> list[TaskOutcome]:
        """Ranges without a digest are mapped first. Those with one were, and are compared with it while they are written."""
        known = self._announced(opened, [each for each in ranges if each.digest is not None])
        outcomes = self._run_job(opened, known, dataframes.run_write)
        new = [each for each in ranges if each.digest is None]
        mapped = self._map(opened, new)
        outcomes += [each for each in mapped if each.kind != "done"]
        recorded = self._announced(opened, self._record_digests(new, mapped))
        return outcomes + self._write_mapped(opened, recorded, mapped)

    def _announced(self, opened: OpenedRevision, ranges: Sequence[FencedRange]) -> list[FencedRange]:
        """The ranges that the sink takes. The others are retried."""
        if not ranges:
            return []
        try:
            opened.sink.begin(ranges)
        except HoldfastError as error:
            opened.prepared = False
            self._slot.retry_later([each.partition for each in ranges], str(error))
            return []
        return list(ranges)

    def _map(self, opened: OpenedRevision, ranges: Sequence[FencedRange]) -> list[TaskOutcome]:
        """What ranges are to be written as."""
        return self._with_refused(opened, ranges, self._run_job(opened, ranges, dataframes.run_map))

    def _with_refused(
        self, opened: OpenedRevision, new: Sequence[FencedRange], outcomes: list[TaskOutcome]
    ) -> list[TaskOutcome]:
        """Of ranges of which SQL has dropped every row there is no outcome: of those that are new, what their dead letters are."""
        silent = {each.partition for each in outcomes if each.kind == "done" and each.digest is None}
        of_silent = [each for each in new if each.partition in silent]
        if not of_silent or not opened.revision.sql:
            return outcomes
        refused = self._run_job(opened, of_silent, dataframes.run_map_refused)
        replaced = {each.partition for each in refused}
        return [each for each in outcomes if each.partition not in replaced] + refused

    def _record_digests(self, ranges: Sequence[FencedRange], mapped: Sequence[TaskOutcome]) -> list[FencedRange]:
        """The ranges whose digest is in their intent now. The others are retried."""
        slot = self._slot
        digests = {each.partition: each.digest or NOTHING for each in mapped if each.kind == "done"}
        digested = [replace(each, digest=digests[each.partition]) for each in ranges if each.partition in digests]
        numbers = [each.partition for each in digested]
        if not digested:
            return []
        if not slot.may_write():
            slot.retry_later(numbers, "the claims expired before the mapped ranges were written")
            return []
        try:
            recorded = slot.store.record_digests(digested)
        except HoldfastError as error:
            slot.retry_later(numbers, str(error))
            return []
        if lost := [each.partition for each in digested if each not in recorded]:
            slot.retry_later(lost, "it has another owner, or was recorded by another")
        failpoints.reached("pipeline.recorded")
        return recorded

    def _write_mapped(
        self, opened: OpenedRevision, ranges: Sequence[FencedRange], mapped: Sequence[TaskOutcome]
    ) -> list[TaskOutcome]:
        """Write what was mapped. What is on another machine, or was used up by a failed attempt, is mapped again, and compared."""
        outcomes = self._run_job(opened, ranges, dataframes.run_write_kept)
        absent = {each.partition for each in outcomes if each.kind == "absent"}
        outcomes = [each for each in outcomes if each.partition not in absent]
        again = [replace(each, may_be_written=True) for each in ranges if each.partition in absent]
        outcomes += self._run_job(opened, again, dataframes.run_write)
        counted = {each.partition: each for each in mapped}
        return [_written(counted[each.partition], each) if each.kind == "done" else each for each in outcomes]

    def _commit(self, opened: OpenedRevision, written: list[FencedRange], done: dict[int, TaskOutcome]) -> bool:
        staged = [WriteResult(fenced_range=each, staged=done[each.partition].staged) for each in written]
        numbers = [each.partition for each in written]
        if not self._slot.may_write():
            self._slot.retry_later(numbers, "the claims expired before the staged files were committed")
            return False
        try:
            opened.sink.commit(staged, self._slot.resources.jobs.executors(self._slot.run.slot))
        except HoldfastError as error:
            opened.prepared = False
            self._slot.retry_later(numbers, str(error))
            return False
        failpoints.reached("pipeline.committed")
        return True

    def _run_job(
        self, opened: OpenedRevision, ranges: Sequence[FencedRange], frame: dataframes.Frame
    ) -> list[TaskOutcome]:
        """One Spark job. If it fails as a whole, every range is tried alone, so that only those that fail alone are retried."""
        if not ranges:
            return []
        slot, resources = self._slot, self._slot.resources
        job = dataframes.range_job(opened.target, resources.cluster_address, ranges)
        try:
            outcomes = resources.jobs.run(slot.run.slot, frame(resources.jobs, dataframes.without_credentials(job)))
        except Exception as error:
            reason = f"the Spark job failed: {cause_of(error)}"
            _log.warning("%s: %s", slot.title, reason)
        else:
            return dataframes.completed(job, outcomes, frame=frame)
        if len(ranges) > 1 and slot.may_write() and not resources.jobs.was_cancelled(slot.run.slot):
            alone = [replace(each, may_be_written=True) for each in ranges]  # the job may have written some of them
            return [outcome for each in alone for outcome in self._run_job(opened, [each], frame)]
        return [
            TaskOutcome(partition=each.partition, kind="blocked", reason=f"partition {each.partition}: {reason}")
            for each in ranges
        ]

    def _retry_failed(self, opened: OpenedRevision, outcomes: Sequence[TaskOutcome]) -> None:
        """Take failed partitions over again. One that a newer epoch owns is found out then."""
        for each in outcomes:
            if each.kind != "done":
                opened.prepared = opened.prepared and each.kind == "fenced"
                self._slot.retry_later([each.partition], each.reason)


def _written(mapped: TaskOutcome, written: TaskOutcome) -> TaskOutcome:
    """What was counted while a range was mapped, and what became of it."""
    return replace_outcome(
        mapped, rows=written.rows, refused=written.refused, staged=written.staged, warnings=written.warnings
    )
