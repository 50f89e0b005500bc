"""What `holdfast pipeline status` shows of a streaming query."""

import msgspec

from holdfast.cli.pipeline.status import engine_lines
from holdfast.pipeline.model.driver_protocol import StreamProgress

QUERY = StreamProgress(engine="structured-streaming", reason="auto", batch=1_204, batch_ms=350, epoch=3)
STATUS = {"engine": QUERY.engine, "engineReason": QUERY.reason}


def test_a_query_that_runs_well_is_one_line_below_its_engine() -> None:
    engine, query = engine_lines({**STATUS, "stream": msgspec.to_builtins(QUERY)})
    assert engine == "engine structured-streaming: auto"
    assert query == "batch 1,204 done, 350 ms · watermark – · state 0 rows · late 0 · epoch 3"


def test_restarts_and_the_page_in_sparks_ui_are_lines_of_their_own() -> None:
    troubled = msgspec.structs.replace(
        QUERY,
        failures=2,
        failure="OutOfMemoryError: heap",
        ui_url="http://127.0.0.1:4040/StreamingQuery/statistics/?id=7",
    )
    assert list(engine_lines({**STATUS, "stream": msgspec.to_builtins(troubled)}))[2:] == [
        "restarted 2 times, last: OutOfMemoryError: heap",
        "Spark UI http://127.0.0.1:4040/StreamingQuery/statistics/?id=7",
    ]
