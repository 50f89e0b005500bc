"""Random requests: every one is answered, none with an internal error."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from tests.support.http_gateway import (
    MAPPING,
    SOURCE,
    RunningHttpGateway,
    behind_middleware,
    create_pipeline,
    echo,
    problem_of,
    running_http_gateway,
)

from holdfast.vocabulary.random import SeededRandom

SINK = {
    "kind": "clickhouse", "dsn": "http://me:pw@127.0.0.1:9/x", "database": "x", "table": "t", "batchSize": 10,
    "engine": "MergeTree", "orderBy": ["id"], "batchFlushInterval": "2s", "insertRatePerSecond": 1.5,
}  # fmt: skip
SECURE = {
    "topic": "t",
    "brokers": ["h:9092"],
    "security": {"protocol": "SASL_SSL", "mechanism": "PLAIN", "username": "u", "password": "p"},
}
BODIES: list[tuple[str, str, Any]] = [
    ("POST", "", {"name": "a", "description": "b"}),
    ("PUT", "/{id}", {"name": "a", "description": "b"}),
    ("PUT", "/{id}/kafka-config", SECURE),
    ("PUT", "/{id}/clickhouse-config", SINK),
    ("PUT", "/{id}/sink-config", {"kind": "iceberg", "catalogUri": "c", "warehouse": "w", "table": "t"}),
    ("PUT", "/{id}/mapping", {**MAPPING, "version": 3, "ignored": ["x.y"]}),
    ("PUT", "/{id}/filters-config", {"enabled": True, "language": "holdfast", "expression": "a > 1"}),
    ("PUT", "/{id}/sql-config", {"sql": "SELECT * FROM rows"}),
    ("PUT", "/{id}/drift-config", {"unknownFields": "dlq", "dlqRowsKept": 5_000}),
    ("PUT", "/{id}/parts", {"source": SOURCE, "sink": SINK, "mapping": MAPPING, "sql": {"sql": ""}}),
    ("PUT", "/{id}/state", {"desired": "stopped", "replicas": 2}),
    ("PATCH", "/{id}/state", {"desired": "stopped", "replicas": 2}),
    ("POST", "/{id}/scale", {"replicas": 2}),
    ("POST", "/{id}/filters-eval", {"expression": "a > 1", "values": [{"a": 1}, 5, None]}),
    ("POST", "/{id}/rewind", {"to": {"0": 5}, "deletePrevious": False}),
    ("POST", "/{id}/backfill", {"from": "earliest", "to": {"0": 5}}),
    ("POST", "/{id}/dlq/replay", {"offsets": [1, 2], "partition": 0, "limit": 5}),
    ("POST", "/{id}/preview", {"limit": 5, "where": "first", "parts": {"mapping": MAPPING}}),
]
ODD_VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, 1e308, "", " ", "x", "\x00", "\ud7ff",
    "a" * 10_000, "\u202e\u0007", "../../etc/passwd", "'; DROP TABLE x; --", "{{7*7}}", [], {}, [[]], {"": ""}, [None],
    {"a": {"b": []}}, "🦀" * 300, "2026-11-15T08:30:00Z", "earliest", "http://[::1", "http://u:p@h:99999/", "***",
]  # fmt: skip


def mutated(value: Any, rng: Any) -> Any:
    """The value with something odd somewhere in it."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        match rng.randrange(5):
            case 0:
                return {name: each for name, each in value.items() if name != key}
            case 1:
                return {**value, rng.choice(["", "x", key.upper(), key + "\n", "kind"]): rng.choice(ODD_VALUES)}
            case _:
                return {**value, key: mutated(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], mutated(value[at], rng), *value[at + 1 :]]
    return rng.choice(ODD_VALUES)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
async def test_odd_bodies_never_cause_an_internal_error(seed: int) -> None:
    rng = SeededRandom(seed).random
    async with running_http_gateway(bootstrap="127.0.0.1:9") as served:
        path = (await create_pipeline(served.client)).removeprefix("/api/pipelines/")
        for number in range(100):
            method, template, body = rng.choice(BODIES)
            if template.endswith(("/rewind", "/backfill", "/replay", "/preview")) and number % 10:
                continue  # they wait for servers that are not there
            sent = json.dumps(mutated(body, rng))
            headers = {"content-type": "application/json"}
            if rng.random() < 0.2:
                headers["if-match"] = rng.choice(
                    ['"pipeline-1"', "*", '"', 'W/"x"', '"mapping-99999999999999999999"', "a" * 500]
                )
            answer = await served.client.request(
                method, "/api/pipelines" + template.format(id=path), content=sent, headers=headers
            )
            assert answer.status_code < 500 or answer.status_code == 503, (method, template, sent[:500], answer.text)
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
async def test_odd_paths_and_queries_never_cause_an_internal_error(client: httpx.AsyncClient, seed: int) -> None:
    rng = SeededRandom(seed).random
    words = [
        "api",
        "pipelines",
        "..",
        "%2e%2e",
        "%00",
        "%ff",
        "x" * 300,
        "sample",
        "dlq",
        "state",
        "%F0%9F%A6%80",
        "validate",
        "",
        "%2F",
    ]
    for _ in range(200):
        path = "/" + "/".join(rng.choice(words) for _ in range(rng.randrange(6)))
        query = "&".join(
            f"{rng.choice(['limit', 'where', 'after', 'x'])}={rng.choice(['1', '%00', 'x', '-5', '9' * 30])}"
            for _ in range(2)
        )
        method = rng.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW"])
        answer = await client.request(method, f"{path}?{query}")
        assert answer.status_code < 500, (method, path, query, answer.text)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
async def test_noise_on_the_socket_affects_no_other_connection(seed: int) -> None:
    rng = SeededRandom(seed).random
    good = b"POST /x HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    limits: dict[str, Any] = {"head_ms": 2_000, "body_ms": 2_000, "idle_ms": 2_000}
    async with running_http_gateway(factory=behind_middleware(echo), **limits) as served:
        await asyncio.gather(*(_send_noise(served, _noise(rng, good)) for _ in range(15)))
        answer = await served.client.get("/")
        assert answer.status_code == 200


def _noise(rng: Any, good: bytes) -> bytes:
    sent = bytearray(good)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(sent))
        match rng.randrange(2):
            case 0:
                sent[at] = rng.randrange(256)
            case 1:
                del sent[at : at + rng.randrange(1, 8)]
            case _:
                sent[at:at] = rng.randbytes(rng.randrange(1, 8))
    return bytes(sent)


async def _send_noise(served: RunningHttpGateway, sent: bytes) -> None:
    try:
        said = await served.raw(sent)
    except ConnectionError:
        return
    assert not said.startswith(b"HTTP/1.1 5"), (sent, said)


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/api/pipelines"), ("PUT", "/api/pipelines/{id}/mapping"), ("POST", "/v1/confirmations")],
)
async def test_a_body_that_is_not_utf_8_is_malformed(method: str, path: str) -> None:
    async with running_http_gateway(bootstrap="127.0.0.1:9") as served:
        pipeline = (await create_pipeline(served.client)).removeprefix("/api/pipelines/")
        headers = {"content-type": "application/json"}
        for body in (b'{"name": "a\xff"}', b'{"name\xff": "a"}'):
            answer = await served.client.request(method, path.format(id=pipeline), content=body, headers=headers)
            assert problem_of(answer, 400, "malformed")["detail"].startswith("the body is not a JSON object: 'utf-8'")
