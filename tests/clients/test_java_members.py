"""The Java client: members of a group in JVMs of their own freeze and die; each record is committed once."""

from collections.abc import Iterator

import pytest
from tests.support.broker import Broker
from tests.support.clients.group_members import Start, await_committed, await_shared, committed, started, verdict
from tests.support.clients.java import runner
from tests.support.librdkafka_client import producer
from tests.support.waiting import until
from tests.support.workload import keyed

from holdfast.vocabulary.errors import UnavailableError

PARTITIONS = 4
RECORDS = 600


class Work:
    """A topic and a group; what was sent so far."""

    def __init__(self, broker: Broker, topic: str, start: Start) -> None:
        self._broker, self._topic, self.start = broker, topic, start
        self.sent: list[bytes] = []

    def send(self) -> None:
        client = producer(self._broker)
        for item in keyed(RECORDS, keys=24, start=len(self.sent)):
            client.produce(self._topic, key=item.key, value=item.value)
            self.sent.append(item.value)
        assert client.flush(30) == 0


@pytest.fixture
def work(broker: Broker) -> Iterator[Work]:
    try:
        runner.compiled()
    except UnavailableError as missing:
        pytest.skip(str(missing))
    topic = broker.create_topic("java-members", PARTITIONS)
    settings = {"topic": topic, "group": broker.unique("java-members")}
    with started(runner.member_command, broker.bootstrap, settings) as start:
        yield Work(broker, topic, start)


@pytest.mark.long  # as librdkafka and kafka-python
def test_one_member_freezes_and_one_is_killed(work: Work) -> None:
    ann, bob = (work.start(name, assignor="CooperativeStickyAssignor") for name in ("ann", "bob"))
    await_shared([ann, bob], PARTITIONS)
    work.send()
    await_committed([ann, bob], work.sent)  # a commit that is answered while she is frozen would be told too late
    ann.freeze()
    work.send()
    await_shared([bob], PARTITIONS)
    await_committed([ann, bob], work.sent)
    ann.thaw()
    await_shared([ann, bob], PARTITIONS)
    work.send()
    until(lambda: len(committed([ann, bob])[0]) > 2 * RECORDS + RECORDS // 4, what="the third part is being read")
    bob.kill()
    work.send()
    await_shared([ann], PARTITIONS)
    await_committed([ann, bob], work.sent)
    ann.leave()
    judged = verdict([ann, bob], work.sent)
    assert judged.clean, judged


@pytest.mark.long
def test_the_late_commit_of_a_frozen_member_is_refused(work: Work) -> None:
    ann = work.start("ann", assignor="RangeAssignor", hold_at=3)
    work.send()
    until(lambda: ann.events_of("holding"), what="ann has read and not committed")
    ann.freeze()
    bob = work.start("bob", assignor="RangeAssignor")
    await_shared([bob], PARTITIONS)
    await_committed([ann, bob], work.sent)
    ann.go()
    ann.thaw()
    until(lambda: ann.events_of("refused"), what="ann is told that her commit is too late")
    await_shared([ann, bob], PARTITIONS)
    work.send()
    await_committed([ann, bob], work.sent)
    ann.leave()
    bob.leave()
    judged = verdict([ann, bob], work.sent)
    assert judged.clean, judged
