"""/api/pipelines: create, list, edit, delete; desired state, and concurrent edits."""

import asyncio
from typing import Any

import httpx
import pytest
from tests.support.http_gateway import (
    MAPPING,
    SINK,
    SOURCE,
    RunningHttpGateway,
    create_pipeline,
    problem_of,
    running_http_gateway,
)
from tests.support.waiting import async_until

from holdfast.kernel.lease import acquire
from holdfast.kernel.session import SessionSettings, hold_session
from holdfast.pipeline.catalog.worker_status import SlotStatus, WorkerRecord, status_key, worker_key
from holdfast.pipeline.model.definition import slot_resource
from holdfast.pipeline.model.driver_protocol import StreamProgress
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom


async def test_a_pipeline_is_created_listed_changed_and_deleted(client: httpx.AsyncClient) -> None:
    assert (await client.get("/api/pipelines")).json() == []
    path = await create_pipeline(client)
    one = (await client.get(path)).json()
    assert (one["name"], one["description"], one["recipe"]) == ("orders", "of the shop", 0)
    assert one["state"] == {"desired": "stopped", "replicas": 1}
    assert one["problems"]
    assert (await client.get("/api/pipelines/orders")).json() == one, "it is found by its name too"
    changed = await client.put(path, json={"description": "of both shops"})
    assert (changed.json()["name"], changed.json()["description"]) == ("orders", "of both shops")
    assert [each["id"] for each in (await client.get("/api/pipelines")).json()] == [one["id"]]
    assert (await client.delete(path)).status_code == 204
    problem_of(await client.get(path), 404, "not-found")
    problem_of(await client.delete(path), 404, "not-found")


async def test_a_name_that_is_taken_is_a_conflict(client: httpx.AsyncClient) -> None:
    await create_pipeline(client)
    said = problem_of(await client.post("/api/pipelines", json={"name": "Orders"}), 409, "conflict")
    assert "'Orders'" in said["detail"]


@pytest.mark.parametrize(
    ("body", "pointer", "allowed"),
    [
        ({}, "#", "an object with name, description"),
        ({"name": 1}, "#/name", "text"),
        ({"name": "a", "nmae": "b"}, "#", "an object with name, description"),
        ([], "#", "an object with name, description"),
    ],
)
async def test_a_body_of_the_wrong_shape_has_a_pointer_and_what_is_allowed(
    client: httpx.AsyncClient, body: Any, pointer: str, allowed: str
) -> None:
    said = problem_of(await client.post("/api/pipelines", json=body), 400, "malformed")
    (fault,) = said["errors"]
    assert (fault["pointer"], fault["allowed"]) == (pointer, allowed)


@pytest.mark.parametrize("sent", [b"", b"{", b"\xff", b'{"name": "a"} x', b"[" * 100_000])
async def test_a_body_that_is_not_json_is_refused(client: httpx.AsyncClient, sent: bytes) -> None:
    answer = await client.post("/api/pipelines", content=sent, headers={"content-type": "application/json"})
    problem_of(answer, 400, "malformed")


async def test_a_value_that_cannot_be_is_refused_with_what_can(client: httpx.AsyncClient) -> None:
    said = problem_of(await client.post("/api/pipelines", json={"name": " "}), 422, "invalid")
    assert said["errors"][0]["allowed"]
    path = await create_pipeline(client)
    said = problem_of(await client.patch(f"{path}/state", json={"desired": "running"}), 400, "malformed")
    (fault,) = said["errors"]
    assert (fault["pointer"], fault["allowed"]) == ("#/desired", 'one of "started", "stopped"; or null')
    said = problem_of(await client.post(f"{path}/scale", json={"replicas": 0}), 422, "invalid")
    assert "between 1 and" in said["errors"][0]["allowed"]


async def test_it_starts_only_when_it_is_complete(client: httpx.AsyncClient) -> None:
    path = await create_pipeline(client)
    said = problem_of(await client.post(f"{path}/start"), 409, "conflict")
    assert [fault["detail"] for fault in said["errors"]] == [
        "source: not saved yet",
        "sink: not saved yet",
        "mapping: not saved yet",
    ]
    await client.put(f"{path}/parts", json={"source": SOURCE, "sink": SINK, "mapping": MAPPING})
    assert (await client.post(f"{path}/start")).json()["state"]["desired"] == "started"
    problem_of(await client.delete(path), 409, "conflict")
    assert (await client.post(f"{path}/scale", json={"replicas": 3})).json()["state"] == {
        "desired": "started",
        "replicas": 3,
    }
    assert (await client.get(f"{path}/state")).json() == {"desired": "started", "replicas": 3}
    assert (await client.patch(f"{path}/state", json={"replicas": 2})).json() == {"desired": "started", "replicas": 2}
    assert (await client.put(f"{path}/state", json={"desired": "stopped", "replicas": 4})).json()["replicas"] == 4
    assert (await client.post(f"{path}/stop")).json()["state"]["desired"] == "stopped"
    assert (await client.delete(path)).status_code == 204


async def test_a_change_to_what_has_changed_is_refused(client: httpx.AsyncClient) -> None:
    path = await create_pipeline(client)
    before = (await client.get(path)).headers["etag"]
    first = await client.put(path, json={"description": "first"}, headers={"if-match": before})
    assert first.status_code == 200
    late = await client.put(path, json={"description": "late"}, headers={"if-match": before})
    problem_of(late, 412, "changed")
    assert (await client.get(path)).json()["description"] == "first"
    again = await client.put(path, json={"description": "again"}, headers={"if-match": first.headers["etag"]})
    assert again.status_code == 200
    for tag in ('"mapping-1"', 'W/"pipeline-1"'):
        problem_of(await client.put(path, json={"description": "x"}, headers={"if-match": tag}), 412, "changed")
    problem_of(await client.put(path, json={"description": "x"}, headers={"if-match": "1"}), 422, "invalid")
    problem_of(await client.delete(path, headers={"if-match": before}), 412, "changed")
    problem_of(await client.patch(f"{path}/state", json={"replicas": 2}, headers={"if-match": before}), 412, "changed")


async def test_of_many_who_change_the_same_one_is_first(client: httpx.AsyncClient) -> None:
    path = await create_pipeline(client)
    tag = (await client.get(path)).headers["etag"]
    sent = [client.put(path, json={"description": str(n)}, headers={"if-match": tag}) for n in range(8)]
    statuses = sorted(answer.status_code for answer in await asyncio.gather(*sent))
    assert statuses == [200] + [412] * 7


async def test_what_is_not_there_is_not_there_anywhere(client: httpx.AsyncClient) -> None:
    gone = "/api/pipelines/nothing"
    for method, path in [
        *(
            ("GET", f"{gone}{rest}")
            for rest in ("", "/state", "/status", "/assignments", "/sample", "/dlq", "/dlq/count")
        ),
        *(
            ("GET", f"{gone}/{rest}")
            for rest in ("kafka-config", "clickhouse-config", "sink-config", "mapping", "parts")
        ),
        *(("GET", f"{gone}/clickhouse/{rest}") for rest in ("databases", "tables", "schema")),
        *(
            ("POST", f"{gone}/{rest}")
            for rest in ("start", "stop", "infer", "preview", "validate/kafka", "dlq/replay", "table")
        ),
        ("GET", f"{gone}/table-diff"),
        ("DELETE", gone),
        ("DELETE", f"{gone}/backfill/2"),
    ]:
        problem_of(await client.request(method, path), 404, "not-found")
    for method, path, body in [
        ("PUT", gone, {}),
        ("PUT", f"{gone}/mapping", MAPPING),
        ("PUT", f"{gone}/state", {}),
        ("PATCH", f"{gone}/state", {}),
        ("POST", f"{gone}/scale", {"replicas": 1}),
        ("POST", f"{gone}/rewind", {}),
        ("POST", f"{gone}/backfill", {}),
        ("POST", f"{gone}/filters-eval", {"expression": "true"}),
    ]:
        problem_of(await client.request(method, path, json=body), 404, "not-found")


async def test_status_assignments_and_workers_are_what_workers_report(tmp_path: Any) -> None:
    clock, random = RealClock(), SystemRandom()
    async with (
        open_store("memory:", clock=clock, random=random) as store,
        running_http_gateway(store=store) as served,
        hold_session(store, clock=clock, random=random, settings=SessionSettings()) as session,
    ):
        client = served.client
        path = await create_pipeline(client, source=SOURCE, sink=SINK, mapping=MAPPING)
        await client.post(f"{path}/start")
        waiting = (await client.get(f"{path}/status")).json()
        assert (waiting["state"], waiting["mode"]) == ("waiting", "none")
        pipeline = path.rpartition("/")[2]
        await _working(store, session.id, pipeline, clock, random)
        (worker,) = (await client.get("/api/workers")).json()
        assert (worker["id"], worker["able"]) == ("worker-1", True)
        (held,) = (await client.get(f"{path}/assignments")).json()
        assert held == {"slot": 0, "workerId": "worker-1", "leaseUntil": "2027-01-15T08:00:00.000+00:00", "epoch": 1}
        status = (await client.get(f"{path}/status")).json()
        assert (status["state"], status["rows"], status["slotsRunning"]) == ("running", 12, 1)
        assert (await client.get("/api/status")).json() == [status]
        page = (await client.get("/metrics")).text
        labels = 'pipeline="orders",generation="1",slot="0",worker="worker-1"'
        assert f"holdfast_pipeline_rows_total{{{labels}}} 12" in page
        assert f"holdfast_pipeline_dlq_rows_total{{{labels}}} 3" in page
        assert f"holdfast_pipeline_stream_batch{{{labels}}} 7" in page
        assert f"holdfast_pipeline_stream_state_rows{{{labels}}} 40" in page
        assert f"holdfast_pipeline_stream_input_rows_total{{{labels}}} 900" in page
        assert f"holdfast_pipeline_stream_failures_total{{{labels}}} 2" in page
        assert f"holdfast_pipeline_stream_watermark_seconds{{{labels}}} 1767225610" in page
        assert 'holdfast_pipeline_slots_wanted{pipeline="orders"} 1' in page
        assert 'holdfast_pipeline_slots_held{pipeline="orders"} 1' in page
        assert 'holdfast_pipeline_state{pipeline="orders",state="running"} 1' in page
        assert 'holdfast_workers{able="true"} 1' in page


async def _working(store: Any, session: str, pipeline: str, clock: Any, random: Any) -> None:
    import msgspec

    from holdfast.contracts.store import Put

    await acquire(store, slot_resource(pipeline, 0), holder="worker-1", session=session, clock=clock, random=random)
    worker = WorkerRecord(
        id="worker-1", host="here", pid=1, version="0", mode="leases", session=session, started_at_ms=0,
        slots_per_pipeline_max=4, lease_until_ms=1_800_000_000_000,
    )  # fmt: skip
    slot = SlotStatus(
        pipeline_id=pipeline,
        generation=1,
        slot="0",
        worker_id="worker-1",
        epoch=1,
        state="running",
        rows=12,
        dlq_rows=3,
        stream=StreamProgress(
            engine="structured-streaming",
            reason="auto",
            batch=7,
            state_rows=40,
            input_rows_total=900,
            failures=2,
            watermark="2026-01-01T00:00:10.000Z",
        ),
    )
    await store.commit(
        apply=(
            Put(worker_key("worker-1"), msgspec.json.encode(worker), session),
            Put(status_key(pipeline, 1, "0"), msgspec.json.encode(slot), session),
        ),
    )


async def test_an_incomplete_body_has_no_effect_even_if_it_is_valid_json(served: RunningHttpGateway) -> None:
    body = b'{"name": "half"}'
    head = b"POST /api/pipelines HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n"
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(head + body)
    await writer.drain()
    await async_until(lambda: served.counters.in_flight == 1, what="the server waits for the rest")
    writer.close()
    await async_until(lambda: served.counters.in_flight == 0, what="it has given up")
    assert (await served.client.get("/api/pipelines")).json() == []


async def test_many_at_once_are_answered(served: RunningHttpGateway) -> None:
    names = [f"p{n}" for n in range(30)]
    answers = await asyncio.gather(*(served.client.post("/api/pipelines", json={"name": name}) for name in names))
    assert {answer.status_code for answer in answers} == {201}
    assert [each["name"] for each in (await served.client.get("/api/pipelines")).json()] == sorted(names)
