"""From a job to the DataFrame that does it.

A Holdfast topic without SQL is `spark.range(n).mapInArrow(task)`: no record passes through the JVM.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.pipeline.driver import outcomes
from holdfast.pipeline.driver.jobs import Jobs
from holdfast.pipeline.driver.outcomes import Outcome
from holdfast.pipeline.driver.tasks import Job, SurveyPortions, WritePortions
from holdfast.pipeline.nouns import Recipe
from holdfast.pipeline.sinks.contract import Portion, Target
from holdfast.spark.reach import Reach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Frame = Callable[[Jobs, Job], "DataFrame"]


def target_of(jobs: Jobs, recipe: Recipe, *, pipeline_id: str, generation: int, embedded: str, reach: Reach) -> Target:
    """What a recipe's rows are and where they go."""
    return Target(
        pipeline_id=pipeline_id,
        generation=generation,
        recipe=recipe,
        columns=recipe.mapping.columns,
        embedded=embedded,
        reach=reach,
    )


def writing(jobs: Jobs, job: Job) -> "DataFrame":
    """The frame whose rows are the outcomes of writing the job's portions."""
    return _numbers(jobs, job).mapInArrow(WritePortions(job), outcomes.SCHEMA)


def surveying(jobs: Jobs, job: Job) -> "DataFrame":
    """The frame whose rows say what the job's portions ask of the mapping."""
    return _numbers(jobs, job).mapInArrow(SurveyPortions(job), outcomes.SCHEMA)


def completed(portions: Sequence[Portion], said: Sequence[Outcome]) -> list[Outcome]:
    """An outcome for every portion: one that nobody spoke of is tried again."""
    known = {each.partition for each in said}
    silent = [each.partition for each in portions if each.partition not in known]
    return [*said, *(Outcome(partition=number, kind="blocked", reason="its task said nothing") for number in silent)]


def _numbers(jobs: Jobs, job: Job) -> "DataFrame":
    count = len(job.portions)
    return jobs.spark.range(0, count, 1, count)
