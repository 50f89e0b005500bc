"""Ranges written: the Spark job, the sink's commit, the checkpoints.

The one rule: a range counts as written when its checkpoint has moved. Whatever fails before that, the partition is taken over again
and the range written once more.
"""

import logging
from collections.abc import Sequence
from typing import Final

from holdfast.pipeline.driver import dataframes
from holdfast.pipeline.driver.slot_context import SlotContext
from holdfast.pipeline.driver.slot_revisions import OpenedRevision
from holdfast.pipeline.driver.task_outcomes import TaskOutcome
from holdfast.pipeline.driver.tasks import RangeJob
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
        """Run the job, commit what it staged, move the checkpoints. The ranges that were written, with their outcomes."""
        outcomes = self._run_job(opened, ranges, dataframes.run_write)
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

    def _commit(self, opened: OpenedRevision, written: list[FencedRange], done: dict[int, TaskOutcome]) -> bool:
        staged = [WriteResult(fenced_range=each, staged=done[each.partition].staged) for each in written]
        numbers = [each.partition for each in written]
        if not self._slot.may_write():
            self._slot.retry_later(numbers, "the claims expired before the staged files were committed")
            return False
        try:
            opened.sink.commit(staged)
        except HoldfastError as error:
            opened.prepared = False
            self._slot.retry_later(numbers, str(error))
            return False
        failpoints.reached("pipeline.committed")
        return True

    def _run_job(
        self, opened: OpenedRevision, ranges: Sequence[FencedRange], frame: dataframes.Frame
    ) -> list[TaskOutcome]:
        """One Spark job. If it fails as a whole, every range is retried."""
        slot, resources = self._slot, self._slot.resources
        job = RangeJob(target=opened.target, cluster_address=resources.cluster_address, fenced_ranges=tuple(ranges))
        try:
            return dataframes.completed(job, resources.jobs.run(slot.run.slot, frame(resources.jobs, job)))
        except Exception as error:
            reason = f"the Spark job failed: {' '.join(str(error).split())[:500]}"
            _log.warning("%s: %s", slot.title, reason)
            return [TaskOutcome(partition=each.partition, kind="blocked", reason=reason) for each in ranges]

    def _retry_failed(self, opened: OpenedRevision, outcomes: Sequence[TaskOutcome]) -> None:
        """Take failed partitions over again. One that a newer epoch owns is found out then."""
        for each in outcomes:
            if each.kind != "done":
                opened.prepared = opened.prepared and each.kind == "fenced"
                self._slot.retry_later([each.partition], each.reason)
