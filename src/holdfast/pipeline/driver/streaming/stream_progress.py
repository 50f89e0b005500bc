"""What Spark reports of a query, as the status and metrics show it."""

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.pipeline.driver.streaming.query_listener import QueryFigures
from holdfast.pipeline.model.driver_protocol import SlotProgress, StreamProgress
from holdfast.pipeline.model.query import ChosenEngine

if TYPE_CHECKING:
    from holdfast.pipeline.driver.streaming.running_query import RunningStream


def of_query(running: "RunningStream", chosen: ChosenEngine, figures: QueryFigures, ui_url: str) -> StreamProgress:
    """The state of a running query. Before its first batch is reported, the batch that is done."""
    run_id = str(running.query.runId)
    found = StreamProgress(
        engine=chosen.engine,
        reason=chosen.reason,
        epoch=running.epoch,
        batch=running.store.record.done_batch,
        output_mode=running.revision.query.output_mode,
        run_id=run_id,
        input_rows_total=figures.input_rows,
        late_rows_total=figures.late_rows,
        failures=figures.failures,
        failure=figures.failure,
        ui_url=f"{ui_url}/StreamingQuery/statistics/?id={run_id}" if ui_url else "",
    )
    return with_report(found, figures.report) if figures.report.get("runId") == run_id else found


def with_report(progress: StreamProgress, report: dict[str, Any]) -> StreamProgress:
    """With the figures of Spark's `StreamingQueryProgress`."""
    states, sources = report.get("stateOperators", []), report.get("sources", [])
    return msgspec.structs.replace(
        progress,
        watermark=report.get("eventTime", {}).get("watermark", ""),
        state_rows=sum(each.get("numRowsTotal", 0) for each in states),
        state_bytes=sum(each.get("memoryUsedBytes", 0) for each in states),
        dropped_rows=sum(each.get("numRowsDroppedByWatermark", 0) for each in states),
        input_rows=report.get("numInputRows", 0),
        batch_ms=report.get("batchDuration", 0),
        lag_rows=sum(_lag(each) for each in sources),
    )


def _lag(source: dict[str, Any]) -> int:
    latest = source.get("latestOffset")
    try:
        decoded: Any = msgspec.json.decode(latest) if isinstance(latest, str) else latest
        return int(decoded["lag"]["rows"])
    except (TypeError, KeyError, msgspec.MsgspecError):
        return 0


def with_stream(message: SlotProgress, progress: StreamProgress | None) -> SlotProgress:
    """A slot's progress with its query's."""
    return message if progress is None else msgspec.structs.replace(message, stream=progress)
