"""Heaps over HTTP: the JSON of every route, problems that name the field, confirmations, and clients that go away."""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from tests.support.heaps import HeapWorld
from tests.support.http_gateway import RunningHttpGateway, problem_of, running_http_gateway
from tests.support.waiting import async_until

from holdfast.gateways.heap.calls import HeapBackend, HeapCalls
from holdfast.gateways.http.heap import bodies
from holdfast.gateways.http.routes import bodies as routes_bodies
from holdfast.heap.model import MESSAGES_MAX, NewMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.wire import UpdateRequest
from holdfast.log.settings import TopicSettings
from holdfast.log.topics import FixedPartitionsError
from holdfast.vocabulary.errors import InvalidError


class Served:
    """An agent with heaps behind an HTTP gateway."""

    def __init__(self, world: HeapWorld, node: Any, gateway: RunningHttpGateway) -> None:
        self.world, self.node, self.gateway, self.client = world, node, gateway, gateway.client

    async def post(self, path: str, **body: object) -> httpx.Response:
        return await self.client.post(f"/v1/{path}", json=body)

    async def done(self, path: str, **body: object) -> Any:
        answer = await self.post(path, **body)
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    async def heap(self, topic: str, **settings: object) -> Any:
        return await self.done("heaps", topic=topic, durability="local", **settings)

    async def pop(self, topic: str, **more: object) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.done("pop", topic=topic, wait_ms=30_000, **more))["items"]
        return found

    async def figures(self, topic: str) -> dict[str, Any]:
        answer = await self.client.get("/v1/stats", params={"topic": topic})
        [found] = answer.json()["heaps"]
        return dict(found)

    async def token(self, action: str, topic: str) -> str:
        made = await self.client.post("/v1/confirmations", json={"action": action, "resource": topic})
        return str(made.json()["confirmationToken"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    directory: Path = tmp_path_factory.mktemp("heaps")
    world = HeapWorld(directory)
    node = await world.node()
    cluster = world.cluster
    calls = HeapCalls(
        HeapBackend(heaps=node.agent.heaps, cluster=node.agent.cluster, clock=cluster.clock, random=cluster.random)
    )
    async with running_http_gateway(heaps=calls, store=cluster.store) as gateway:
        made = Served(world, node, gateway)
        await made.heap("bad")
        yield made
    calls.close()
    await world.end()


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_heap_is_created_listed_changed_and_deleted_with_its_token(served: Served) -> None:
    answer = await served.post("heaps", topic="orders", mode="max", partitions=2, top_k_bound=5, max_retries=7)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == "/v1/heaps/orders"
    made = answer.json()
    assert (made["mode"], made["partitions"], made["top_k_bound"], made["max_retries"]) == ("max", 2, 5, 7)
    assert made["dlq_topic"] == "orders.dlq"
    problem_of(await served.post("heaps", topic="orders"), 409, "conflict")
    await served.heap("orders2")
    first = (await served.client.get("/v1/heaps", params={"page_size": 1})).json()
    listed = [each["topic"] for each in first["heaps"]]
    while first["next_page_token"]:
        asked = {"page_size": 1, "page_token": first["next_page_token"]}
        first = (await served.client.get("/v1/heaps", params=asked)).json()
        listed += [each["topic"] for each in first["heaps"]]
    assert listed == sorted(listed)
    assert {"orders", "orders2"} <= set(listed)
    changed = await served.client.patch("/v1/heaps/orders", json={"max_retries": None, "top_k_bound": 9})
    assert (changed.json()["max_retries"], changed.json()["top_k_bound"]) == (3, 9)
    grown = await served.client.patch("/v1/heaps/orders", json={"partitions": 4, "top_k_bound": 8})
    assert (grown.json()["partitions"], grown.json()["top_k_bound"]) == (4, 8)
    assert (await served.client.patch("/v1/heaps/orders", json={"partitions": 4})).status_code == 200
    fewer = problem_of(await served.client.patch("/v1/heaps/orders", json={"partitions": 3}), 422, "invalid")
    assert "currently has 4 partition(s)" in fewer["detail"]
    said = problem_of(await served.client.patch("/v1/heaps/orders", json={"mode": "min"}), 422, "invalid")
    assert said["errors"][0]["pointer"] == "#/mode"
    problem_of(await served.client.delete("/v1/heaps/orders"), 428, "unconfirmed")
    confirmed = {"force": "true", "confirmation_token": await served.token("heap.delete", "orders")}
    assert (await served.client.delete("/v1/heaps/orders", params=confirmed)).status_code == 204
    problem_of(await served.client.get("/v1/heaps/orders"), 404, "not-found")


async def test_a_server_whose_topics_keep_their_partitions_grows_no_heap(served: Served) -> None:
    await served.heap("kept", partitions=2)
    agent, cluster = served.node.agent, served.world.cluster
    fixed = HeapCalls(
        HeapBackend(
            heaps=agent.heaps,
            cluster=agent.cluster,
            topic_settings=TopicSettings(partitions="fixed"),
            clock=cluster.clock,
            random=cluster.random,
        )
    )
    with pytest.raises(FixedPartitionsError, match=r"keeps its 2 partitions, because topics\.partitions is fixed"):
        await fixed.administration.update("kept", {}, partitions=3)
    with pytest.raises(FixedPartitionsError):
        await fixed.call(UpdateRequest(topic="kept", config={}, partitions=3))
    assert (await fixed.administration.update("kept", {"top_k_bound": 4}, partitions=2)).partitions == 2
    fixed.close()


async def test_an_enqueue_that_is_repeated_after_its_heap_grew_is_found_over_http(served: Served) -> None:
    await served.heap("growing", partitions=2)
    sent = [
        {"producer_id": "p", "epoch": 0, "sequence": at, "partition_key": f"k{at}", "payload": "x"} for at in range(12)
    ]
    first = [await served.done("enqueue", topic="growing", **each) for each in sent]
    grown = await served.client.patch("/v1/heaps/growing", json={"partitions": 6})
    assert grown.json()["partitions"] == 6
    again = [await served.done("enqueue", topic="growing", **each) for each in sent]
    assert [each["message_id"] for each in again] == [each["message_id"] for each in first]
    assert all(each["duplicate"] for each in again)
    batch = [*sent, *({"payload": "y", "partition_key": f"k{at}"} for at in range(12))]
    both = (await served.done("enqueue:batch", topic="growing", messages=batch))["results"]
    assert [each["message_id"] for each in both[:12]] == [each["message_id"] for each in first]
    assert {each["partition_id"] for each in both[12:]} > {0, 1}
    found: list[dict[str, Any]] = []
    while len(found) < 24:
        found += await served.pop("growing", max=24)
    assert len({each["message_id"] for each in found}) == len(found) == 24


async def test_a_message_is_enqueued_popped_extended_and_acknowledged(served: Served) -> None:
    await served.heap("jobs")
    sent = {"producer_id": "p", "epoch": 1, "sequence": 4}
    first = await served.done("enqueue", topic="jobs", priority=5, payload={"n": 1}, headers={"k": "v"}, **sent)
    again = await served.done("enqueue", topic="jobs", priority=5, payload={"n": 1}, **sent)
    assert set(first) == {"message_id", "duplicate", "partition_id"}
    assert (again["message_id"], again["duplicate"]) == (first["message_id"], True)
    raw = b64encode(b"\xff\0").decode()
    batch = [{"priority": 9, "payload": "last"}, {"priority": 1, "payload_base64": raw}]
    assert len((await served.done("enqueue:batch", topic="jobs", messages=batch))["results"]) == 2
    peeked = (await served.client.get("/v1/peek", params={"topic": "jobs"})).json()["items"]
    assert [each["priority"] for each in peeked] == [1, 5, 9]
    items = await served.pop("jobs", max=2, visibility_timeout_ms=60_000)
    assert [b64decode(each["payload_base64"]) for each in items] == [b"\xff\0", b'{"n":1}']
    item = items[1]
    assert item["lease_deadline"].endswith("Z")
    assert (item["attempts"], item["headers"], item["producer_id"], item["sequence"]) == (0, {"k": "v"}, "p", 4)
    lease = {"topic": "jobs", "message_id": item["message_id"], "lease_token": item["lease_token"]}
    extended = await served.done("extend", **lease, extension_ms=120_000)
    assert extended["lease_deadline"] > item["lease_deadline"]
    assert (await served.done("ack", **lease))["settled"] == 1
    said = problem_of(await served.post("ack", **lease), 409, "lease-lost")
    assert item["message_id"] in said["detail"]
    tokens = [items[0]["lease_token"], item["lease_token"]]
    both = await served.done("release", topic="jobs", lease_tokens=tokens)
    assert (both["settled"], [each["lease_token"] for each in both["lost"]]) == (1, [item["lease_token"]])
    figures = await served.figures("jobs")
    assert (figures["ready"], figures["inflight"], figures["acks"], figures["enqueues"]) == (2, 0, 1, 3)


async def test_a_delayed_message_a_new_priority_and_one_that_is_cancelled(served: Served) -> None:
    await served.heap("plans")
    later = await served.done("enqueue", topic="plans", priority=1, payload="later", delay_ms=3_600_000)
    kept = await served.done("enqueue", topic="plans", priority=5, payload="kept")
    other = await served.done("enqueue", topic="plans", priority=3, payload="other")
    await served.done("reprioritise", topic="plans", message_id=kept["message_id"], priority=-(1 << 63))
    await served.done("cancel", topic="plans", message_id=other["message_id"])
    problem_of(await served.post("cancel", topic="plans", message_id=other["message_id"]), 404, "not-found")
    [item] = await served.pop("plans", max=10)
    assert (item["message_id"], item["priority"]) == (kept["message_id"], -(1 << 63))
    assert later["message_id"] != item["message_id"]
    assert (await served.figures("plans"))["delayed"] == 1
    problem_of(await served.post("purge", topic="plans", force=True), 428, "unconfirmed")
    token = await served.token("heap.purge", "plans")
    assert await served.done("purge", topic="plans", force=True, confirmation_token=token) == {"purged": 2}


async def test_dead_letters_are_listed_replayed_and_deleted(served: Served) -> None:
    await served.heap("risky", max_retries=0)
    for at in range(3):
        await served.done("enqueue", topic="risky", priority=at, payload=f"m{at}")
    for reason in ("too large", "too late"):
        [item] = await served.pop("risky")
        await served.done("nack", topic="risky", lease_token=item["lease_token"], reason=reason)
    [left] = (await served.client.get("/v1/peek", params={"topic": "risky"})).json()["items"]
    await served.done("dlq/move", topic="risky", message_id=left["message_id"], reason="by hand")
    letters = served.world
    await async_until(lambda: letters.view(served.node, "risky.dlq").stats().ready == 3)
    listed = (await served.client.get("/v1/dlq", params={"topic": "risky", "reason_contains": "late"})).json()["items"]
    assert [(each["reason"], "payload_base64" in each, each["payload_bytes"]) for each in listed] == [
        ("too late", False, 2)
    ]
    asked = {"topic": "risky", "message_id": listed[0]["message_id"]}
    [seen] = (await served.client.get("/v1/dlq/peek", params=asked)).json()["items"]
    assert (b64decode(seen["payload_base64"]), seen["origin_topic"]) == (b"m1", "risky")
    shown = (await served.client.get("/v1/peek", params={"topic": "risky", "include_dlq": "true"})).json()["items"]
    assert [each["dlq"] for each in shown] == [True] * 3
    tried = await served.done("dlq/replay", topic="risky", dry_run=True, rate_per_s=0.5)
    assert (tried["matched"], tried["changed"], tried["dry_run"]) == (3, 0, True)
    replayed = await served.done("dlq/replay", topic="risky", reason_contains="too", rate_per_s=1_000)
    assert (replayed["matched"], replayed["changed"], replayed["more"]) == (2, 2, False)
    assert len([*await served.pop("risky"), *await served.pop("risky")]) == 2
    problem_of(await served.post("dlq/delete", topic="risky"), 428, "unconfirmed")
    assert (await served.done("dlq/delete", topic="risky", dry_run=True))["matched"] == 1
    confirmed = {"force": True, "confirmation_token": await served.token("heap.dlq.delete", "risky")}
    assert (await served.done("dlq/delete", topic="risky", **confirmed))["changed"] == 1
    assert (await served.figures("risky"))["dlq"] == 0


@pytest.mark.parametrize(
    ("path", "body", "status", "pointer"),
    [
        ("heaps", {"topic": "x", "mode": "best"}, 422, "#/mode"),
        ("heaps", {"topic": "x", "top_k_bound": 0}, 422, "#/top_k_bound"),
        ("heaps", {"topic": "x", "partitions": "two"}, 400, "#/partitions"),
        ("heaps", {"topic": "x", "colour": 1}, 400, "#"),
        ("enqueue", {"topic": "bad", "priority": 1}, 422, "#/payload"),
        ("enqueue", {"topic": "bad", "priority": 1 << 63, "payload": ""}, 422, "#/priority"),
        ("enqueue", {"topic": "bad", "payload": "x", "payload_base64": "eA=="}, 422, "#/payload"),
        ("enqueue", {"topic": "bad", "payload_base64": "?"}, 422, "#/payload_base64"),
        ("enqueue", {"topic": "bad", "payload": "x", "producer_id": "p"}, 422, "#/sequence"),
        ("enqueue", {"topic": "bad", "payload": "x", "headers": {"a": 1}}, 422, "#/headers"),
        ("enqueue", {"topic": "bad", "payload": "x", "headers_base64": {"a": "?"}}, 422, "#/headers_base64/a"),
        ("enqueue:batch", {"topic": "bad", "messages": []}, 422, "#/messages"),
        ("enqueue", {"topic": "bad", "payload": "x", "partition_key": "k" * 2_000}, 422, "#/partition_key"),
        ("enqueue:batch", {"topic": "bad", "messages": [{}, {}]}, 422, "#/messages/0/payload"),
        ("pop", {"topic": "bad", "wait_ms": -1}, 422, "#/wait_ms"),
        ("pop", {"topic": "bad", "visibility_timeout_ms": 1}, 422, "#/visibility_timeout_ms"),
        ("ack", {"topic": "bad", "lease_token": "?"}, 422, "#/lease_token"),
        ("ack", {"topic": "bad"}, 422, "#/lease_token"),
        ("dlq/replay", {"topic": "bad", "rate_per_s": 0}, 422, "#/rate_per_s"),
    ],
)
async def test_a_problem_names_the_field(
    served: Served, path: str, body: dict[str, object], status: int, pointer: str
) -> None:
    answer = await served.post(path, **body)
    said = problem_of(answer, status, "malformed" if status == 400 else "invalid")
    assert said["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("enqueue:batch", {"messages": [{}] * 100_000}, "#/messages"),
        ("enqueue:batch", {"messages": [{"payload": 0}] * 15_000}, "#/messages"),
        ("enqueue", {"payload": 0, "headers": {f"{each:x}": "" for each in range(100_001)}}, "#/headers"),
        ("enqueue", {"payload": "x" * 1_000}, "#/payload"),
        ("dlq/replay", {"message_ids": [""] * 100_001}, "#/message_ids"),
    ],
)
async def test_too_much_is_refused_where_it_is(
    served: Served, path: str, body: dict[str, object], pointer: str
) -> None:
    topic = "small-" + pointer.strip("#/")
    if pointer == "#/payload":
        await served.heap(topic, payload_bytes_max=100)
    answer = await served.post(path, topic=topic, **body)
    assert answer.status_code in (400, 422)
    assert answer.json()["errors"][0]["pointer"] == pointer


async def test_the_messages_of_a_batch_are_decoded_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1
        routes_bodies.count_entry()

    monkeypatch.setattr(bodies, "count_entry", count)
    with pytest.raises(InvalidError, match="messages"):
        bodies.decoded_batch(b'{"topic":"jobs","messages":[' + b"{}," * 1_000_000 + b"{}]}")
    assert counted == MESSAGES_MAX + 1


async def test_headers_are_documented_as_texts_by_name() -> None:
    (_, components) = msgspec.json.schema_components([bodies.EnqueueBody])
    headers = components["EnqueueBody"]["properties"]["headers"]
    assert (headers["type"], headers["additionalProperties"]) == ("object", {"type": "string"})


async def test_a_confirmation_is_answered_under_the_name_it_is_taken_by(served: Served) -> None:
    made = await served.client.post("/v1/confirmations", json={"action": "heap.purge", "resource": "none"})
    assert made.json()["confirmation_token"] == made.json()["confirmationToken"]


async def test_limits_and_fenced_producers_have_statuses_of_their_own(served: Served) -> None:
    await served.heap("tight", leases_per_consumer_max=1)
    for at in range(2):
        await served.done("enqueue", topic="tight", payload="x", producer_id="p", epoch=2, sequence=at)
    await served.pop("tight")
    full = await served.post("pop", topic="tight", wait_ms=30_000)
    problem_of(full, 429, "resource-exhausted")
    assert full.headers["retry-after"]
    late = await served.post("enqueue", topic="tight", payload="x", producer_id="p", epoch=1, sequence=9)
    problem_of(late, 409, "producer-fenced")
    problem_of(await served.post("pop", topic="nothing"), 404, "not-found")


async def test_what_a_client_that_went_away_would_have_got_waits_again(served: Served) -> None:
    await served.heap("gone")
    await async_until(lambda: any(each.topic == "gone" for each in served.node.agent.local_heaps.open))
    view = served.world.view(served.node, "gone")
    body = json.dumps({"topic": "gone", "wait_ms": 50_000}).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", served.gateway.port)
    head = f"POST /v1/pop HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    writer.write(head.encode() + b"\r\n\r\n" + body)
    await writer.drain()
    await async_until(lambda: len(view._pops) == 1)
    writer.close()
    await async_until(lambda: len(view._pops) == 0)
    await served.done("enqueue", topic="gone", payload="x")
    [item] = await served.pop("gone")
    assert item["attempts"] == 0


@pytest.mark.parametrize("action", ["replay", "delete"])
async def test_what_is_done_with_dead_letters_ends_with_its_client(
    served: Served, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    topic = f"left-{action}"
    await served.heap(topic)
    await served.world.served(served.node, topic)
    heaps = served.node.agent.heaps
    for each in await heaps.enqueue_batch(topic, [NewMessage(payload=b"x")] * 500, partition=0):
        await heaps.move_to_dead_letters(topic, each.message_id)
    await async_until(lambda: len(served.world.view(served.node, f"{topic}.dlq").state.ready) == 500)
    letters = served.world.view(served.node, f"{topic}.dlq")
    cancel = HeapPartition.cancel

    async def slowly(view: HeapPartition, *args: Any, **more: Any) -> Any:
        await served.world.clock.sleep_ms(200)
        return await cancel(view, *args, **more)

    monkeypatch.setattr(HeapPartition, "cancel", slowly)
    asked: dict[str, object] = {"topic": topic, "rate_per_s": 10}
    if action == "delete":
        asked = {"topic": topic, "force": True, "confirmation_token": await served.token("heap.dlq.delete", topic)}
    body = json.dumps(asked).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", served.gateway.port)
    head = f"POST /v1/dlq/{action} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    writer.write(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
    await async_until(lambda: len(letters.state.ready) < 500)
    writer.close()
    await served.world.clock.sleep_ms(500)
    left = len(letters.state.ready)
    await served.world.clock.sleep_ms(800)
    assert len(letters.state.ready) == left > 0


async def test_fairness_keys_limits_and_who_waits_at_them(served: Served) -> None:
    made = await served.heap("fair", fairness=True, fairness_weights="gold=3", key_leases_max=1)
    assert (made["fairness"], made["fairness_weights"], made["key_leases_max"]) == (True, "gold=3", 1)
    messages = [{"payload": "x", "fairness_key": key} for key in ("gold", "gold", "free")]
    await served.done("enqueue:batch", topic="fair", messages=messages)
    items = await served.pop("fair", max=9)
    assert [(each["fairness_key"], each["limited"]) for each in items] == [("gold", True), ("free", True)]
    figures = await served.figures("fair")
    assert (figures["keys"], figures["keys_at_limit"], figures["keys_at_rate"]) == (2, 1, 0)
    waiting = (await served.client.get("/v1/peek", params={"topic": "fair"})).json()["items"]
    assert waiting == [], "nothing may go now"
    changed = await served.client.patch("/v1/heaps/fair", json={"key_leases_max": None})
    assert changed.json()["key_leases_max"] == 0
    assert [each["fairness_key"] for each in await served.pop("fair")] == ["gold"]
    refused = await served.client.patch("/v1/heaps/fair", json={"fairness": False})
    assert (refused.status_code, "fairness_weights" in refused.text) == (422, True)
    empty = await served.post("enqueue", topic="fair", payload="x", fairness_key="")
    assert (empty.status_code, "fairness_key" in empty.text) == (422, True)
