"""Secrets that users give to pipelines are nowhere in plain text: not in the store's files, logs, answers or process lists."""

import json
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import Run, run  # noqa: F401 (a fixture)
from tests.support.http_gateway import running_http_gateway
from tests.support.server_process import ServeProcess

from holdfast.pipeline.catalog.keys import SECRET_PREFIXES
from holdfast.security.master_keys import new_key_text, parse_master_keys
from holdfast.security.sealed_store import SealedStore
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

SECRETS = ("planted-kafka-s3cret", "planted-registry-s3cret", "planted-dsn-s3cret")
SOURCE = {
    "topic": "orders",
    "brokers": ["127.0.0.1:1"],
    "security": {
        "protocol": "SASL_PLAINTEXT",
        "mechanism": "PLAIN",
        "username": "ann",
        "password": SECRETS[0],
    },
    "format": "avro",
    "schemaRegistry": {"url": "http://127.0.0.1:1", "user": "ann", "password": SECRETS[1]},
}
SINK = {"kind": "clickhouse", "dsn": f"http://ann:{SECRETS[2]}@127.0.0.1:1/db", "table": "orders"}
MAPPING = {"columns": [{"fieldPath": "id", "column": "id", "type": "Int64", "nullable": False}]}

PARTS = "/api/pipelines/orders/parts"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """A server with a pipeline, whose data directory an older release has left open to others."""
    directory = tmp_path_factory.mktemp("secrets")
    (directory / "data").mkdir(mode=0o755)
    (directory / "data" / "store.db").touch(mode=0o644)
    served = ServeProcess(
        directory, "--clickhouse", "off", "--roles", "api,agent", "--log-level", "debug", own_interpreter=True
    )
    served.start()
    try:
        call(served, "POST", "/api/pipelines", {"name": "orders"})
        call(served, "PUT", PARTS, {"source": SOURCE, "sink": SINK, "mapping": MAPPING})
        yield served
    finally:
        served.kill()


def call(served: ServeProcess, method: str, path: str, body: Any = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{served.http}{path}", data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def planted(text: bytes | str) -> list[str]:
    """The secrets that are in a text."""
    found = text if isinstance(text, bytes) else text.encode()
    return [each for each in SECRETS if each.encode() in found]


def files(directory: Path) -> Iterator[Path]:
    return (each for each in directory.rglob("*") if each.is_file())


def test_no_file_of_the_server_has_them(server: ServeProcess) -> None:
    assert {
        each.name: planted(each.read_bytes()) for each in files(server.directory) if planted(each.read_bytes())
    } == {}


def test_no_answer_has_them(server: ServeProcess) -> None:
    for path in ("/api/pipelines/orders", PARTS, "/api/status", "/metrics"):
        assert planted(call(server, "GET", path)) == []
    assert call(server, "GET", PARTS).count("***") == len(SECRETS)


def test_no_process_list_has_them_nor_the_key(server: ServeProcess) -> None:
    key = (server.data / "master-key").read_bytes().strip()
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = each.read_bytes()
        except OSError:
            continue
        assert planted(line) == []
        assert key not in line
    assert key.decode() not in server.log + server.out


def test_the_directory_and_the_store_are_its_owners_alone(server: ServeProcess) -> None:
    assert stat.S_IMODE(server.data.stat().st_mode) == 0o700
    for each in (server.data / "master-key", *server.data.glob("store.db*")):
        assert stat.S_IMODE(each.stat().st_mode) & 0o077 == 0, each.name


def test_a_key_is_rotated_under_a_running_server(server: ServeProcess, run: Run) -> None:  # noqa: F811
    path = server.data / "master-key"
    old = path.read_text()
    path.write_text(run("secrets", "generate-key").text + old)
    server.terminate()
    server.start()  # every node has the new key, and the old one, before anything is sealed with it
    rotated = run("secrets", "rotate", "--data", str(server.data)).text
    assert rotated.startswith("4 records sealed with master key"), "three parts and a revision"
    assert run("secrets", "rotate", "--data", str(server.data)).text.startswith("0 records")
    status = run("secrets", "status", "--data", str(server.data), "--json").rows
    assert [(each["records"], each["current"]) for each in status] == [(4, "yes")]
    assert call(server, "GET", PARTS).count("***") == len(SECRETS)
    path.write_text(path.read_text().removesuffix(old))
    path.chmod(0o600)


async def test_a_node_without_the_key_says_which_one_it_needs() -> None:
    clock, random = RealClock(), SystemRandom()
    async with open_store("memory:", clock=clock, random=random) as store:
        keys = parse_master_keys("test keys", new_key_text())
        sealed = SealedStore(store, keys, prefixes=SECRET_PREFIXES, random=random)
        async with running_http_gateway(store=sealed) as served:
            made = await served.client.post("/api/pipelines", json={"name": "orders"})
            assert made.status_code == 201
            assert (await served.client.put(PARTS, json={"sink": SINK})).status_code == 200
        async with running_http_gateway(
            store=SealedStore(store, None, prefixes=SECRET_PREFIXES, random=random)
        ) as served:
            refused = await served.client.get(PARTS)
            assert refused.status_code == 503
            assert f"sealed with master key {keys.current}, which this node does not have" in refused.text
