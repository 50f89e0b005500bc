"""What Spark reports of a query, as the status shows it."""

import json
from typing import Any

import pytest

from holdfast.pipeline.driver.streaming.stream_progress import with_report
from holdfast.pipeline.model.driver_protocol import StreamProgress

PROGRESS = StreamProgress(engine="structured-streaming", reason="auto", batch=4)
END = {"version": 1, "topics": {}, "lag": {"rows": 7, "bytesInObjects": 1, "bytesOnAgents": 2}}


@pytest.mark.parametrize("latest", [END, json.dumps(END)])
def test_figures_are_added_up_over_operators_and_sources(latest: Any) -> None:
    state = {"numRowsTotal": 10, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 1}
    report = {
        "numInputRows": 12,
        "batchDuration": 345,
        "eventTime": {"watermark": "2026-01-01T00:00:10.000Z"},
        "stateOperators": [state, state],
        "sources": [{"latestOffset": latest}, {"latestOffset": latest}, {"latestOffset": None}],
    }
    found = with_report(PROGRESS, report)
    assert (found.state_rows, found.state_bytes, found.dropped_rows) == (20, 200, 2)
    assert (found.input_rows, found.batch_ms, found.lag_rows) == (12, 345, 14)
    assert (found.watermark, found.batch) == ("2026-01-01T00:00:10.000Z", 4)


def test_a_report_without_state_or_time_is_no_error() -> None:
    assert with_report(PROGRESS, {}) == PROGRESS
