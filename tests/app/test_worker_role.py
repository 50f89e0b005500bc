"""The worker role of a real server: there without Spark being started, gone with it, refused where it makes no sense."""

import asyncio
from pathlib import Path

import pytest
from tests.support.server_process import ServeProcess, started

from holdfast.app.config import ServeSettings, effective_settings
from holdfast.app.worker_role import why_no_worker, worker_role
from holdfast.gateways.kafka.settings import KafkaSettings
from holdfast.pipeline.catalog.worker_status import WorkerRecord, list_workers
from holdfast.security.oauth_settings import OAuthSettings
from holdfast.stores.memory import MemoryStore
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SystemRandom


@pytest.mark.parametrize("sasl", ["SCRAM-SHA-512,OAUTHBEARER", "OAUTHBEARER"])
def test_a_node_with_logins_runs_pipelines(tmp_path: Path, sasl: str) -> None:
    settings = ServeSettings(
        data=tmp_path,
        store="sqlite:///x",
        objects="",
        kafka=KafkaSettings(sasl=sasl),
        oauth=OAuthSettings(jwks="{}", issuer="*", audience="*"),
    )
    assert why_no_worker(settings) == ""


@pytest.fixture
def node(tmp_path: Path) -> ServeProcess:
    return ServeProcess(tmp_path / "node")


def workers_of(node: ServeProcess, count: int) -> list[WorkerRecord]:
    """The workers in the node's store, once there are so many."""

    async def look() -> list[WorkerRecord]:
        clock = RealClock()
        url = f"sqlite:///{node.data}/store.db"
        async with open_store(url, clock=clock, random=SystemRandom()) as store, asyncio.timeout(60):
            while len(found := await list_workers(store)) != count:
                await clock.sleep_ms(20)
            return found

    return asyncio.run(look())


def children(pid: int) -> list[str]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{each}/cmdline").read_text().replace("\0", " ") for each in found]


def test_a_server_is_a_worker_and_starts_no_spark_before_a_pipeline_is(node: ServeProcess) -> None:
    with started(node):
        [worker] = workers_of(node, 1)
        assert node.out.splitlines()[0].split("(")[1].startswith(worker.id)
        assert (worker.pid, worker.mode, worker.driver, worker.able) == (node.process.pid, "leases", "none", True)
        assert worker.lease_until_ms is not None
        assert children(worker.pid) == []
        maps = Path(f"/proc/{worker.pid}/maps").read_text()
        assert "pyspark" not in maps
        assert "libarrow" not in maps
        assert node.terminate() == 0
        assert workers_of(node, 0) == []


def test_a_worker_without_leases_says_so(tmp_path: Path) -> None:
    node = ServeProcess(tmp_path, "--no-leases", "--worker-id", "w.1")
    with started(node):
        [worker] = workers_of(node, 1)
        assert (worker.id, worker.mode, worker.lease_until_ms) == ("w.1", "no-leases", None)
        assert "without leases" in node.log


def settings_of(*flags: tuple[str, object], env: dict[str, str] | None = None) -> ServeSettings:
    return effective_settings(flags=dict(flags), environment=env or {}, directory=Path("/nowhere")).settings


def test_flags_and_variables_reach_worker_and_spark() -> None:
    settings = settings_of(
        ("worker.interval_ms", "2000"),
        ("worker.lease_ttl_ms", "9000"),
        ("worker.no_leases", True),
        ("spark.conf", "spark.executor.memory=2g 'spark.app.name=a b'"),
        env={"HOLDFAST_MAX_SLOTS_PER_PIPELINE": "3", "HOLDFAST_SPARK_MASTER": "spark://host:7077"},
    )
    assert (settings.worker.interval_ms, settings.worker.lease_ttl_ms) == (2_000, 9_000)
    assert (settings.worker.leases, settings.worker.slots_per_pipeline_max) == (False, 3)
    assert settings.spark.master == "spark://host:7077"
    assert settings.spark.conf == {"spark.executor.memory": "2g", "spark.app.name": "a b"}


def test_a_ttl_below_twice_the_interval_is_refused_with_the_reason() -> None:
    with pytest.raises(
        InvalidError, match=r"worker.lease_ttl_ms \(from flag --worker-lease-ttl\).*at least 10000, twice"
    ):
        settings_of(("worker.lease_ttl_ms", "9999"))
    assert settings_of(("worker.lease_ttl_ms", "10000")).worker.lease_ttl_ms == 10_000


@pytest.mark.parametrize("wrong", ["spark.a", "'spark.a=1", "spark.a=secret spark.b", "executor.memory=2g"])
def test_a_wrong_spark_setting_is_refused_without_its_value(wrong: str) -> None:
    with pytest.raises(InvalidError) as refused:
        settings_of(("spark.conf", wrong))
    assert "secret" not in str(refused.value)


def test_spark_settings_are_never_shown() -> None:
    shown = effective_settings(
        flags={"spark.conf": "spark.hadoop.fs.s3a.secret.key=hush", "spark.remote": "sc://host:1/;token=hush"},
        environment={},
        directory=Path("/nowhere"),
    ).shown
    assert "hush" not in str(shown)
    assert {each.name: each.value for each in shown}["spark.conf"] == "***"


async def test_without_spark_one_line_says_so_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("holdfast.app.worker_role._REQUIRED_MODULES", ("pyspark_of_another_world",))
    clock, random = RealClock(), SystemRandom()
    settings = settings_of(("store", "sqlite:////nowhere/store.db"))
    async with (
        MemoryStore.open(clock=clock, random=random) as store,
        worker_role(settings, name="a", bootstrap="", store=store, clock=clock, random=random) as role,
    ):
        await role.stop()
        assert await list_workers(store) == []
    [line] = [each for each in caplog.messages if "worker role disabled" in each]
    assert "pyspark_of_another_world not installed" in line
    assert "pip install '.[spark]'" in line


async def test_a_store_in_memory_has_no_worker(caplog: pytest.LogCaptureFixture) -> None:
    clock, random = RealClock(), SystemRandom()
    async with (
        MemoryStore.open(clock=clock, random=random) as store,
        worker_role(
            settings_of(("store", "memory:")), name="a", bootstrap="", store=store, clock=clock, random=random
        ) as role,
    ):
        await role.stop()
    assert any("memory, which the Spark driver cannot reach" in each for each in caplog.messages)
