"""Metrics of pipelines: the counters of running slots, as workers report them to the store.

Every node exposes the same, so take `max by (pipeline, …)` over nodes before summing.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, get_args

from holdfast.gateways.http.metrics.exposition import Labels, MetricFamily, MetricSource
from holdfast.pipeline.catalog.worker_status import SlotStatus, WorkerRecord
from holdfast.pipeline.model.timestamps import parse_iso_ns
from holdfast.pipeline.service.service import PipelineService
from holdfast.pipeline.service.status import PipelineStatus, State

Value = Callable[[PipelineStatus], float | None]

_SLOT_METRICS: Final = {
    "rows": ("holdfast_pipeline_rows_total", "Rows written by a slot since it was started."),
    "batches": ("holdfast_pipeline_batches_total", "Batches written by a slot since it was started."),
    "filtered": ("holdfast_pipeline_filtered_rows_total", "Records dropped by the filter of a slot."),
    "dlq_rows": ("holdfast_pipeline_dlq_rows_total", "Records a slot wrote to the DLQ."),
}
_STREAM_METRICS: Final = {
    "batch": ("holdfast_pipeline_stream_batch", "Last batch of a streaming query that is done."),
    "state_rows": ("holdfast_pipeline_stream_state_rows", "Rows in the state of a streaming query."),
    "state_bytes": ("holdfast_pipeline_stream_state_bytes", "Memory of the state of a streaming query."),
    "dropped_rows": ("holdfast_pipeline_stream_late_rows", "Rows of the last batch that came after the watermark."),
    "input_rows": ("holdfast_pipeline_stream_input_rows", "Rows that the last batch read."),
    "batch_ms": ("holdfast_pipeline_stream_batch_milliseconds", "Duration of the last batch."),
}
_STREAM_TOTALS: Final = {
    "input_rows_total": ("holdfast_pipeline_stream_input_rows_total", "Rows that streaming queries of a slot read."),
    "late_rows_total": ("holdfast_pipeline_stream_late_rows_total", "Rows that came after the watermark."),
    "failures": ("holdfast_pipeline_stream_failures_total", "Streaming queries of a slot that ended by themselves."),
}


def pipeline_metrics(pipelines: PipelineService) -> MetricSource:
    """Metrics of all pipelines."""

    async def families() -> Iterable[MetricFamily]:
        return [*_pipelines(await pipelines.statuses()), *_workers(await pipelines.workers())]

    return families


def _pipelines(statuses: Sequence[PipelineStatus]) -> Iterator[MetricFamily]:
    slots = [(_labels(status, slot), slot) for status in statuses for slot in status.slots]
    for field, (name, help_text) in _SLOT_METRICS.items():
        yield MetricFamily(
            name, "counter", help_text, [(labels, float(getattr(slot, field))) for labels, slot in slots]
        )
    read: list[tuple[Labels, float]] = []
    for labels, slot in slots:
        read += [
            ({**labels, "from": "objects"}, slot.bytes_objects),
            ({**labels, "from": "agents"}, slot.bytes_agents),
        ]
    yield MetricFamily("holdfast_pipeline_read_bytes_total", "counter", "Bytes read by a slot, by source.", read)
    yield _gauge("holdfast_pipeline_lag_rows", "Records not yet written.", statuses, lambda each: each.lag_rows)
    yield _gauge(
        "holdfast_pipeline_lag_seconds",
        "Age of the oldest record not yet written.",
        statuses,
        lambda each: None if each.lag_ms is None else each.lag_ms / 1000,
    )
    yield _gauge(
        "holdfast_pipeline_slots_wanted",
        "Desired slots: the replicas of a started pipeline.",
        statuses,
        lambda each: each.replicas if each.desired == "started" else 0,
    )
    yield _gauge(
        "holdfast_pipeline_slots_held",
        "Slots held by a worker.",
        statuses,
        lambda each: len({slot.slot for slot in each.slots}),
    )
    yield _gauge("holdfast_pipeline_slots_running", "Running slots.", statuses, lambda each: each.slots_running)
    streams = [(labels, slot.stream) for labels, slot in slots if slot.stream is not None]
    for field, (name, help_text) in {**_STREAM_METRICS, **_STREAM_TOTALS}.items():
        found = [(labels, float(getattr(stream, field))) for labels, stream in streams]
        yield MetricFamily(name, "counter" if field in _STREAM_TOTALS else "gauge", help_text, found)
    yield MetricFamily(
        "holdfast_pipeline_stream_watermark_seconds",
        "gauge",
        "Watermark of a streaming query, in seconds since 1970.",
        [(labels, at_ns / 1e9) for labels, each in streams if (at_ns := parse_iso_ns(each.watermark)) is not None],
    )
    states = [
        ({"pipeline": each.name, "state": state}, float(each.state == state))
        for each in statuses
        for state in get_args(State)
    ]
    yield MetricFamily("holdfast_pipeline_state", "gauge", "1 for the current state.", states)


def _workers(workers: Sequence[WorkerRecord]) -> Iterator[MetricFamily]:
    able = [({"able": "true"}, float(sum(each.able for each in workers)))]
    unable = [({"able": "false"}, float(sum(not each.able for each in workers)))]
    yield MetricFamily("holdfast_workers", "gauge", "Live workers, by whether they take slots.", [*able, *unable])


def _gauge(name: str, help_text: str, statuses: Sequence[PipelineStatus], value: Value) -> MetricFamily:
    samples = [({"pipeline": each.name}, number) for each in statuses if (number := value(each)) is not None]
    return MetricFamily(name, "gauge", help_text, samples)


def _labels(status: PipelineStatus, slot: SlotStatus) -> dict[str, str]:
    return {
        "pipeline": status.name,
        "generation": str(slot.generation),
        "slot": slot.slot,
        "worker": slot.worker_id,
    }
