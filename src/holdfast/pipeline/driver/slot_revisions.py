"""The recipes a slot works by: the pipeline's newest for what is planned, older ones for what was begun under them.

The one rule: a version is never swapped under a range. What was begun under one is finished by the sink of that one.
"""

from dataclasses import dataclass
from typing import Final

from holdfast.client.cluster_address import ClusterAddress
from holdfast.pipeline.driver import dataframes
from holdfast.pipeline.driver.range_plan import InsertRateLimiter, RangeLimits
from holdfast.pipeline.driver.settings import DriverSettings
from holdfast.pipeline.driver.slot_store import SlotStore
from holdfast.pipeline.driver.sources import GroupOffsets, PipelineSource, open_source
from holdfast.pipeline.driver.spark_jobs import SparkJobs
from holdfast.pipeline.model.definition import ClickHouseConfig, Generation, Revision
from holdfast.pipeline.model.driver_protocol import RunSlot
from holdfast.pipeline.sinks.contract import EXACTLY_ONCE, PipelineSink, SinkTarget
from holdfast.pipeline.sinks.factory import open_sink
from holdfast.vocabulary.errors import HoldfastError, InvalidError

FOREIGN_SOURCE: Final = (
    "another Kafka does not wait with its retention: exactly once holds while it keeps what was begun"
)


class PermanentError(HoldfastError):
    """The slot stops until somebody edits the pipeline."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


@dataclass(slots=True)
class OpenedRevision:
    """One version at work."""

    recipe: Revision
    target: SinkTarget
    sink: PipelineSink
    ready: bool = False
    """Whether the sink was prepared, and nothing has gone wrong with it since."""

    def prepare(self) -> tuple[str, ...]:
        """Make the sink ready if it is not; what a person should know."""
        if self.ready:
            return ()
        warnings = self.sink.prepare()
        self.ready = True
        return warnings if self.sink.guarantee == EXACTLY_ONCE else (self.sink.guarantee, *warnings)

    def limits(self, settings: DriverSettings) -> RangeLimits:
        """How large a range may be."""
        sink = self.recipe.sink
        return RangeLimits(
            rows_max=sink.batch_size,
            bytes_max=sink.batch_bytes,
            age_ms=sink.batch_flush_interval_ms,
            ranges_max=settings.ranges_max,
        )

    @property
    def inserts_per_second(self) -> float:
        """The rate limit; 0: none."""
        sink = self.recipe.sink
        return sink.insert_rate_per_second if isinstance(sink, ClickHouseConfig) else 0.0

    @property
    def looks_first(self) -> bool:
        """Whether records are looked at before a range is begun."""
        return self.recipe.drift.unknown_fields in ("stop", "add-column")


@dataclass(slots=True)
class CurrentRevision:
    """What a slot plans by now."""

    generation: Generation
    work: OpenedRevision
    source: PipelineSource
    group: GroupOffsets
    rate: InsertRateLimiter

    def close(self) -> None:
        """Let the source's connections go."""
        self.source.close()
        self.group.close()


class SlotRevisions:
    """Of one slot. `current` is there once `refresh` has been called."""

    def __init__(
        self,
        run: RunSlot,
        ledger: SlotStore,
        *,
        jobs: SparkJobs,
        cluster_address: ClusterAddress,
        embedded: str,
        settings: DriverSettings,
    ) -> None:
        self._run, self._ledger, self._jobs = run, ledger, jobs
        self._cluster_address, self._embedded, self._refresh_ms = cluster_address, embedded, settings.refresh_ms
        self._opened: dict[int, OpenedRevision] = {}
        self._current: CurrentRevision | None = None
        self._refreshed_ms = 0

    @property
    def current(self) -> CurrentRevision:
        """The newest."""
        assert self._current is not None
        return self._current

    def refresh(self, now_ms: int) -> tuple[str, ...]:
        """Look whether the pipeline was changed, not too often; what a person should know of a change."""
        if self._current is not None and now_ms < self._refreshed_ms + self._refresh_ms:
            return ()
        pipeline = self._ledger.pipeline()
        found = [each for each in pipeline.generations if each.number == self._run.generation]
        if not found or found[0].retired:
            raise PermanentError(f"generation {self._run.generation} is retired")
        if pipeline.revision == 0:
            raise PermanentError("the pipeline is not complete: " + "; ".join(pipeline.problems))
        warnings = self._work_by(pipeline.revision, found[0], now_ms)
        self._refreshed_ms = now_ms
        return warnings

    def refresh_next_turn(self) -> None:
        """The pipeline was changed: the next `refresh` reads it."""
        self._refreshed_ms = -self._refresh_ms

    def version(self, number: int) -> OpenedRevision:
        """One version. What is wrong with it for ever is a `PermanentError`."""
        if number not in self._opened:
            recipe = self._ledger.recipe(number)
            try:
                target = dataframes.target_of(
                    self._jobs,
                    recipe,
                    pipeline_id=self._run.pipeline_id,
                    generation=self._run.generation,
                    embedded=self._embedded,
                    cluster_address=self._cluster_address,
                )
                self._opened[number] = OpenedRevision(recipe, target, open_sink(target))
            except InvalidError as error:
                raise PermanentError(str(error)) from None
        return self._opened[number]

    def close(self) -> None:
        """Let everything go."""
        for each in self._opened.values():
            each.sink.close()
        if self._current is not None:
            self._current.close()

    def _work_by(self, number: int, generation: Generation, now_ms: int) -> tuple[str, ...]:
        before, work = self._current, self.version(number)
        if before is None or before.work.recipe.source != work.recipe.source:
            return self._begin_by(work, generation, now_ms)
        if before.work.inserts_per_second != work.inserts_per_second:
            before.rate = InsertRateLimiter(work.inserts_per_second, now_ms=now_ms)
        before.generation, before.work = generation, work
        return ()

    def _begin_by(self, work: OpenedRevision, generation: Generation, now_ms: int) -> tuple[str, ...]:
        if self._current is not None:
            self._current.close()
        config = work.recipe.source
        self._current = CurrentRevision(
            generation,
            work,
            open_source(config, self._cluster_address),
            GroupOffsets(config, bootstrap=self._cluster_address.bootstrap, pipeline_id=self._run.pipeline_id),
            InsertRateLimiter(work.inserts_per_second, now_ms=now_ms),
        )
        return (FOREIGN_SOURCE,) if config.brokers else ()
