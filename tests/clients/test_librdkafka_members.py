"""confluent-kafka: processes that share a group join, leave, freeze and die; each record is committed once."""

from collections.abc import Iterator, Sequence

import pytest
from tests.support.broker import Broker
from tests.support.clients.group_members import (
    Member,
    Start,
    await_committed,
    await_shared,
    committed,
    members,
    verdict,
)
from tests.support.librdkafka_client import producer
from tests.support.waiting import until
from tests.support.workload import keyed

PARTITIONS = 6
ASSIGNORS = ("range", "roundrobin", "cooperative-sticky")
HALF = 600
LONG_SESSION_MS = 30_000  # for who must be back within it: a process takes a while to start on a busy machine


class Work:
    """A topic, a group, and what was sent so far."""

    def __init__(self, broker: Broker, start: Start, topic: str) -> None:
        self._broker, self._start, self._topic = broker, start, topic
        self.sent: list[bytes] = []
        self.group: list[Member] = []

    def join(self, *names: str, **settings: object) -> list[Member]:
        joined = [self._start(name, **settings) for name in names]
        self.group += joined
        return joined

    def send(self, count: int = HALF) -> None:
        client = producer(self._broker)
        for item in keyed(count, keys=24, start=len(self.sent)):
            client.produce(self._topic, key=item.key, value=item.value)
            self.sent.append(item.value)
        assert client.flush(30) == 0

    def finish(self) -> None:
        """Everything sent is committed once; then the members that still run leave gracefully."""
        await_committed(self.group, self.sent)
        for member in self.group:
            if member.running:
                member.leave()
        judged = verdict(self.group, self.sent)
        assert judged.clean, judged


@pytest.fixture
def work(broker: Broker) -> Iterator[Work]:
    topic = broker.create_topic("members", PARTITIONS)
    with members(broker.bootstrap, "librdkafka_member.py", topic=topic, group=broker.unique("members")) as start:
        yield Work(broker, start, topic)


def holds(group: Sequence[Member]) -> list[int]:
    return sorted(len(member.assigned) for member in group)


@pytest.mark.parametrize(
    "assignor", [pytest.param(each, marks=pytest.mark.long if each == "roundrobin" else ()) for each in ASSIGNORS]
)
def test_members_join_and_leave_while_records_flow(work: Work, assignor: str) -> None:
    (ann,) = work.join("ann", assignor=assignor)
    work.send()
    await_shared([ann], PARTITIONS)
    bob, cid = work.join("bob", "cid", assignor=assignor)
    work.send()
    await_shared([ann, bob, cid], PARTITIONS)
    # Cooperative members share in several rounds, and all partitions may have an owner before the last one.
    until(lambda: holds([ann, bob, cid]) == [2, 2, 2], what="each has its share")
    work.send()
    ann.leave()
    await_shared([bob, cid], PARTITIONS)
    work.send()
    work.finish()


@pytest.mark.parametrize("assignor", [pytest.param("range", marks=pytest.mark.long), "cooperative-sticky"])
def test_a_killed_members_partitions_go_to_the_others(work: Work, assignor: str) -> None:
    ann, bob = work.join("ann", "bob", assignor=assignor)
    await_shared([ann, bob], PARTITIONS)
    work.send()
    until(lambda: len(committed(work.group)[0]) > HALF // 4, what="work has begun")
    ann.kill()
    work.send()
    await_shared([bob], PARTITIONS)
    work.finish()


@pytest.mark.parametrize("assignor", [pytest.param("range", marks=pytest.mark.long), "cooperative-sticky"])
def test_a_frozen_members_late_commit_is_refused(work: Work, assignor: str) -> None:
    (ann,) = work.join("ann", assignor=assignor, hold_at=5)
    work.send()
    until(lambda: ann.events_of("holding"), what="ann has read and not committed")
    ann.freeze()
    (bob,) = work.join("bob", assignor=assignor)
    await_shared([bob], PARTITIONS)  # ann's session has ended
    await_committed([ann, bob], work.sent)
    ann.go()
    ann.thaw()
    until(lambda: ann.events_of("refused"), what="ann is told that her commit is too late")
    await_shared([ann, bob], PARTITIONS)
    work.send()
    work.finish()


def test_a_static_member_that_comes_back_in_time_causes_no_rebalance(work: Work) -> None:
    ann, bob = (work.join(name, instance=name, session_ms=LONG_SESSION_MS)[0] for name in ("ann", "bob"))
    await_shared([ann, bob], PARTITIONS)
    work.send()
    await_committed(work.group, work.sent)
    held, changes = ann.assigned, len(bob.events_of("assigned")) + len(bob.events_of("revoked"))
    ann.leave()
    (again,) = work.join("ann again", instance="ann", session_ms=LONG_SESSION_MS)
    until(lambda: again.assigned, what="ann is back")
    assert again.assigned == held
    work.send()
    await_committed(work.group, work.sent)
    assert len(bob.events_of("assigned")) + len(bob.events_of("revoked")) == changes
    work.finish()


def test_a_static_member_that_was_killed_comes_back_to_its_partitions(work: Work) -> None:
    ann, bob = (work.join(name, instance=name, session_ms=LONG_SESSION_MS)[0] for name in ("ann", "bob"))
    await_shared([ann, bob], PARTITIONS)
    work.send()
    held, changes = ann.assigned, len(bob.events_of("assigned"))
    ann.kill()
    (again,) = work.join("ann again", instance="ann", session_ms=LONG_SESSION_MS)
    until(lambda: again.assigned == held, what="ann is back")
    assert len(bob.events_of("assigned")) == changes
    work.send()
    work.finish()


def test_a_static_member_that_stays_away_loses_its_partitions(work: Work) -> None:
    ann, bob = work.join("ann", instance="one")[0], work.join("bob", instance="two")[0]
    await_shared([ann, bob], PARTITIONS)
    ann.kill()
    work.send()
    await_shared([bob], PARTITIONS)
    work.finish()


@pytest.mark.long
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_come_and_go_for_a_while(work: Work, assignor: str) -> None:
    group = work.join("ann", "bob", "cid", assignor=assignor)
    for turn in range(6):
        work.send()
        await_shared(group, PARTITIONS)
        goes = group.pop(turn % 3)
        if turn % 2:
            goes.kill()
        else:
            goes.leave()
        group += work.join(f"new {turn}", assignor=assignor)
    work.finish()
