"""Ranges of a job that failed as a whole, without Spark: what was written of them is not known."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.sink_values import fenced_range, target_of

from holdfast.client.cluster_address import ClusterAddress
from holdfast.pipeline.driver import dataframes
from holdfast.pipeline.driver.range_writer import RangeWriter
from holdfast.pipeline.driver.slot_context import SlotContext
from holdfast.pipeline.driver.slot_revisions import OpenedRevision
from holdfast.pipeline.driver.task_outcomes import TaskOutcome
from holdfast.pipeline.driver.tasks import RangeJob
from holdfast.pipeline.model.definition import ClickHouseConfig
from holdfast.pipeline.sinks.contract import FencedRange

TARGET = target_of(ClickHouseConfig(table="orders"))


class Jobs:
    """The first job fails. Of those that follow, what was mapped is gone for partition 0."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, Sequence[FencedRange]]] = []

    def run(self, slot: str, frame: tuple[str, RangeJob]) -> list[TaskOutcome]:
        name, job = frame
        self.ran.append((name, job.fenced_ranges))
        if len(self.ran) == 1:
            raise RuntimeError("Python worker exited unexpectedly")
        return [
            TaskOutcome(partition=each.partition, kind="absent" if (name, each.partition) == ("kept", 0) else "done")
            for each in job.fenced_ranges
        ]

    def was_cancelled(self, slot: str) -> bool:
        return False


def test_ranges_of_a_failed_job_are_tried_alone_as_ranges_that_may_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataframes, "run_write_kept", lambda jobs, job: ("kept", job))
    monkeypatch.setattr(dataframes, "run_write", lambda jobs, job: ("mapped again", job))
    jobs = Jobs()
    resources = SimpleNamespace(jobs=jobs, cluster_address=ClusterAddress(bootstrap="127.0.0.1:1"))
    slot: Any = SimpleNamespace(run=SimpleNamespace(slot="s"), title="t", may_write=lambda: True, resources=resources)
    opened: Any = SimpleNamespace(target=TARGET, revision=TARGET.revision)
    ranges = [fenced_range(0, 10, partition=number) for number in (0, 1)]
    mapped = [TaskOutcome(partition=number, kind="done") for number in (0, 1)]
    outcomes = write_mapped(slot, opened, ranges, mapped)
    assert sorted((each.partition, each.kind) for each in outcomes) == [(0, "done"), (1, "done")]
    ran = [(name, [(each.partition, each.may_be_written) for each in of]) for name, of in jobs.ran]
    assert ran == [
        ("kept", [(0, False), (1, False)]),
        ("kept", [(0, True)]),
        ("kept", [(1, True)]),
        ("mapped again", [(0, True)]),
    ]


def write_mapped(
    slot: SlotContext, opened: OpenedRevision, ranges: list[FencedRange], mapped: list[TaskOutcome]
) -> list[TaskOutcome]:
    return RangeWriter(slot)._write_mapped(opened, ranges, mapped)
