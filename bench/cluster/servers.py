"""Clusters under measurement: so many agents of Holdfast on one store, and three brokers of Apache Kafka.

A cluster is a Kafka target whose topics have a replication factor and a configuration of their own.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.chaos.levels import LEVELS, create
from tests.support.apache_kafka import kafka_cluster
from tests.support.server_process import ServeProcess, leaders, started
from tests.support.waiting import until

from bench.kafka.processes import cpu_seconds
from bench.kafka.targets import ADMIN_TIMEOUT_S, KafkaTarget

ZONES: Final = ("a", "b", "c")
# A turn writes gigabytes: the objects of its topic go before the disk is full.
_SOON_COLLECTED: Final = ("--set", "upkeep.grace_ms=1000", "--set", "upkeep.trash_interval_ms=1000")

_names: Final = itertools.count(1)


class Cluster(KafkaTarget):
    """Several processes behind one address."""

    def __init__(self, bootstrap: str, pids: Sequence[int], make: "MakeTopic") -> None:
        super().__init__(bootstrap, pids[0])
        self.pids, self._make = pids, make

    def create(self, partitions: int) -> str:
        """A topic whose every partition has a leader."""
        topic = f"t{next(_names)}"
        self._make(self.bootstrap, topic, partitions)
        until(lambda: -1 not in leaders(self.bootstrap, topic).values(), what=f"every partition of {topic} is led")
        return topic

    def cpu_s(self) -> float:
        """Processor time of all processes so far."""
        return sum(cpu_seconds(pid) for pid in self.pids)

    def consume_from(self, rack: str, topic: str, partitions: int, records: int, seconds: float) -> float:
        """MB/s of a consumer in this zone; none: of a consumer that has no zone."""
        settings = [f"client.rack={rack}"] if rack else []
        done = self._load("consume", topic, partitions, records, seconds, *settings)
        return float(done["bytes"]) / float(done["seconds"]) / 1e6


MakeTopic = Callable[[str, str, int], None]


def topic_of(level: str) -> MakeTopic:
    """Makes topics of a durability level."""

    def make(bootstrap: str, topic: str, partitions: int) -> None:
        create(bootstrap, topic, partitions, LEVELS[level])

    return make


def _three_copies(bootstrap: str, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted = NewTopic(topic, partitions, 3, config={"min.insync.replicas": "2"})
    client.create_topics([wanted])[topic].result(ADMIN_TIMEOUT_S)


@contextmanager
def holdfast_agents(
    directory: Path, agents: int, *, level: str = "local", objects: str = "", http: bool = False
) -> Iterator[tuple[Cluster, list[ServeProcess]]]:
    """Agents with their defaults on one SQLite file, each in a zone of its own; `objects`: a URL instead of a folder."""
    shared = (
        *("--store", f"sqlite:///{directory}/store.db", "--objects", objects or f"file://{directory}/objects"),
        *("--roles", "api,agent"),
        *_SOON_COLLECTED,
        *(() if http else ("--http", "off")),
    )
    nodes = [
        ServeProcess(directory / f"agent-{number}", "--agent-id", f"agent-{number}", "--zone", ZONES[number], *shared)
        for number in range(agents)
    ]
    with started(*nodes):
        bootstrap = ",".join(node.kafka for node in nodes)
        yield Cluster(bootstrap, [node.process.pid for node in nodes], topic_of(level)), nodes


@contextmanager
def apache_brokers(directory: Path) -> Iterator[Cluster]:
    """Three brokers, three copies of everything, acks=all, Apache's default flush."""
    config = {"log.segment.delete.delay.ms": "1000", "min.insync.replicas": "2"}
    with kafka_cluster(directory, config=config) as brokers:
        bootstrap = ",".join(broker.bootstrap for broker in brokers)
        yield Cluster(bootstrap, [broker.pid for broker in brokers], _three_copies)
