"""The revisions of a pipeline that a slot has open: the newest for planning, older ones for ranges begun under them.

The one rule: a range keeps its revision. It is finished by the sink of the revision it was begun with.
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
    "the retention of another Kafka does not wait: exactly-once holds as long as it keeps the ranges that were begun"
)


class PermanentError(HoldfastError):
    """A retry cannot help: the slot stops until the pipeline is edited."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


@dataclass(slots=True)
class OpenedRevision:
    """One revision and its open sink."""

    revision: Revision
    target: SinkTarget
    sink: PipelineSink
    prepared: bool = False
    """Whether the sink was prepared and has not failed since."""

    def prepare(self) -> tuple[str, ...]:
        """Prepare the sink if necessary; warnings for the operator."""
        if self.prepared:
            return ()
        warnings = self.sink.prepare()
        self.prepared = True
        return warnings if self.sink.guarantee == EXACTLY_ONCE else (self.sink.guarantee, *warnings)

    def limits(self, settings: DriverSettings) -> RangeLimits:
        """How large a range may be."""
        sink = self.revision.sink
        return RangeLimits(
            rows_max=sink.batch_size,
            bytes_max=sink.batch_bytes,
            age_ms=sink.batch_flush_interval_ms,
            ranges_max=settings.ranges_max,
        )

    @property
    def inserts_per_second(self) -> float:
        """The rate limit; 0: none."""
        sink = self.revision.sink
        return sink.insert_rate_per_second if isinstance(sink, ClickHouseConfig) else 0.0

    @property
    def surveys_first(self) -> bool:
        """Whether records are read once before a range is begun."""
        return self.revision.drift.unknown_fields in ("stop", "add-column")


@dataclass(slots=True)
class CurrentRevision:
    """What a slot plans with."""

    generation: Generation
    opened: OpenedRevision
    source: PipelineSource
    group: GroupOffsets
    rate: InsertRateLimiter

    def close(self) -> None:
        """Close the connections to the source."""
        self.source.close()
        self.group.close()


class SlotRevisions:
    """Of one slot. `current` exists once `refresh` has returned."""

    def __init__(
        self,
        run: RunSlot,
        store: SlotStore,
        *,
        jobs: SparkJobs,
        cluster_address: ClusterAddress,
        embedded: str,
        sink_roots: tuple[str, ...],
        settings: DriverSettings,
    ) -> None:
        self._run, self._store, self._jobs = run, store, jobs
        self._cluster_address, self._embedded, self._refresh_ms = cluster_address, embedded, settings.refresh_ms
        self._sink_roots = sink_roots
        self._opened: dict[int, OpenedRevision] = {}
        self._current: CurrentRevision | None = None
        self._refreshed_ms = 0

    @property
    def current(self) -> CurrentRevision:
        """The newest revision."""
        assert self._current is not None
        return self._current

    def refresh(self, now_ms: int) -> tuple[str, ...]:
        """Read the pipeline again if it is time to; warnings for the operator."""
        if self._current is not None and now_ms < self._refreshed_ms + self._refresh_ms:
            return ()
        pipeline = self._store.pipeline()
        found = [each for each in pipeline.generations if each.number == self._run.generation]
        if not found or found[0].retired:
            raise PermanentError(f"generation {self._run.generation} is retired")
        if pipeline.revision == 0:
            raise PermanentError("the pipeline is incomplete: " + "; ".join(pipeline.problems))
        warnings = self._switch_to(pipeline.revision, found[0], now_ms)
        self._refreshed_ms = now_ms
        return warnings

    def refresh_next_turn(self) -> None:
        """The pipeline was edited: the next `refresh` reads it."""
        self._refreshed_ms = -self._refresh_ms

    def version(self, number: int) -> OpenedRevision:
        """A revision by its version. One that is invalid is a `PermanentError`."""
        if number not in self._opened:
            revision = self._store.revision(number)
            try:
                target = dataframes.target_of(
                    self._jobs,
                    revision,
                    pipeline_id=self._run.pipeline_id,
                    generation=self._run.generation,
                    embedded=self._embedded,
                    cluster_address=self._cluster_address,
                    sink_roots=self._sink_roots,
                )
                self._opened[number] = OpenedRevision(revision, target, open_sink(target))
            except InvalidError as error:
                raise PermanentError(str(error)) from None
        return self._opened[number]

    def close(self) -> None:
        """Close sinks and connections."""
        for each in self._opened.values():
            each.sink.close()
        if self._current is not None:
            self._current.close()

    def _switch_to(self, number: int, generation: Generation, now_ms: int) -> tuple[str, ...]:
        before, opened = self._current, self.version(number)
        if before is None or before.opened.revision.source != opened.revision.source:
            return self._open_source(opened, generation, now_ms)
        if before.opened.inserts_per_second != opened.inserts_per_second:
            before.rate = InsertRateLimiter(opened.inserts_per_second, now_ms=now_ms)
        before.generation, before.opened = generation, opened
        return ()

    def _open_source(self, opened: OpenedRevision, generation: Generation, now_ms: int) -> tuple[str, ...]:
        if self._current is not None:
            self._current.close()
        config = opened.revision.source
        self._current = CurrentRevision(
            generation,
            opened,
            open_source(config, self._cluster_address),
            GroupOffsets(config, cluster_address=self._cluster_address, pipeline_id=self._run.pipeline_id),
            InsertRateLimiter(opened.inserts_per_second, now_ms=now_ms),
        )
        return (FOREIGN_SOURCE,) if config.brokers else ()
