"""Scenarios with a topic and a pipeline of their own: a missing table, and records with unmapped fields.

The one rule: nothing is dropped. Records that cannot be written wait, and are written as soon as they can be.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.pipeline.kills.cluster import TOPIC, KillCluster
from tests.pipeline.kills.plan import Fault
from tests.pipeline.kills.process_tree import send
from tests.pipeline.kills.verdict import Tables, Verdict, expected
from tests.pipeline.kills.writer import Writer, amount_of, record
from tests.support.waiting import until

from holdfast.vocabulary.errors import HoldfastError

WITHIN_S = 180.0
RECORDS = 300


@dataclass
class Scenario:
    """A pipeline of its own."""

    cluster: KillCluster
    writer: Writer
    tables: Tables
    path: str

    def await_exact(self) -> Verdict:
        """Until the totals are those of the acknowledged records; then row by row."""
        goal = expected(self.writer.acknowledged)
        until(
            lambda: self.tables.totals() == goal,
            within_s=WITHIN_S,
            what=f"{goal} in {self.tables.name}: {self.cluster.status(self.path)}",
        )
        return self.tables.judged(self.writer.acknowledged)

    def await_blocked(self, why: str) -> None:
        """Until the status is blocked for this reason."""

        def blocked() -> bool:
            status = self.cluster.status(self.path)
            return status.get("state") == "blocked" and any(why in reason for reason in status["reasons"])

        until(blocked, within_s=WITHIN_S, what=f"blocked because {why}: {self.cluster.status(self.path)}")

    def checkpoint(self) -> int:
        """The sum of the checkpoints."""
        return sum(each["checkpoint"] for each in self.cluster.status(self.path)["partitions"])


@contextmanager
def scenario(cluster: KillCluster, name: str, **parts: Any) -> Iterator[Scenario]:
    """A topic, a pipeline and a writer, for the body; the pipeline is stopped and removed after it."""
    topic = cluster.broker.create_topic(name, 2, TOPIC)
    table = topic.replace("-", "_")
    path = cluster.make_pipeline(topic, table, **parts)
    writer = Writer(cluster.broker.bootstrap, topic, per_s=0, poisoned_share=0, seed=1)
    yield Scenario(cluster, writer, Tables(cluster.clickhouse, table), path)
    cluster.http.post(f"{path}/stop")
    until(lambda: _removed(cluster, path), within_s=WITHIN_S, what=f"{path} is removed")


def _removed(cluster: KillCluster, path: str) -> bool:
    try:
        cluster.http.delete(path)
    except HoldfastError:  # its workers have not released it yet
        return False
    return True


def play(cluster: KillCluster, fault: Fault) -> Verdict:
    """The scenario of a fault."""
    return missing_table(cluster) if fault.target == "table" else drift(cluster, fault.action)


def missing_table(cluster: KillCluster) -> Verdict:
    """It blocks, continues when the table is created, blocks when the table is renamed, and continues when it is back."""
    with scenario(cluster, "missing", sink={"createTableIfMissing": False}) as it:
        name = it.tables.name
        it.writer.send([record(n) for n in range(RECORDS)])
        it.await_blocked("does not exist")
        assert it.checkpoint() == 0
        cluster.clickhouse.query(
            f"CREATE TABLE {name} (seq Int64, amount Int64, _pipeline LowCardinality(String), _generation UInt32, "
            "_topic LowCardinality(String), _partition UInt32, _offset UInt64) ENGINE = MergeTree ORDER BY seq "
            "SETTINGS non_replicated_deduplication_window = 10000"
        )
        assert it.await_exact().clean
        until(lambda: it.checkpoint() == RECORDS, within_s=WITHIN_S, what="a checkpoint after the stored rows")
        cluster.clickhouse.query(f"RENAME TABLE {name} TO {name}_away")
        done = it.checkpoint()
        it.writer.send([record(n) for n in range(RECORDS)])
        it.await_blocked("")
        assert it.checkpoint() == done
        cluster.clickhouse.query(f"RENAME TABLE {name}_away TO {name}")
        return it.await_exact()


def drift(cluster: KillCluster, policy: str) -> Verdict:
    """New fields arrive while the driver that should write them is killed: they are handled once, by the policy."""
    with scenario(cluster, f"drift-{policy}", drift={"unknownFields": policy}) as it:
        plain = [b'{"seq": %d, "amount": %d}' % (n, amount_of(n)) for n in range(RECORDS)]
        it.writer.send(list(plain))
        assert it.await_exact().clean
        grown = [b'{"seq": %d, "amount": %d, "city": "c%d"}' % (n, amount_of(n), n) for n in range(RECORDS)]
        cluster.hold("begun")
        it.writer.send(list(grown), poisoned=policy == "dlq")
        tree = cluster.held_at("begun")
        send([tree.driver], signal.SIGKILL)
        cluster.release("begun")
        verdict = it.await_exact()
        _check_policy(it, policy)
        return verdict


def _check_policy(it: Scenario, policy: str) -> None:
    name = it.tables.name
    queries = {
        "add-column": f"SELECT count() AS n, countIf(city = concat('c', toString(seq))) AS m FROM {name} WHERE city IS NOT NULL",
        "overflow": "SELECT count() AS n, countIf(JSONExtractString(_overflow, 'city') = concat('c', toString(seq))) AS m "
        f"FROM {name} WHERE _overflow != ''",
        "dlq": f"SELECT count() AS n, countIf(position(reason, 'city') > 0) AS m FROM {name}_dlq",
    }
    [found] = it.tables.ask(queries[policy])
    assert (int(found["n"]), int(found["m"])) == (RECORDS, RECORDS), (policy, found)
