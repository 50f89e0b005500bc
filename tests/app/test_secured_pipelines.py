"""A node with logins and TLS runs pipelines, and nothing that Spark writes or shows has a secret of theirs."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import certificate
from tests.support.driver_process import START_WITHIN_S
from tests.support.secured_server import PASSWORD, SecuredServer
from tests.support.server_process import produce
from tests.support.waiting import until

from holdfast.pipeline.workers.process_session import members
from holdfast.security.cluster_secret import cluster_secret
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

# In the short form a JVM with a login is that of tests/spark/test_secured_listener.py.
pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(300)]

RECORDS = 50
MAPPING = {"columns": [{"fieldPath": "id", "column": "id", "type": "Int64", "nullable": False}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    directory = tmp_path_factory.mktemp("secured")
    (directory / "events").mkdir()
    cert, key = certificate(directory, "node")
    shown = (
        f"spark.eventLog.enabled=true spark.eventLog.compress=false spark.eventLog.dir=file://{directory / 'events'}"
    )
    served = SecuredServer(
        directory,
        *("--sasl", "SCRAM-SHA-512", "--super-users", "User:admin"),
        *("--kafka-tls-cert", str(cert), "--kafka-tls-key", str(key)),
        *("--spark-master", "local[2]", "--set", "spark.quick_start=true", "--set", f"spark.conf={shown}"),
        *("--set", f"pipelines.secret_dir={directory / 'data' / 'clickhouse'}"),
        *("--worker-interval", "500", "--set", "worker.settle_ms=200", "--log-level", "debug"),
    )
    served.start()
    try:
        served.administer(["admin"])
        yield served
    finally:
        served.kill()


def login(server: SecuredServer) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "admin",
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(server.directory / "node.pem"),
    }


def start_pipeline(server: SecuredServer, name: str, parts: dict[str, Any]) -> None:
    with server.as_user("admin") as client:
        client.post("/api/pipelines", json={"name": name}).raise_for_status()
        saved = client.put(f"/api/pipelines/{name}/parts", json=parts)
        assert saved.status_code == 200, saved.text
        started = client.post(f"/api/pipelines/{name}/start")
        assert started.is_success, started.text


def rows_stored(server: SecuredServer, name: str) -> int:
    with server.as_user("admin") as client:
        return sum(each["checkpoint"] for each in client.get(f"/api/pipelines/{name}/status").json()["partitions"])


async def node_password(server: SecuredServer) -> str:
    clock, random = RealClock(), SystemRandom()
    async with open_store(f"sqlite:///{server.data / 'store.db'}", clock=clock, random=random, create=False) as store:
        return (await cluster_secret(store, clock=clock, random=random)).node_password


def clickhouse_password(server: SecuredServer) -> Path:
    return server.data / "clickhouse" / "password"


def clickhouse_dsn(server: SecuredServer) -> str:
    """The embedded ClickHouse by its address, and by a reference to the file that has its password."""
    found = re.search(r"http://(127\.0\.0\.1:\d+) -u", server.out)
    assert found is not None
    return f"http://default:${{file:{clickhouse_password(server)}}}@{found[1]}"


def driver_processes(server: SecuredServer) -> list[int]:
    """The driver, its JVM and its Python workers: each driver has a session of its own."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    return [pid for child in children for pid in members(int(child))]


def shown_to_others(server: SecuredServer) -> str:
    """What Spark and the server write about a pipeline: logs, event logs (plans and configuration), process lists."""
    lines = [Path(f"/proc/{pid}/cmdline").read_text() for pid in driver_processes(server)]
    events = [each.read_text() for each in (server.directory / "events").rglob("*") if each.is_file()]
    assert any("physicalPlanDescription" in each for each in events)
    return "\n".join((server.log, server.out, *lines, *events))


def test_pipelines_run_on_a_node_with_logins(server: SecuredServer) -> None:
    produce(server.kafka, "orders", *(f'{{"id": {number}}}' for number in range(RECORDS)), **login(server))
    sink = {"kind": "clickhouse", "table": "orders", "dsn": clickhouse_dsn(server)}
    start_pipeline(server, "orders", {"source": {"topic": "orders"}, "sink": sink, "mapping": MAPPING})
    until(
        lambda: rows_stored(server, "orders") == RECORDS,
        within_s=START_WITHIN_S,
        pause_s=0.3,
        what=lambda: server.log[-4_000:],
    )
    assert len(driver_processes(server)) > 1
    shown = shown_to_others(server)
    stored = b"".join(each.read_bytes() for each in server.data.glob("store.db*") if each.is_file())
    for secret in (asyncio.run(node_password(server)), clickhouse_password(server).read_text().strip()):
        assert secret not in shown
        assert secret.encode() not in stored
    with server.as_user("admin") as client:
        assert sink["dsn"] in client.get("/api/pipelines/orders/parts").text
