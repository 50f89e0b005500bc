"""Scenes with a topic and a pipeline of their own: a table that is not there, and records with fields nobody knew.

The one rule: nothing is dropped. What cannot be written waits, and goes on by itself when it can.
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
from tests.support.broker import until

from holdfast.vocabulary.errors import HoldfastError

WITHIN_S = 180.0
RECORDS = 300


@dataclass
class Scenario:
    """A pipeline of its own."""

    town: KillCluster
    writer: Writer
    tables: Tables
    path: str

    def await_exact(self) -> Verdict:
        """Until the totals are those of what was acknowledged; then row by row."""
        wanted = expected(self.writer.acknowledged)
        until(
            lambda: self.tables.totals() == wanted,
            timeout_s=WITHIN_S,
            what=f"{wanted} in {self.tables.name}: {self.town.status(self.path)}",
        )
        return self.tables.judged(self.writer.acknowledged)

    def await_blocked(self, why: str) -> None:
        """Until the status says that something is in the way, and what."""

        def blocked() -> bool:
            status = self.town.status(self.path)
            return status.get("state") == "blocked" and any(why in reason for reason in status["reasons"])

        until(blocked, timeout_s=WITHIN_S, what=f"blocked because {why}: {self.town.status(self.path)}")

    def checkpoint(self) -> int:
        """How far the registry says it is."""
        return sum(each["checkpoint"] for each in self.town.status(self.path)["partitions"])


@contextmanager
def scenario(town: KillCluster, name: str, **parts: Any) -> Iterator[Scenario]:
    """A topic, a pipeline and a writer, for the body; the pipeline is stopped and removed after it."""
    topic = town.broker.create_topic(name, 2, TOPIC)
    table = topic.replace("-", "_")
    path = town.make_pipeline(topic, table, **parts)
    writer = Writer(town.broker.bootstrap, topic, per_s=0, poisoned_share=0, seed=1)
    yield Scenario(town, writer, Tables(town.clickhouse, table), path)
    town.http.post(f"{path}/stop")
    until(lambda: _removed(town, path), timeout_s=WITHIN_S, what=f"{path} is removed")


def _removed(town: KillCluster, path: str) -> bool:
    try:
        town.http.delete(path)
    except HoldfastError:  # its workers have not let it go yet
        return False
    return True


def play(town: KillCluster, fault: Fault) -> Verdict:
    """The scene of a fault."""
    return missing_table(town) if fault.target == "table" else drift(town, fault.action)


def missing_table(town: KillCluster) -> Verdict:
    """It blocks, goes on when the table is there, blocks when the table goes away under it, and goes on when it is back."""
    with scenario(town, "missing", sink={"createTableIfMissing": False}) as it:
        name = it.tables.name
        it.writer.send([record(n) for n in range(RECORDS)])
        it.await_blocked("is not there")
        assert it.checkpoint() == 0
        town.clickhouse.query(
            f"CREATE TABLE {name} (seq Int64, amount Int64, _generation UInt32, _topic LowCardinality(String), "
            "_partition UInt32, _offset UInt64) ENGINE = MergeTree ORDER BY seq "
            "SETTINGS non_replicated_deduplication_window = 10000"
        )
        assert it.await_exact().clean
        until(
            lambda: it.checkpoint() == RECORDS, timeout_s=WITHIN_S, what="a checkpoint behind the rows that are there"
        )
        town.clickhouse.query(f"RENAME TABLE {name} TO {name}_away")
        done = it.checkpoint()
        it.writer.send([record(n) for n in range(RECORDS)])
        it.await_blocked("")
        assert it.checkpoint() == done
        town.clickhouse.query(f"RENAME TABLE {name}_away TO {name}")
        return it.await_exact()


def drift(town: KillCluster, policy: str) -> Verdict:
    """New fields come while the driver that is to write them is killed: they are handled once, by the policy."""
    with scenario(town, f"drift-{policy}", drift={"unknownFields": policy}) as it:
        plain = [b'{"seq": %d, "amount": %d}' % (n, amount_of(n)) for n in range(RECORDS)]
        it.writer.send(list(plain))
        assert it.await_exact().clean
        grown = [b'{"seq": %d, "amount": %d, "city": "c%d"}' % (n, amount_of(n), n) for n in range(RECORDS)]
        town.hold("begun")
        it.writer.send(list(grown), poisoned=policy == "dlq")
        family = town.held_at("begun")
        send([family.driver], signal.SIGKILL)
        town.release("begun")
        verdict = it.await_exact()
        _check_policy(it, policy)
        return verdict


def _check_policy(it: Scenario, policy: str) -> None:
    name = it.tables.name
    asked = {
        "add-column": f"SELECT count() AS n, countIf(city = concat('c', toString(seq))) AS m FROM {name} WHERE city IS NOT NULL",
        "overflow": "SELECT count() AS n, countIf(JSONExtractString(_overflow, 'city') = concat('c', toString(seq))) AS m "
        f"FROM {name} WHERE _overflow != ''",
        "dlq": f"SELECT count() AS n, countIf(position(reason, 'city') > 0) AS m FROM {name}_dlq",
    }
    [found] = it.tables.ask(asked[policy])
    assert (int(found["n"]), int(found["m"])) == (RECORDS, RECORDS), (policy, found)
