"""The parts of a pipeline over HTTP: click-sink's names and shapes, versions, and secrets that never come back."""

from typing import Any

import httpx
import pytest
from tests.support.http_gateway import MAPPING, SINK, SOURCE, create_pipeline, problem_of

SECRET = "s3cr3t-Pa55"
SECURE = {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "me", "password": SECRET}


async def test_a_part_that_was_not_saved_is_not_there_unless_it_has_a_default(client: httpx.AsyncClient) -> None:
    path = await create_pipeline(client)
    for name in ("kafka-config", "clickhouse-config", "sink-config", "mapping"):
        problem_of(await client.get(f"{path}/{name}"), 404, "not-found")
    filters = await client.get(f"{path}/filters-config")
    assert filters.json() == {"enabled": False, "language": "holdfast", "expression": ""}
    assert filters.headers["etag"] == '"filters-0"'
    assert (await client.get(f"{path}/drift-config")).json()["unknownFields"] == "ignore"
    assert (await client.get(f"{path}/sql-config")).json() == {"sql": ""}
    assert (await client.get(f"{path}/parts")).json() == {}


async def test_the_shapes_of_click_sink_are_taken_and_given(client: httpx.AsyncClient) -> None:
    path = await create_pipeline(client)
    kafka = {"brokers": "a:9092,b:9092", "topic": "orders", "groupId": "sink"}
    saved = (await client.put(f"{path}/kafka-config", json=kafka)).json()
    assert (saved["brokers"], saved["topic"], saved["groupId"]) == (["a:9092", "b:9092"], "orders", "sink")
    clickhouse = {
        "dsn": "http://me:pw@ch:8123/shop",
        "table": "orders",
        "batchSize": 500,
        "batchFlushInterval": "2s",
        "insertRatePerSecond": 10,
        "createTableIfMissing": False,
    }
    saved = (await client.put(f"{path}/clickhouse-config", json=clickhouse)).json()
    assert (saved["database"], saved["table"], saved["batchSize"]) == ("shop", "orders", 500)
    assert (saved["batchFlushIntervalMs"], saved["insertRatePerSecond"]) == (2_000, 10)
    mapping = (await client.put(f"{path}/mapping", json=MAPPING)).json()
    assert mapping["columns"] == MAPPING["columns"]
    filters = {"enabled": True, "language": "holdfast", "expression": 'flat["status"] == "paid"'}
    assert (await client.put(f"{path}/filters-config", json=filters)).json() == filters
    for name in ("kafka-config", "clickhouse-config", "mapping", "filters-config"):
        again = await client.get(f"{path}/{name}")
        assert again.status_code == 200
    assert (await client.get(path)).json()["recipe"] > 0


async def test_secrets_are_never_echoed_and_survive_an_edit_that_sends_them_back_hidden(
    client: httpx.AsyncClient,
) -> None:
    path = await create_pipeline(client)
    source = {"topic": "orders", "brokers": ["broker:9093"], "security": SECURE}
    sink = {"dsn": f"https://me:{SECRET}@ch:8443/shop", "table": "orders"}
    answers = [
        await client.put(f"{path}/kafka-config", json=source),
        await client.put(f"{path}/clickhouse-config", json=sink),
        await client.put(f"{path}/parts", json={"source": source, "sink": sink, "mapping": MAPPING}),
        await client.get(f"{path}/kafka-config"),
        await client.get(f"{path}/sink-config"),
        await client.get(f"{path}/parts"),
        await client.get(path),
        await client.get("/api/pipelines"),
        await client.get(f"{path}/status"),
    ]
    assert {answer.status_code for answer in answers} == {200}
    assert not [answer.url for answer in answers if SECRET in answer.text]
    hidden = (await client.get(f"{path}/clickhouse-config")).json()
    assert hidden["dsn"] == "https://me:***@ch:8443/shop"
    version = (await client.get(path)).json()["recipe"]
    back = await client.put(f"{path}/clickhouse-config", json=hidden)
    assert back.json() == hidden
    assert (await client.get(path)).json()["recipe"] == version, "nothing changed, so nothing was saved"
    stolen = await client.put(f"{path}/clickhouse-config", json={**hidden, "dsn": "https://me:***@evil.example/shop"})
    said = problem_of(stolen, 422, "invalid")
    assert "another server" in said["detail"]
    for wrong in (
        f"ftp://me:{SECRET}@ch/x",
        f"https://me:{SECRET}@ch:99999/",
        f"https://me:{SECRET}@",
        f"me:{SECRET}@ch",
    ):
        refused = await client.put(f"{path}/clickhouse-config", json={"dsn": wrong, "table": "t"})
        problem_of(refused, 422, "invalid")
        assert SECRET not in refused.text


@pytest.mark.parametrize(
    ("name", "body", "pointer"),
    [
        ("kafka-config", {"topic": "no spaces please"}, "#/topic"),
        ("kafka-config", {"topic": "t", "brokers": ["nowhere"]}, "#/brokers/0"),
        ("kafka-config", {"topic": "t", "start": "yesterday"}, "#/start"),
        ("clickhouse-config", {"table": "t", "batchSize": 0}, "#/batchSize"),
        ("clickhouse-config", {"table": "t", "engine": "Log"}, "#/engine"),
        ("clickhouse-config", {"kind": "parquet", "url": "/tmp/x"}, "#/kind"),
        ("sink-config", {"kind": "parquet", "url": ""}, "#/url"),
        (
            "mapping",
            {"columns": [{"fieldPath": "a", "column": "a", "type": "Int65", "nullable": False}]},
            "#/columns/0/type",
        ),
        ("mapping", {"columns": []}, "#/columns"),
        ("drift-config", {"unknownFields": "guess"}, "#/unknownFields"),
        ("filters-config", {"enabled": True, "expression": "a >"}, "#/expression"),
        ("sql-config", {"sql": 5}, "#/sql"),
    ],
)
async def test_a_wrong_part_is_refused_with_its_place_and_what_is_allowed(
    client: httpx.AsyncClient, name: str, body: dict[str, Any], pointer: str | None
) -> None:
    path = await create_pipeline(client)
    said = problem_of(await client.put(f"{path}/{name}", json=body), 422, "invalid")
    (fault,) = said["errors"]
    assert fault["allowed"]
    assert fault.get("pointer") == pointer


async def test_in_a_body_of_several_parts_the_pointer_starts_with_the_part(client: httpx.AsyncClient) -> None:
    path = await create_pipeline(client)
    body = {"source": SOURCE, "sink": {"table": "t", "batchSize": 0}, "mapping": MAPPING}
    said = problem_of(await client.put(f"{path}/parts", json=body), 422, "invalid")
    assert said["errors"][0]["pointer"] == "#/sink/batchSize"
    body = {
        "source": {"topic": "a b"},
        "sink": {"table": "t", "batchSize": 0, "batchSise": 1},
        "mapping": {"columns": [7]},
    }
    said = problem_of(await client.put(f"{path}/parts", json=body), 422, "invalid")
    assert [each["pointer"] for each in said["errors"]] == [
        "#/source/topic",
        "#/sink/batchSise",
        "#/sink/batchSize",
        "#/mapping/columns/0",
    ]
    assert (await client.get(f"{path}/parts")).json() == {}, "all or none"
    problem_of(await client.put(f"{path}/parts", json={"sauce": {}}), 422, "invalid")


async def test_a_body_that_is_no_object_is_malformed(client: httpx.AsyncClient) -> None:
    path = await create_pipeline(client)
    for sent in (b"[]", b"{", b"", b"null", b"[" * 50_000):
        answer = await client.put(f"{path}/mapping", content=sent, headers={"content-type": "application/json"})
        problem_of(answer, 400, "malformed")


async def test_a_part_has_a_version_of_its_own(client: httpx.AsyncClient) -> None:
    path = await create_pipeline(client)
    first = await client.put(f"{path}/mapping", json=MAPPING, headers={"if-none-match": "*"})
    assert first.headers["etag"] == '"mapping-1"'
    problem_of(await client.put(f"{path}/mapping", json=_with("b"), headers={"if-none-match": "*"}), 412, "changed")
    second = await client.put(f"{path}/mapping", json=_with("b"), headers={"if-match": '"mapping-1"'})
    assert second.headers["etag"] == (await client.get(f"{path}/mapping")).headers["etag"] == '"mapping-2"'
    problem_of(
        await client.put(f"{path}/mapping", json=_with("c"), headers={"if-match": '"mapping-1"'}), 412, "changed"
    )
    problem_of(await client.put(f"{path}/mapping", json=_with("c"), headers={"if-match": '"sink-2"'}), 412, "changed")
    late = await client.put(f"{path}/parts", json={"mapping": _with("c")}, headers={"if-match": '"mapping-1"'})
    problem_of(late, 412, "changed")
    done = await client.put(f"{path}/parts", json={"mapping": _with("c")}, headers={"if-match": '"mapping-2"'})
    assert done.status_code == 200


async def test_all_parts_together_have_one_tag(client: httpx.AsyncClient) -> None:
    path = await create_pipeline(client, source=SOURCE, mapping=MAPPING)
    tag = (await client.get(f"{path}/parts")).headers["etag"]
    assert tag == '"parts-mapping.1-source.1"'
    edited = {"mapping": _with("b"), "sink": SINK}
    first = await client.put(f"{path}/parts", json=edited, headers={"if-match": tag})
    assert first.headers["etag"] == '"parts-mapping.2-sink.1-source.1"'
    late = await client.put(f"{path}/parts", json={"mapping": _with("c")}, headers={"if-match": tag})
    problem_of(late, 412, "changed")
    other = {"mapping": _with("c"), "sink": {"table": "other"}}
    for stale in (tag, '"pipeline-3"', '"mapping-2"', 'W/"parts-mapping.2-sink.1-source.1"'):
        problem_of(await client.put(f"{path}/parts", json=other, headers={"if-match": stale}), 412, "changed")
    assert (await client.get(f"{path}/parts")).headers["etag"] == first.headers["etag"], "all or none"
    problem_of(await client.put(path, json={"description": "x"}, headers={"if-match": tag}), 412, "changed")
    again = await client.put(f"{path}/parts", json=other, headers={"if-match": first.headers["etag"]})
    assert again.status_code == 200


def _with(name: str) -> dict[str, Any]:
    return {"columns": [{"fieldPath": name, "column": name, "type": "String", "nullable": True}]}


async def test_the_other_sinks_are_saved_as_sink_config(client: httpx.AsyncClient) -> None:
    path = await create_pipeline(client, source=SOURCE, sink=SINK, mapping=MAPPING)
    for sink in (
        {"kind": "parquet", "url": "/data/orders"},
        {"kind": "delta", "url": "s3://bucket/orders"},
        {"kind": "iceberg", "catalogUri": "sqlite:////tmp/c.db", "warehouse": "/tmp/w", "table": "shop.orders"},
        {"kind": "topic", "topic": "orders-mapped"},
    ):
        saved = (await client.put(f"{path}/sink-config", json=sink)).json()
        assert {name: saved[name] for name in sink} == sink
        problem_of(await client.get(f"{path}/clickhouse-config"), 404, "not-found")
