"""What runs on an executor: a portion is read, decoded, filtered, mapped and written, and a line about it goes back.

The one rule: a task takes nothing with it but values. Plans, filters and connections are made where they are used, once per process
and recipe, from the `Job`, which pickles.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from holdfast.pipeline.driver import steps
from holdfast.pipeline.driver.mapping_records import Mapped, map_records, ready, survey
from holdfast.pipeline.driver.outcomes import Outcome, to_batch
from holdfast.pipeline.mapping.drift import AddColumns, Stop
from holdfast.pipeline.sinks.choosing import kept_sink
from holdfast.pipeline.sinks.contract import BlockedError, Portion, RefusedRow, Target, Written
from holdfast.spark.ranges import DataLossError, OffsetRange, ReadCounters, TopicChangedError, read_range
from holdfast.spark.reach import Reach
from holdfast.spark.reading.memory import keep_freed, keep_loaded
from holdfast.vocabulary.errors import FencedError, HoldfastError


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The portions of one Spark job. It pickles."""

    target: Target
    reach: Reach | None
    """None where records come through a DataFrame."""
    portions: tuple[Portion, ...]


class WarmUp:
    """Imports what tasks need, before anybody waits for one: the first task of a process takes seconds otherwise."""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow.compute  # noqa: F401

        for _ in batches:
            yield to_batch([])


class WritePortions:
    """For `spark.range(n).mapInArrow`: number i of the range is portion i of the job. No record passes through the JVM."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                portion = self._job.portions[number]
                yield to_batch([settled(self._write, portion)])

    def _write(self, portion: Portion) -> Outcome:
        counters = ReadCounters()
        table = read_portion(self._job, portion, counters)
        outcome = write_records(self._job, portion, table)
        return with_counters(outcome, counters)


class SurveyPortions:
    """The same for a look before ranges are begun: what do the records ask of the mapping?"""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                portion = self._job.portions[number]
                yield to_batch([settled(self._look, portion)])

    def _look(self, portion: Portion) -> Outcome:
        return surveyed(self._job, portion, read_portion(self._job, portion, ReadCounters()))


class WriteRecords:
    """For records that come through Spark's Kafka connector: a partition of the frame is a portion."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for portion, table in tables_by_partition(self._job, batches):
            steps.reached("read")
            yield to_batch([settled(partial(self._write, table), portion)])

    def _write(self, table: Any, portion: Portion) -> Outcome:
        return write_records(self._job, portion, table)


class SurveyRecords:
    """The look before ranges are begun, over the same records."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for portion, table in tables_by_partition(self._job, batches):
            yield to_batch([settled(partial(self._look, table), portion)])

    def _look(self, table: Any, portion: Portion) -> Outcome:
        return surveyed(self._job, portion, table)


def tables_by_partition(job: Job, batches: Iterator[Any]) -> Iterator[tuple[Portion, Any]]:
    """The records of each portion as one table in the order of offsets, however they come."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = [batch for batch in batches if batch.num_rows]
    if not found:
        return
    table = pa.Table.from_batches(found)
    portions = {portion.partition: portion for portion in job.portions}
    for number in pc.unique(table.column("partition")).to_pylist():
        part = table.filter(pc.equal(table.column("partition"), number)).sort_by("offset")
        yield portions[number], part.combine_chunks()


def read_portion(job: Job, portion: Portion, counters: ReadCounters) -> Any:
    """The records of a portion as one table, straight from object storage where they are there."""
    import pyarrow as pa

    assert job.reach is not None
    keep_freed()
    recipe = job.target.recipe
    wanted = OffsetRange(recipe.source.topic, portion.partition, portion.start, portion.end)
    headers = ready(recipe).headers
    batches = list(read_range(job.reach, wanted, include_headers=headers, counters=counters))
    steps.reached("read")
    return pa.Table.from_batches(batches) if batches else None


def surveyed(job: Job, portion: Portion, table: Any) -> Outcome:
    """What the drift policy makes of a portion."""
    done = Outcome(partition=portion.partition, kind="done")
    if table is None:
        return done
    match survey(job.target.recipe, table):
        case Stop(fields, reason):
            return replace_outcome(done, stop=f"{reason}: {', '.join(fields)}")
        case AddColumns(columns, _):
            return replace_outcome(done, columns=columns)
    return done


def write_records(job: Job, portion: Portion, table: Any) -> Outcome:
    """Map a portion's records and write them."""
    mapped = mapped_records(job, table)
    steps.reached("mapped")
    return write_mapped(job, portion, mapped, read=table.num_rows if table is not None else 0, size=sized(table))


def mapped_records(job: Job, table: Any) -> Mapped | None:
    """Rows and refusals; None: the range has no records."""
    return None if table is None else map_records(job.target.recipe, job.target.generation, table)


def write_mapped(job: Job, portion: Portion, mapped: Mapped | None, *, read: int, size: int) -> Outcome:
    """Give rows and refusals to the sink."""
    import pyarrow as pa

    if mapped is None:
        steps.reached("task-done")
        return Outcome(partition=portion.partition, kind="done")
    rows = pa.Table.from_batches([mapped.rows])
    written = give(job.target, portion, rows, mapped.refused)
    steps.reached("task-done")
    return Outcome(
        partition=portion.partition,
        kind="done",
        rows=written.rows,
        refused=written.refused,
        filtered=mapped.filtered,
        read=read,
        payload_bytes=size,
        staged=written.staged,
        warnings=written.warnings,
        newest_ms=mapped.newest_ms,
    )


def give(target: Target, portion: Portion, rows: Any, refused: Sequence[RefusedRow]) -> Written:
    """Have the sink write. A task that Spark runs once more (its executor died) comes after one that may have written."""
    from pyspark import TaskContext

    context = TaskContext.get()
    again = portion.again or (context is not None and context.attemptNumber() > 0)
    written = kept_sink(target).write(replace(portion, again=again), rows, refused)
    keep_loaded()
    return written


def settled(work: Callable[[Portion], Outcome], portion: Portion) -> Outcome:
    """What became of a portion, whatever it was. An error nobody foresaw is tried again like the others, and named."""
    try:
        return work(portion)
    except FencedError as error:
        return Outcome(partition=portion.partition, kind="fenced", reason=str(error))
    except (DataLossError, TopicChangedError) as error:
        return Outcome(partition=portion.partition, kind="lost", reason=str(error))
    except (BlockedError, HoldfastError) as error:
        return Outcome(partition=portion.partition, kind="blocked", reason=str(error))
    except Exception as error:
        return Outcome(partition=portion.partition, kind="blocked", reason=f"{type(error).__name__}: {error}"[:2_000])


def with_counters(outcome: Outcome, counters: ReadCounters) -> Outcome:
    """The outcome, with what reading cost."""
    return replace_outcome(outcome, bytes_objects=counters.bytes_objects, bytes_agents=counters.bytes_agents)


def replace_outcome(outcome: Outcome, **changes: Any) -> Outcome:
    """The outcome with some fields changed."""
    import msgspec

    return msgspec.structs.replace(outcome, **changes)


def sized(table: Any) -> int:
    """The bytes of keys and values."""
    return 0 if table is None else int(table.column("value").nbytes + table.column("key").nbytes)
