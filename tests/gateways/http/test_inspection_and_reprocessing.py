"""What needs a broker and a ClickHouse: samples, inference, previews, validation, tables, the DLQ, rewinds and backfills."""

import json
from typing import Any

import httpx
import pytest
from tests.support.http_gateway import problem_of
from tests.support.pipeline_service import MAPPING, PipelineServiceHarness


def orders(count: int) -> list[str]:
    return [json.dumps({"id": n, "amount": f"{n}.50"}) for n in range(count)]


async def ready(world: PipelineServiceHarness, client: httpx.AsyncClient, count: int = 5) -> str:
    """The path of a complete pipeline over a topic with records."""
    await world.topic(*orders(count))
    path = f"/api/pipelines/{(await world.pipeline()).id}"
    assert (await client.get(path)).json()["problems"] == []
    return path


async def test_from_a_topic_to_a_proposal_a_preview_and_a_table(
    world: PipelineServiceHarness, whole: httpx.AsyncClient
) -> None:
    await world.topic(*orders(5), "not json")
    path = f"/api/pipelines/{(await world.service.catalog.create(world.name)).id}"
    assert (await whole.put(f"{path}/kafka-config", json={"topic": world.name})).status_code == 200
    sample = (await whole.get(f"{path}/sample", params={"limit": 10})).json()
    assert ([each["offset"] for each in sample["records"]], sample["notJson"]) == ([0, 1, 2, 3, 4, 5], 1)
    assert len((await whole.get(f"{path}/sample?limit=2&where=first")).json()["records"]) == 2
    proposal = (await whole.post(f"{path}/infer")).json()
    assert [each["column"] for each in proposal["mapping"]["columns"]] == ["id", "amount"]
    assert proposal["evidence"][0]["why"]
    look = {"limit": 3, "parts": {"mapping": MAPPING, "sink": {"table": world.name}}}
    shown = (await whole.post(f"{path}/preview", json=look)).json()
    assert (shown["sampled"], len(shown["rows"]), len(shown["refused"])) == (3, 2, 1)
    assert "CREATE TABLE" in shown["ddl"]
    assert shown["table"]["exists"] is False
    await whole.put(f"{path}/parts", json={"sink": {"table": world.name}, "mapping": MAPPING})
    assert (await whole.get(f"{path}/table-diff")).json()["exists"] is False
    assert (await whole.post(f"{path}/table")).json()["exists"] is True
    assert (await whole.post(f"{path}/table")).json()["missing"] == []
    assert "default" in (await whole.get(f"{path}/clickhouse/databases")).json()
    assert world.name in (await whole.get(f"{path}/clickhouse/tables")).json()
    schema = (await whole.get(f"{path}/clickhouse/schema")).json()
    assert [each["name"] for each in schema["columns"]][:2] == ["id", "amount"]
    for what in ("kafka", "clickhouse", "clickhouse-table"):
        checked = (await whole.post(f"{path}/validate/{what}")).json()
        assert checked["ok"], checked
    problem_of(await whole.post(f"{path}/validate/everything"), 422, "invalid")


async def test_a_filter_is_tried_on_a_sample_and_on_values(
    world: PipelineServiceHarness, whole: httpx.AsyncClient
) -> None:
    path = await ready(world, whole)
    tried = (await whole.post(f"{path}/filters-eval", json={"expression": "id > 2"})).json()
    assert (tried["kept"], tried["dropped"]) == (2, 3)
    body = {"expression": "id > 2", "values": [{"id": 9}, {"id": "x"}]}
    tried = (await whole.post(f"{path}/filters-eval", json=body)).json()
    assert [each["verdict"] for each in tried["rows"]] == ["kept", "error"]
    said = problem_of(await whole.post(f"{path}/filters-eval", json={"expression": "id >"}), 422, "invalid")
    assert "line 1, column" in said["detail"]


@pytest.mark.parametrize(
    ("path", "parameter"),
    [("sample?limit=x", "limit"), ("sample?where=middle", "where"), ("dlq?partition=a", "partition")],
)
async def test_a_parameter_of_the_wrong_kind_is_named(client: httpx.AsyncClient, path: str, parameter: str) -> None:
    said = problem_of(await client.get(f"/api/pipelines/any/{path}"), 400, "malformed")
    assert said["errors"][0]["parameter"] == parameter


async def test_a_limit_beyond_what_is_allowed_is_refused(
    world: PipelineServiceHarness, whole: httpx.AsyncClient
) -> None:
    path = await ready(world, whole, 1)
    said = problem_of(await whole.get(f"{path}/sample?limit=1000000"), 422, "invalid")
    assert "between 1 and" in said["errors"][0]["allowed"]


async def test_an_unreachable_server_is_unavailable_and_its_password_is_not_shown(
    world: PipelineServiceHarness, whole: httpx.AsyncClient
) -> None:
    path = await ready(world, whole, 1)
    dsn = "http://me:s3cr3t@127.0.0.1:9/shop"
    answer = await whole.post(f"{path}/validate/clickhouse", json={"parts": {"sink": {"dsn": dsn, "table": "t"}}})
    assert "s3cr3t" not in answer.text
    assert answer.status_code == 503 or answer.json()["ok"] is False, answer.text


async def test_refused_records_are_listed_counted_and_replayed(
    world: PipelineServiceHarness, whole: httpx.AsyncClient
) -> None:
    path = await ready(world, whole)
    await whole.post(f"{path}/table")
    pipeline = await world.service.catalog.get(path.rpartition("/")[2])
    await world.refuse(pipeline, (0, 1, '{"id": 7, "amount": "1.00"}', "amount: bad"), (0, 2, '{"id": "x"}', "id: bad"))
    page = (await whole.get(f"{path}/dlq", params={"limit": 1})).json()
    assert [(each["offset"], each["reason"]) for each in page["letters"]] == [(1, "amount: bad")]
    rest = (await whole.get(f"{path}/dlq", params={"after": page["after"]})).json()
    assert [each["payload"] for each in rest["letters"]] == ['{"id": "x"}']
    assert [each["offset"] for each in (await whole.get(f"{path}/dlq?reason=ID:")).json()["letters"]] == [2]
    counted = (await whole.get(f"{path}/dlq/count")).json()
    assert (counted["total"], counted["waiting"]) == (2, 2)
    done = (await whole.post(f"{path}/dlq/replay")).json()
    assert (done["stored"], done["refused"]) == (1, 1)
    again = (await whole.post(f"{path}/dlq/replay", json={"partition": 0, "offsets": [1]})).json()
    assert again["stored"] == 0, "asking twice stores nothing twice"
    assert await world.ask(f"SELECT count(), sum(id) FROM default.{world.name}") == "1\t7"
    problem_of(await whole.get(f"{path}/dlq?after=nonsense"), 422, "invalid")


async def test_a_rewind_and_a_backfill_are_generations(world: PipelineServiceHarness, whole: httpx.AsyncClient) -> None:
    path = await ready(world, whole)
    begun = await whole.post(f"{path}/rewind", json={"to": {"0": 2}})
    assert begun.status_code == 200, begun.text
    generation = begun.json()["generation"]
    assert (generation["number"], generation["kind"], generation["starts"]["0"]) == (2, "live", 2)
    assert begun.headers["etag"] == (await whole.get(path)).headers["etag"]
    late = await whole.post(f"{path}/rewind", json={"to": "earliest"}, headers={"if-match": '"pipeline-1"'})
    problem_of(late, 412, "changed")
    filled = (await whole.post(f"{path}/backfill", json={"from": "earliest", "to": {"0": 3}})).json()["generation"]
    assert (filled["number"], filled["kind"], filled["ends"]) == (3, "backfill", {"0": 3})
    after = (await whole.delete(f"{path}/backfill/3")).json()
    assert [each["retired"] for each in after["generations"]] == [True, False, True]
    for to in ("yesterday", {"x": 1}, {}):
        problem_of(await whole.post(f"{path}/rewind", json={"to": to}), 422, "invalid")
    wrong: Any = {"too": "latest"}
    problem_of(await whole.post(f"{path}/rewind", json=wrong), 400, "malformed")
