"""Dead letters of change events, replayed: an older change never replaces a newer one."""

from typing import Any

import pyarrow as pa
from tests.support.change_events import encoded, event
from tests.support.change_revisions import COLUMNS, SINK, change_revision
from tests.support.sink_destinations import ClickHouseDatabase, clickhouse, clickhouse_server_process  # noqa: F401 (fixtures)
from tests.support.sink_values import fenced_range
from tests.support.source_records import records_table

from holdfast.clickhouse.client import ClickHouseClient
from holdfast.pipeline.catalog.stored_parts import PendingReplay
from holdfast.pipeline.mapping.transform import map_records
from holdfast.pipeline.service.dead_letter_table import DeadLetterQuery
from holdfast.pipeline.service.replay import BEGINNING, ReplayTally, ReplayTarget
from holdfast.pipeline.sinks.clickhouse.sink import ClickHouseSink
from holdfast.pipeline.sinks.contract import SinkTarget
from holdfast.vocabulary.random import SystemRandom


def test_a_replayed_change_does_not_replace_a_newer_one(clickhouse: ClickHouseDatabase) -> None:  # noqa: F811
    sink_part = {**SINK, "dsn": clickhouse.server.url, "database": clickhouse.database}
    made = change_revision(sink=sink_part)
    target = SinkTarget(pipeline_id="p1", generation=1, revision=made, columns=made.mapping.columns)
    rows: list[dict[str, Any]] = [{"id": 1, "name": None}, {"id": 2, "name": None}, {"id": 1, "name": "new"}]
    keys = [encoded({"id": row["id"]}) for row in rows]
    mapped = map_records(
        made, 1, records_table(*(encoded(event("u", None, row)) for row in rows), keys=keys, first=0, partition=0)
    )
    assert [row.offset for row in mapped.refused] == [0, 1]
    sink = ClickHouseSink(target)
    sink.prepare()
    sink.write(fenced_range(0, 3), pa.Table.from_batches([mapped.rows]), mapped.refused)
    sink.close()
    lenient = [COLUMNS[0], {**COLUMNS[1], "whenNull": "default"}]
    connection = ClickHouseClient(clickhouse.server.url, timeout_ms=60_000)
    replay = ReplayTarget(
        "p1", change_revision(sink=sink_part, mapping={"columns": lenient}), connection, random=SystemRandom()
    )
    assert replay.prepare()
    assert replay.misfits() == ()
    step = replay.next_step(DeadLetterQuery(), BEGINNING, 100)
    assert step == (1, 0, (0, 1))
    tally = ReplayTally(revision=2)
    pending = PendingReplay(
        generation=1, partition=0, offsets=step[2], revision=2, token="p1:replay:1", topic="t", pipeline="p1"
    )
    replay.execute(pending, 1, tally)
    assert (tally.stored, tally.refused) == (2, 0)
    found = clickhouse.ask(f"SELECT id, name FROM {clickhouse.database}.orders FINAL ORDER BY id")
    assert [(int(row["id"]), row["name"]) for row in found] == [(1, "new"), (2, "")]
    connection.close()
