"""Scenarios with a topic and pipelines of their own: a missing table, records with unmapped fields, a recreated topic.

The one rule: nothing is dropped. Records that cannot be written wait, and are written as soon as they can be.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tests.pipeline.kills.cluster import TOPIC, KillCluster
from tests.pipeline.kills.plan import FAST, STREAMING, Fault
from tests.pipeline.kills.process_tree import send
from tests.pipeline.kills.recreated import await_blocked, recreate
from tests.pipeline.kills.verdict import Tables, Verdict, sum_of
from tests.pipeline.kills.watched import PAUSE_S, WITHIN_S, Watched, watch
from tests.pipeline.kills.writer import Writer, amount_of, record
from tests.support.waiting import until

from holdfast.vocabulary.errors import HoldfastError

RECORDS = 300


@dataclass
class Scenario:
    """A pipeline of its own."""

    cluster: KillCluster
    writer: Writer
    watched: Watched

    @property
    def tables(self) -> Tables:
        return self.watched.tables

    def await_exact(self) -> Verdict:
        """Until the totals are those of the acknowledged records; then row by row."""
        self.watched.await_exact(self.writer.acknowledged)
        return self.watched.judged(self.writer.acknowledged)


@contextmanager
def scenario(cluster: KillCluster, name: str, *, partitions: int = 2, **parts: Any) -> Iterator[Scenario]:
    """A topic, a pipeline and a writer, for the body; the pipeline is stopped and removed after it."""
    topic = cluster.broker.create_topic(name, partitions, TOPIC)
    watched = watch(cluster, topic, topic.replace("-", "_"), **parts)
    writer = Writer(cluster.broker.bootstrap, topic, per_s=0, poisoned_share=0, seed=1)
    yield Scenario(cluster, writer, watched)
    remove(watched)


def remove(watched: Watched) -> None:
    """Stop a pipeline, and delete it."""
    cluster, path = watched.cluster, watched.path
    cluster.http.post(f"{path}/stop")
    until(lambda: _removed(cluster, path), within_s=WITHIN_S, pause_s=PAUSE_S, what=f"{path} is removed")


def _removed(cluster: KillCluster, path: str) -> bool:
    try:
        cluster.http.delete(path)
    except HoldfastError:  # its workers have not released it yet
        return False
    return True


def play(cluster: KillCluster, fault: Fault) -> Verdict:
    """The scenario of a fault."""
    if fault.target == "topic":
        return recreated(cluster, fault.step)
    return missing_table(cluster) if fault.target == "table" else drift(cluster, fault.action, fault.step)


def missing_table(cluster: KillCluster) -> Verdict:
    """It blocks, continues when the table is created, blocks when the table is renamed, and continues when it is back."""
    with scenario(cluster, "missing", sink={"createTableIfMissing": False}) as it:
        name = it.tables.name
        it.writer.send([record(n) for n in range(RECORDS)])
        it.watched.await_blocked("does not exist")
        assert it.watched.checkpoint() == 0
        cluster.clickhouse.query(
            f"CREATE TABLE {name} (seq Int64, amount Int64, _pipeline LowCardinality(String), _generation UInt32, "
            "_topic LowCardinality(String), _partition UInt32, _offset UInt64) ENGINE = MergeTree ORDER BY seq "
            "SETTINGS non_replicated_deduplication_window = 10000"
        )
        assert it.await_exact().clean
        until(
            lambda: it.watched.checkpoint() == RECORDS,
            within_s=WITHIN_S,
            pause_s=PAUSE_S,
            what="a checkpoint after the stored rows",
        )
        cluster.clickhouse.query(f"RENAME TABLE {name} TO {name}_away")
        done = it.watched.checkpoint()
        it.writer.send([record(n) for n in range(RECORDS)])
        it.watched.await_blocked("")
        assert it.watched.checkpoint() == done
        cluster.clickhouse.query(f"RENAME TABLE {name}_away TO {name}")
        return it.await_exact()


def drift(cluster: KillCluster, policy: str, step: str) -> Verdict:
    """New fields arrive, and the driver that should write them is killed at a step: they are handled once, by the policy."""
    with scenario(cluster, f"drift-{policy}", drift={"unknownFields": policy}) as it:
        plain = [b'{"seq": %d, "amount": %d}' % (n, amount_of(n)) for n in range(RECORDS)]
        it.writer.send(list(plain))
        assert it.await_exact().clean
        grown = [b'{"seq": %d, "amount": %d, "city": "c%d"}' % (n, amount_of(n), n) for n in range(RECORDS)]
        cluster.hold(step)
        it.writer.send(list(grown), poisoned=policy == "dlq")
        tree = cluster.held_at(step)
        send([tree.driver], signal.SIGKILL)
        cluster.release(step)
        verdict = it.await_exact()
        _check_policy(it, policy)
        return verdict


def recreated(cluster: KillCluster, step: str) -> Verdict:
    """A topic is deleted and created again, at a step of a batch of it or between two: pipelines block, until they are rewound."""
    topic = cluster.broker.create_topic("recreated", 1, TOPIC)
    table = topic.replace("-", "_")
    pipelines = [watch(cluster, topic, table, engine=FAST) for _ in range(2)]
    pipelines.append(watch(cluster, topic, f"{table}_stream", engine=STREAMING))
    writer = Writer(cluster.broker.bootstrap, topic, per_s=0, poisoned_share=0, seed=1)
    writer.send([record(number) for number in range(RECORDS)])
    for each in pipelines:
        each.await_exact(writer.acknowledged)
    if step:
        cluster.hold(step)
        writer.send([record(number) for number in range(RECORDS, 2 * RECORDS)], first=RECORDS)
        cluster.held_at(step)
    new = recreate(cluster, topic, 1, 2 * RECORDS)
    cluster.release(step)
    await_blocked(pipelines, topic)
    verdicts = [_check_old(each, writer) for each in pipelines]
    for each in pipelines:
        _rewind(each)
    verdicts += [_read_anew(each, new) for each in pipelines]
    for each in pipelines:
        remove(each)
    return sum_of(verdicts)


def _rewind(watched: Watched) -> None:
    """To the beginning; a query is stopped for it."""
    http, path = watched.cluster.http, watched.path
    if watched.engine == STREAMING:
        http.post(f"{path}/stop")

    def rewound() -> bool:
        try:
            http.post(f"{path}/rewind", {"to": {"0": 0}})
        except HoldfastError:  # its worker has not released it yet
            return False
        return True

    until(rewound, within_s=WITHIN_S, pause_s=PAUSE_S, what=f"{path} is rewound")
    if watched.engine == STREAMING:
        http.post(f"{path}/start")


def _check_old(watched: Watched, writer: Writer) -> Verdict:
    """Of the old topic nothing is twice or wrong. What was begun cannot be finished: its records are gone with the topic."""
    found = watched.tables.judged(writer.acknowledged)
    assert found.rows >= RECORDS, found
    return replace(found, records=found.rows, lost=0)


def _read_anew(watched: Watched, new: Writer) -> Verdict:
    """Of the new one the new generation has every record."""
    goal = len(new.acknowledged)
    later = "_generation > 1"
    until(
        lambda: watched.tables.judged(new.acknowledged, later).rows >= goal,
        within_s=WITHIN_S,
        pause_s=PAUSE_S,
        what=lambda: f"{goal} rows of the new topic: {watched.status()}",
    )
    return watched.tables.judged(new.acknowledged, later)


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
