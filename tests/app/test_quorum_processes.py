"""Three `holdfast serve` processes and a topic at quorum: any of them may die with its disk, and nothing acknowledged is lost."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import KafkaError, Message, Producer
from tests.support.server_process import (
    BROKER_ONLY,
    SHORT_SESSIONS,
    ServeProcess,
    create_topic,
    leaders,
    produce,
    read,
    started,
)
from tests.support.waiting import WAIT_S, until

from holdfast.contracts.validation import prefix_end
from holdfast.log.keys import REPLICA_SETS, WALS
from holdfast.log.replica_sets import ReplicaSet
from holdfast.stores.urls import open_store
from holdfast.testing.harness import StoreHarness
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

PARTITIONS = 3


def node_number(node: ServeProcess) -> int:
    return int(node.out.partition(", node ")[2].partition(" ")[0])


def until_leading(node: ServeProcess, bootstrap: str) -> None:
    until(lambda: node_number(node) in leaders(bootstrap, "orders").values(), what=f"node {node.directory.name} leads")


def until_in_sync(url: str) -> None:
    """Every partition has three copies on disks that are there: until then the next one may be one too many."""

    async def in_sync() -> bool:
        async with open_store(url, clock=RealClock(), random=SystemRandom()) as store:
            live = {entry.key.removeprefix(WALS) for entry in (await store.scan(WALS, prefix_end(WALS))).entries}
            found = (await store.scan(REPLICA_SETS, prefix_end(REPLICA_SETS))).entries
        sets = [msgspec.json.decode(entry.value, type=ReplicaSet) for entry in found]
        return bool(sets) and all(len(live.intersection(each.in_sync)) == 3 for each in sets)

    until(lambda: asyncio.run(in_sync()), what="every partition has three replicas in sync")


class Stream:
    """An idempotent producer that goes on through whatever happens."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
        self._sent = 0
        self._failed: list[KafkaError] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, "linger.ms": 1}
        )

    def send(self, count: int) -> None:
        """Send so many to each partition, and wait until all are acknowledged."""
        for _ in range(count):
            for partition in range(PARTITIONS):
                value = f"{partition}/{self._sent}"
                self._producer.produce("orders", value.encode(), partition=partition, on_delivery=self._answered)
            self._sent += 1
            self._producer.poll(0)
        assert self._producer.flush(WAIT_S) == 0
        assert self._failed == []

    def _answered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(error)
            return
        partition, value = message.partition(), message.value()
        assert partition is not None
        assert value is not None
        self.acknowledged[partition].append(value.decode())

    def check(self, bootstrap: str) -> None:
        """Every partition has what was acknowledged, each record once and in order."""
        for partition, values in self.acknowledged.items():
            assert read(bootstrap, "orders", len(values), partition=partition) == values


@pytest.mark.long
@pytest.mark.parametrize("engine", ["postgres", pytest.param("sqlite", marks=pytest.mark.long)])
async def test_agents_die_one_after_the_other_with_their_disks(harness: StoreHarness, tmp_path: Path) -> None:
    def steps() -> None:
        shared = ("--store", harness.url, "--objects", f"file://{tmp_path}/objects", *SHORT_SESSIONS)
        nodes = {
            name: ServeProcess(tmp_path / name, *BROKER_ONLY, "--agent-id", name, *shared)
            for name in ("ann", "bob", "carol")
        }
        with started(*nodes.values()):
            everybody = ",".join(each.kafka for each in nodes.values())
            create_topic(everybody, "orders", PARTITIONS, 3)
            until(lambda: -1 not in leaders(everybody, "orders").values(), what="every partition has a leader")
            stream = Stream(everybody)
            stream.send(50)
            for name in ("ann", "bob"):
                node = nodes[name]
                node.kill()
                shutil.rmtree(node.data)  # and its disk is gone
                stream.send(50)
                stream.check(everybody)
                node.start()
                until_leading(node, everybody)
                until_in_sync(harness.url)
                stream.send(20)
            stream.check(everybody)
            for node in nodes.values():
                node.kill()  # all at once
            for node in nodes.values():
                node.start()
            until(lambda: -1 not in leaders(everybody, "orders").values(), what="every partition has a leader")
            stream.send(10)
            stream.check(everybody)
            assert nodes["carol"].terminate() == 0
            produce(everybody, "orders", "after a graceful stop")

    await asyncio.to_thread(steps)


@pytest.mark.parametrize("engine", ["sqlite"])
async def test_two_die_with_their_disks_and_an_operator_lets_the_third_go_on(
    harness: StoreHarness, tmp_path: Path
) -> None:
    def steps() -> None:
        shared = ("--store", harness.url, "--objects", f"file://{tmp_path}/objects", *SHORT_SESSIONS)
        nodes = {
            name: ServeProcess(tmp_path / name, *BROKER_ONLY, "--agent-id", name, *shared)
            for name in ("ann", "bob", "carol")
        }
        with started(*nodes.values()):
            everybody, carol = ",".join(each.kafka for each in nodes.values()), nodes["carol"]
            create_topic(everybody, "orders", PARTITIONS, 3)
            until(lambda: -1 not in leaders(everybody, "orders").values(), what="every partition has a leader")
            stream = Stream(everybody)
            stream.send(50)
            for name in ("ann", "bob"):
                nodes[name].kill()
                shutil.rmtree(nodes[name].data)
                if name == "ann":
                    stream.send(50)  # which the third has, too: a majority is both that are left
            until(lambda: "replicas must answer (to seal)" in carol.log, what="the third waits for them")
            argv = [sys.executable, "-m", "holdfast", "topic", "config", "orders", "--bootstrap", carol.kafka]
            allow = [*argv, "--set", "unclean.leader.election.enable=true"]
            subprocess.run(allow, check=True, timeout=WAIT_S)
            until(
                lambda: set(leaders(carol.kafka, "orders").values()) == {node_number(carol)},
                what="the third leads all",
            )
            assert "unclean takeover of partition orders" in carol.log
            stream.check(carol.kafka)  # nothing that was acknowledged is missing
            for name in ("ann", "bob"):
                nodes[name].start()
            subprocess.run([*argv, "--unset", "unclean.leader.election.enable"], check=True, timeout=WAIT_S)
            stream.send(20)
            stream.check(everybody)

    await asyncio.to_thread(steps)
