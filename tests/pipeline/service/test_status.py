"""Status: what workers say, put together; and what nobody says is not made up."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from tests.support.pipeline_service import PipelineServiceHarness

from holdfast.contracts.store import Put
from holdfast.kernel.keys import holder_key
from holdfast.pipeline.catalog.worker_status import Mode, SlotStatus, WorkerRecord, status_key, worker_key
from holdfast.pipeline.model.definition import Generation, Pipeline, PipelineState, slot_resource
from holdfast.pipeline.model.driver_protocol import PartitionProgress, StreamProgress
from holdfast.pipeline.model.errors import NotReadyError
from holdfast.pipeline.service.status import NO_LEASES, PipelineStatus, aggregate
from holdfast.registry import PartitionState

STARTED = Pipeline(
    id="p", name="orders", revision=1, problems=(), state=PipelineState(desired="started", replicas=2), version=3
)


def worker(name: str = "w1", mode: Mode = "leases", **more: Any) -> WorkerRecord:
    fixed: dict[str, Any] = {"host": "h", "pid": 1, "version": "0", "session": "s", "started_at_ms": 0}
    return WorkerRecord(id=name, mode=mode, slots_per_pipeline_max=1, **{**fixed, **more})


def slot(number: str = "0", **more: Any) -> SlotStatus:
    return SlotStatus(
        **{"pipeline_id": "p", "generation": 1, "slot": number, "worker_id": "w1", "state": "running", **more}
    )


def seen(
    pipeline: Pipeline,
    slots: Sequence[SlotStatus] = (),
    workers: Sequence[WorkerRecord] = (),
    **progress: Sequence[PartitionState],
) -> PipelineStatus:
    return aggregate(pipeline, slots, workers, {int(name[1:]): states for name, states in progress.items()})


def test_counts_are_added_up_and_lag_is_by_the_registry() -> None:
    slots = [
        slot("0", rows=10, batches=2, partitions={"0": PartitionProgress(checkpoint=5, end=9, lag_ms=30)}),
        slot("1", rows=7, dlq_rows=1, partitions={"1": PartitionProgress(checkpoint=1, end=2, lag_ms=50)}),
    ]
    registry = [
        PartitionState(id=0, owner="p.1.0", epoch=1, checkpoint=7, intent='{"start":7,"end":9}'),
        PartitionState(id=1, checkpoint=1),
        PartitionState(id=2, checkpoint=4),
    ]
    found = seen(STARTED, slots, [worker()], g1=registry)
    assert (found.state, found.rows, found.batches, found.dlq_rows, found.slots_running) == ("running", 17, 2, 1, 2)
    assert (found.lag_rows, found.lag_ms) == (2 + 1, 50)
    assert [(each.checkpoint, each.end, each.lag_rows, each.pending) for each in found.partitions] == [
        (7, 9, 2, True),
        (1, 2, 1, False),
        (4, None, None, False),
    ]


def test_without_a_worker_there_is_no_lag_and_a_reason() -> None:
    found = seen(STARTED, g1=[PartitionState(id=0, checkpoint=7)])
    assert (found.state, found.lag_rows, found.lag_ms, found.mode) == ("waiting", None, None, "none")
    assert found.reasons == ("no worker is running: start one with holdfast serve --roles worker",)
    unable = seen(STARTED, workers=[worker(able=False, trouble="no Java")])
    assert unable.reasons == ("w1: no Java",)
    assert seen(STARTED, workers=[worker()]).reasons == ("no worker has taken a slot yet",)


@pytest.mark.parametrize("state", ["blocked", "failed"])
def test_one_failed_or_blocked_slot_determines_the_state(state: str) -> None:
    found = seen(STARTED, [slot("0"), slot("1", state=state, reason="the table is gone")], [worker()])
    assert (found.state, found.reasons) == (state, ("the table is gone",))


def test_slots_of_a_retired_generation_do_not_count_for_the_pipeline() -> None:
    generations = (Generation(number=1, retired=True), Generation(number=2))
    rewound = msgspec.structs.replace(STARTED, generations=generations)
    found = seen(rewound, [slot("0", state="failed", reason="old", rows=5)], [worker()])
    assert (found.state, found.rows) == ("waiting", 5)


def test_a_stopped_pipeline_is_stopping_while_a_slot_is_held() -> None:
    stopped = msgspec.structs.replace(STARTED, state=PipelineState())
    assert seen(stopped).state == "stopped"
    assert seen(stopped, [slot()]).state == "stopping"
    incomplete = msgspec.structs.replace(stopped, problems=("sink: not saved yet",))
    assert (seen(incomplete).state, seen(incomplete).reasons) == ("incomplete", ("sink: not saved yet",))


def test_the_mode_without_leases_has_its_banner_and_warns_of_replicas() -> None:
    found = seen(STARTED, [slot("~w1", warnings=("x", "x"))], [worker(mode="no-leases")])
    assert (found.mode, found.banner) == ("no-leases", NO_LEASES)
    assert found.warnings == ("x", "replicas 2 is ignored: workers run without leases")


def test_edits_that_do_not_fit_are_a_warning_while_the_old_revision_runs() -> None:
    edited = msgspec.structs.replace(STARTED, problems=("sink and mapping: x",))
    (warning,) = seen(edited, [slot()], [worker()]).warnings
    assert warning == "the edited parts do not fit together; revision 1 stays in use: sink and mapping: x"


def test_unfinished_ranges_of_a_dead_worker_are_a_warning_until_they_are_continued() -> None:
    stopped = msgspec.structs.replace(STARTED, state=PipelineState())
    begun = PartitionState(id=3, checkpoint=7, intent='{"start":7,"end":9}')
    (warning,) = seen(stopped, g1=[begun]).warnings
    assert warning.startswith("unfinished ranges of partitions 3: their records are kept until")
    assert seen(STARTED, g1=[begun]).warnings == ()


@pytest.mark.xdist_group("clickhouse")
async def test_status_and_assignments_are_read_from_what_workers_write(world: PipelineServiceHarness) -> None:
    pipeline = await world.pipeline()
    await world.service.start(pipeline.id)
    await world.service.scale(pipeline.id, 3)
    mine = slot(pipeline_id=pipeline.id, rows=4)
    await world.store.commit(
        apply=[
            Put(worker_key("w1"), msgspec.json.encode(worker(lease_until_ms=123))),
            Put(status_key(pipeline.id, 1, "0"), msgspec.json.encode(mine)),
            Put(holder_key(slot_resource(pipeline.id, 0)), b'{"holder":"w1","epoch":7}'),
        ]
    )
    await world.progress(await world.registry(pipeline, 1), [5, 0])
    found = await world.service.status(pipeline.id)
    assert (found.state, found.replicas, found.rows, found.mode) == ("running", 3, 4, "leases")
    assert [each.checkpoint for each in found.partitions] == [5, 0]
    (held,) = await world.service.assignments(pipeline.id)
    assert (held.slot, held.worker_id, held.epoch, held.lease_until_ms) == (0, "w1", 7, 123)
    assert [each.id for each in await world.service.workers()] == ["w1"]
    other = await world.service.catalog.create("other")
    both = {each.id: each for each in await world.service.statuses()}
    assert both[pipeline.id] == await world.service.status(pipeline.id)
    assert both[other.id] == await world.service.status(other.id)


@pytest.mark.xdist_group("clickhouse")
async def test_a_start_lists_everything_that_is_missing(world: PipelineServiceHarness) -> None:
    made = await world.service.catalog.create("empty")
    with pytest.raises(NotReadyError) as refused:
        await world.service.start(made.id)
    assert refused.value.reasons == ("source: not saved yet", "sink: not saved yet", "mapping: not saved yet")
    assert (await world.service.status(made.id)).state == "incomplete"


def test_a_streaming_query_reports_its_batch_and_lag() -> None:
    stream = StreamProgress(engine="structured-streaming", reason="auto: …", batch=7, state_rows=12, lag_rows=5)
    found = seen(STARTED, [slot("0", rows=3, stream=stream)], [worker()], g1=[PartitionState(id=0, owner="p.1.0")])
    assert (found.stream, found.lag_rows, found.rows) == (stream, 5, 3)
    assert seen(STARTED, [slot("0")], [worker()]).stream is None


async def test_the_status_names_the_engine_and_why(world: PipelineServiceHarness) -> None:
    made = await world.service.catalog.create("counts")
    assert (await world.service.status(made.id)).engine == ""
    query = {"sources": [{"topic": "a"}, {"topic": "b"}], "sql": "SELECT 1 AS x FROM a JOIN b"}
    sink = {"dsn": "http://127.0.0.1:1", "table": "t"}
    await world.service.catalog.put_parts(made.id, {"sink": sink, "query": query})
    status = await world.service.status(made.id)
    assert (status.engine, status.engine_reason) == ("structured-streaming", "auto: the query reads 2 sources")


async def test_a_query_is_rewound_while_it_is_stopped_and_not_backfilled(world: PipelineServiceHarness) -> None:
    made = await world.service.catalog.create("counts")
    query = {"sources": [{"topic": "a"}, {"topic": "b"}], "sql": "SELECT 1 AS x FROM a JOIN b"}
    parts: dict[str, Any] = {"sink": {"dsn": "http://127.0.0.1:1", "table": "t"}, "query": query}
    await world.service.catalog.put_parts(made.id, parts)
    reprocessing = world.service.reprocessing
    with pytest.raises(NotReadyError, match="keeps state over all its records"):
        await reprocessing.backfill(made.id, "earliest")
    with pytest.raises(NotReadyError, match="rewind it to earliest"):
        await reprocessing.rewind(made.id, "latest")
    with pytest.raises(NotReadyError, match="_generation"):
        await reprocessing.rewind(made.id, "earliest", delete_previous=True)
    after, generation = await reprocessing.rewind(made.id, "earliest")
    assert (generation.number, generation.starts, len(after.generations)) == (2, {}, 2)
    await world.service.start(made.id)
    with pytest.raises(NotReadyError, match="while it is stopped"):
        await reprocessing.rewind(made.id, "earliest")
