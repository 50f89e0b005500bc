"""Driver and executors have the same versions, or nothing is mapped."""

import pickle

import msgspec
import pytest
from tests.support.sink_values import fenced_range, records_of, target_of

from holdfast.pipeline.driver import spark_jobs
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.driver.tasks import RangeJob, mapped_range
from holdfast.pipeline.driver.versions import UNKNOWN, VersionsDifferError, installed_versions
from holdfast.pipeline.model.definition import ParquetConfig

OTHER = msgspec.structs.replace(installed_versions(), pyarrow="9.0.0", python="3.9")
TARGET = target_of(ParquetConfig(url="/x"))


def test_every_version_is_known() -> None:
    assert UNKNOWN not in msgspec.structs.astuple(installed_versions())


@pytest.mark.spark
def test_executors_with_other_versions_are_refused_with_both(jobs: SparkJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.warm_up()
    found = installed_versions()
    monkeypatch.setattr(spark_jobs, "installed_versions", lambda: OTHER)
    with pytest.raises(VersionsDifferError) as refused:
        jobs.warm_up()
    expected = (
        f"an executor has python {found.python}, pyarrow {found.pyarrow}, the driver has python 3.9, pyarrow 9.0.0"
    )
    assert expected in str(refused.value)


def test_an_executor_that_comes_later_maps_nothing() -> None:
    job = RangeJob(target=TARGET, cluster_address=None, fenced_ranges=(), versions=OTHER)
    with pytest.raises(VersionsDifferError, match=r"the driver has python 3\.9, pyarrow 9\.0\.0"):
        mapped_range(job, fenced_range(0, 1), records_of([b"{}"]))


def test_a_job_carries_the_versions_of_its_driver() -> None:
    job = RangeJob(target=TARGET, cluster_address=None, fenced_ranges=())
    assert pickle.loads(pickle.dumps(job)).versions == installed_versions()
