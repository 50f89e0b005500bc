"""OpenAPI, a page, health, and metrics that Prometheus can read."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from openapi_spec_validator import validate
from prometheus_client.parser import text_string_to_metric_families
from tests.support.http_gateway import RunningHttpGateway, problem_of, running_http_gateway
from tests.support.server_process import ServeProcess, produce, started

from holdfast.gateways.http.health import HealthCheck, store_check
from holdfast.gateways.http.metrics.exposition import MetricFamily, render_exposition
from holdfast.gateways.http.problems import PROBLEM_TYPES
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.vocabulary.errors import UnavailableError

PAGE = Path(__file__).parents[3] / "docs" / "http.md"


async def test_the_document_is_valid_and_has_every_route(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    validate(document)
    assert document["openapi"].startswith("3.1")
    routes = {(path, method) for path, each in document["paths"].items() for method in each}
    assert ("/api/pipelines/{pipeline}/clickhouse-config", "put") in routes
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            refused = operation["responses"]["default"]["content"]["application/problem+json"]["schema"]
            assert refused == {"$ref": "#/components/schemas/Problem"}, (method, path)
            assert operation["summary"]
    shown = document["paths"]["/api/pipelines/{pipeline}/kafka-config"]["get"]["responses"]["200"]["content"]
    assert shown["application/json"]["schema"] == {"$ref": "#/components/schemas/KafkaConfig"}
    assert {"TopicConfig", "Check"} <= set(document["components"]["schemas"]), "names that were published stay"
    body = document["paths"]["/api/pipelines/{pipeline}/mapping"]["put"]["requestBody"]
    assert body["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Mapping"}


async def test_every_route_of_the_document_is_in_the_docs(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    told = PAGE.read_text()
    missing = [path for path in document["paths"] if path.replace("{pipeline}", "{id}") not in told]
    assert not missing


async def test_the_page_loads_nothing_from_other_hosts(client: httpx.AsyncClient) -> None:
    answer = await client.get("/")
    assert answer.headers["content-type"].startswith("text/html")
    assert "/api/pipelines/{pipeline}/rewind" in answer.text
    assert not re.findall(r"https?://|<script", answer.text)


def test_every_kind_of_problem_is_in_the_docs() -> None:
    told = PAGE.read_text()
    assert not [kind.name for kind in PROBLEM_TYPES if f"`{kind.name}`" not in told]


async def test_an_unknown_path_and_a_wrong_method_are_problems(client: httpx.AsyncClient) -> None:
    problem_of(await client.get("/api/nothing"), 404, "not-found")
    problem_of(await client.get("/%00%ff"), 404, "not-found")
    wrong = await client.post("/api/workers")
    problem_of(wrong, 405, "method-not-allowed")
    assert wrong.headers["allow"] == "GET"
    assert (await client.put("/api/pipelines/x/state/y")).status_code == 404
    assert (await client.head("/live")).status_code == 200


async def test_a_missing_package_is_named(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lacks(self: object) -> None:
        raise ModuleNotFoundError("No module named 'clickhouse_connect'", name="clickhouse_connect")

    monkeypatch.setattr(PipelineStore, "list", lacks)
    said = problem_of(await client.get("/api/pipelines"), 503, "unavailable")
    assert "clickhouse_connect" in said["detail"]


async def test_ready_is_200_when_every_check_passes_and_503_with_reasons_otherwise() -> None:
    away = ""

    async def ask() -> str:
        if away:
            raise UnavailableError("the store", away)
        return ""

    async def joined() -> str:
        return "it has lost its session" if away else ""

    async with running_http_gateway(checks=[HealthCheck("store", ask), HealthCheck("agent", joined)]) as served:
        answer = await served.client.get("/ready")
        assert answer.status_code == 200
        assert answer.json()["checks"] == [
            {"name": "store", "ok": True, "reason": ""},
            {"name": "agent", "ok": True, "reason": ""},
        ]
        away = "connection refused"
        answer = await served.client.get("/ready")
        said = problem_of(answer, 503, "not-ready")
        assert said["checks"][0] == {
            "name": "store",
            "ok": False,
            "reason": "the store is unavailable: connection refused",
        }
        assert said["checks"][1]["reason"] == "it has lost its session"
        assert answer.headers["retry-after"] == "1"
        assert (await served.client.get("/live")).status_code == 200, "a process that waits for its store lives"
        away = ""
        assert (await served.client.get("/ready")).status_code == 200


async def test_a_store_that_does_not_answer_is_not_waited_for() -> None:
    import asyncio

    class Silent:
        async def get(self, key: str) -> None:
            await asyncio.Event().wait()

    store: Any = Silent()
    async with running_http_gateway(checks=[store_check(store)], ready_ms=50) as served:
        said = problem_of(await served.client.get("/ready"), 503, "not-ready")
        assert said["checks"][0]["reason"] == "no response within 50 ms"


async def test_metrics_go_on_when_a_part_of_them_cannot_be_read() -> None:
    async def fails() -> list[MetricFamily]:
        raise UnavailableError("the store", "away")

    async with running_http_gateway(metrics=[fails]) as served:
        page = (await served.client.get("/metrics")).text
        assert "holdfast_metrics_missing 1" in page
        assert "holdfast_http_requests_under_way 1" in page


async def test_requests_are_counted_by_route_and_not_by_path(served: RunningHttpGateway) -> None:
    for n in range(3):
        await served.client.get(f"/api/pipelines/none-{n}")
        await served.client.get(f"/no/such/path/{n}")
    families = {each.name: each for each in text_string_to_metric_families((await served.client.get("/metrics")).text)}
    counted = {tuple(sample.labels.values()): sample.value for sample in families["holdfast_http_requests"].samples}
    assert counted == {("GET", "", "404"): 6.0}
    buckets = [s for s in families["holdfast_http_request_seconds"].samples if s.labels.get("le") == "+Inf"]
    assert [sample.value for sample in buckets] == [6.0]


def test_labels_and_help_cannot_break_the_page() -> None:
    name = 'a"b\\c\nd'
    page = render_exposition([MetricFamily("x", "gauge", "one\ntwo \\ three", [({"pipeline": name}, 1.5)])]).decode()
    (family,) = text_string_to_metric_families(page)
    assert family.samples[0].labels == {"pipeline": name}
    assert family.samples[0].value == 1.5
    assert len(page.splitlines()) == 3


def test_a_real_server_is_ready_and_counts(tmp_path: Path) -> None:
    node = ServeProcess(tmp_path / "node")
    with started(node):
        produce(node.kafka, "orders", "a", "b")
        with httpx.Client(base_url=node.http, timeout=60) as client:
            assert [each["name"] for each in client.get("/ready").json()["checks"]] == ["store", "agent"]
            made = client.post("/api/pipelines", json={"name": "orders"})
            assert made.status_code == 201
            families = {each.name: each for each in text_string_to_metric_families(client.get("/metrics").text)}
        assert families["holdfast_kafka_requests"].samples[0].value > 0
        assert families["holdfast_cluster_topics"].samples[0].value == 1
        assert families["holdfast_wal_fsyncs"].samples[0].value > 0
        assert families["holdfast_metrics_missing"].samples[0].value == 0
        log = node.log
        assert "holdfast.http.access: request method=POST path=/api/pipelines status=201" in log
        assert node.terminate() == 0
