"""`holdfast migrate` from SQLite and a folder to PostgreSQL and S3: real servers, real kills, old servers that wake up."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.support.etcd_nodes import EtcdNode
from tests.support.failpoints import FailpointFolder, known_failpoints
from tests.support.object_engines.s3 import s3_url
from tests.support.object_engines.seaweedfs import SeaweedServer
from tests.support.server_process import (
    BROKER_ONLY,
    SHORT_SESSIONS,
    ServeProcess,
    create_topic,
    environment,
    produce,
    read,
    started,
)
from tests.support.store_engines.postgres import PostgresServer
from tests.support.waiting import WAIT_S, until

from holdfast.vocabulary.random import SystemRandom

STEPS = (  # in their order
    *("migrate.claimed", "migrate.target-marked", "migrate.source-closed", "migrate.leases-fenced"),
    *("migrate.source-marked", "migrate.objects-recorded", "migrate.entries-copied", "migrate.verified"),
    *("migrate.decided", "migrate.finished"),
)
KILLED = -9
PARTITIONS = 3


@dataclass(frozen=True)
class Target:
    """An empty schema and an empty prefix."""

    store: str
    objects: str

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--store", self.store, "--objects", self.objects)

    @property
    def to(self) -> tuple[str, ...]:
        return ("--to-store", self.store, "--to-objects", self.objects)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PostgresServer, SeaweedServer]]:
    with (
        PostgresServer(tmp_path_factory.mktemp("postgres")).running() as postgres,
        SeaweedServer(tmp_path_factory.mktemp("s3")).running() as s3,
    ):
        yield postgres, s3


@pytest.fixture
def target(servers: tuple[PostgresServer, SeaweedServer]) -> Target:
    postgres, s3 = servers
    name = f"m_{SystemRandom().token()}"
    return Target(postgres.url(schema=name), s3_url(s3.port, name))


def holdfast(*argv: str, cwd: Path, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    told = [sys.executable, "-m", "holdfast", *argv]
    return subprocess.run(told, capture_output=True, text=True, cwd=cwd, env=environment(**(env or {})), timeout=100)


def commit_offset(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def committed_offset(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        return consumer.committed([TopicPartition(topic, 0)], timeout=WAIT_S)[0].offset
    finally:
        consumer.close()


def leases(node: ServeProcess, *flags: str) -> dict[str, int]:
    """The epoch of each lease that is held."""
    listed = holdfast("leases", "--json", "--data", str(node.data), *flags, cwd=node.directory)
    assert listed.returncode == 0, listed.stderr
    rows: list[dict[str, Any]] = [json.loads(line) for line in listed.stdout.splitlines()]
    return {row["resource"]: row["epoch"] for row in rows}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_moves_to_postgres_and_s3_although_it_is_killed_at_every_step(tmp_path: Path, target: Target) -> None:
    old = ServeProcess(tmp_path, *BROKER_ONLY)
    with started(old):
        create_topic(old.kafka, "orders", PARTITIONS)
        sent = {n: [f"{n}-{each}" for each in range(200)] for n in range(PARTITIONS)}
        for n, values in sent.items():
            produce(old.kafka, "orders", *values, partition=n)
        commit_offset(old.kafka, "billing", "orders", 123)
        before = leases(old)
        refused = holdfast("migrate", "--yes", "--data", str(old.data), *target.to, cwd=tmp_path)
        assert refused.returncode == 3
        assert f"in use by process {old.process.pid}" in refused.stderr
        refused = holdfast("migrate", "--yes", *old_flags(old), *target.to, cwd=tmp_path)
        assert refused.returncode == 2
        assert "in use by agent" in refused.stderr
        assert old.terminate() == 0
    killer = FailpointFolder(tmp_path / "failpoints")
    command = ("migrate", "--yes", "--json", "--from", "sqlite+file", "--to", "postgresql+s3", "--data", str(old.data))
    assert set(STEPS) == {name for name in known_failpoints() if name.startswith("migrate.")}
    for step in STEPS[:-1]:
        killer.arm(step, "kill")
        killed = holdfast(*command, *target.to, cwd=tmp_path, env=killer.environment)
        assert killed.returncode == KILLED, f"{step}: {killed.stderr}"
        killer.disarm()
    half = holdfast("serve", *BROKER_ONLY, "--data", str(tmp_path / "other"), *target.flags, cwd=tmp_path)
    assert half.returncode == 2
    assert "run `holdfast migrate` again to finish" in half.stderr
    done = holdfast(*command, *target.to, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["finished"]
    assert report["unpublished"] == []
    assert report["objects"] >= 1
    assert report["copied_objects"] == 0  # one of the killed runs has, and what is verified is not copied again
    woken = holdfast("serve", *BROKER_ONLY, "--data", str(old.data), cwd=tmp_path)
    assert woken.returncode == 2
    assert "has moved: start servers with --store 'postgresql://" in woken.stderr
    new = ServeProcess(tmp_path, *BROKER_ONLY, *target.flags)
    with started(new):
        for n, values in sent.items():
            assert read(new.kafka, "orders", len(values), partition=n) == values
            assert produce(new.kafka, "orders", "after", partition=n) == [len(values)]
        assert committed_offset(new.kafka, "billing", "orders") == 123
        after = leases(new, *target.flags)
        assert {each for each in before if "orders" in each} <= set(after)
        assert all(after[each] > epoch for each, epoch in before.items() if each in after)
        assert new.terminate() == 0


def old_flags(old: ServeProcess) -> tuple[str, ...]:
    """The same store and objects, as another machine would name them: without the lock of the data directory."""
    return (
        *("--data", str(old.directory / "elsewhere")),
        *("--store", f"sqlite:///{old.data}/store.db", "--objects", f"file://{old.data}/objects"),
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_server_that_was_suspended_ends_when_it_wakes_and_brings_its_wal_along(
    tmp_path: Path, target: Target
) -> None:
    old = ServeProcess(tmp_path, *BROKER_ONLY, *SHORT_SESSIONS)
    with started(old):
        create_topic(old.kafka, "orders")
        produce(old.kafka, "orders", "published", "acknowledged")
        old.freeze()
        moved: list[subprocess.CompletedProcess[str]] = []

        def migrated() -> bool:
            moved.append(holdfast("migrate", "--yes", "--json", *old_flags(old), *target.to, cwd=tmp_path))
            assert moved[-1].returncode in (0, 2), moved[-1].stderr
            return moved[-1].returncode == 0

        until(migrated, what=lambda: moved[-1].stderr, pause_s=1)
        [tail] = json.loads(moved[-1].stdout)["unpublished"]
        assert (tail["topic"], tail["partition"]) == ("orders", 0)
        assert tail["offsets"] >= 2
        old.thaw()
        assert old.ended() == 2
        assert "has moved: start servers with" in old.log
    new = ServeProcess(tmp_path, *BROKER_ONLY, *target.flags)
    with started(new):
        assert read(new.kafka, "orders", 2) == ["published", "acknowledged"]
        assert new.terminate() == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_cluster_leaves_its_embedded_etcd_while_nodes_without_agents_run_the_members(tmp_path: Path) -> None:
    node = EtcdNode(tmp_path, "n1")
    with started(node):
        create_topic(node.kafka, "orders")
        produce(node.kafka, "orders", "a", "b")
        assert node.terminate() == 0
    to = ("--to-store", f"sqlite:///{tmp_path}/new.db", "--to-objects", f"file://{tmp_path}/new")
    told = node.options
    node.options = (*told, "--roles", "api")
    killer = FailpointFolder(tmp_path / "failpoints")
    command = ("migrate", "--yes", "--from", "etcd+file", *told, "--data", str(node.data), *to)
    with started(node):
        killer.arm("migrate.source-marked", "kill")
        killed = holdfast(*command, cwd=tmp_path, env=killer.environment)
        assert killed.returncode == KILLED, killed.stderr
        assert node.terminate() == 0
    with contextlib.ExitStack() as stack:  # the source is closed: it serves nothing, and its member runs
        node.launch()
        stack.callback(node.kill)
        until(lambda: "running the etcd member alone" in node.log, what=lambda: node.log)
        moved = holdfast(*command, cwd=tmp_path)
        assert moved.returncode == 0, moved.stderr
        assert node.terminate() == 0
    new = ServeProcess(tmp_path, *BROKER_ONLY, "--store", to[1], "--objects", to[3])
    new.data = node.data
    with started(new):
        assert read(new.kafka, "orders", 2) == ["a", "b"]
        assert new.terminate() == 0
