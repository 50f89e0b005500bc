"""confluent-kafka: members of one group share its partitions; each strategy, within one process."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.support.broker import Broker
from tests.support.librdkafka_client import Config, consuming, got, leave, send_values
from tests.support.waiting import until

STRATEGIES = ("range", "roundrobin", "cooperative-sticky")
# One that revokes everything at a rebalance, one that does not.
FEW_STRATEGIES = [pytest.param(each, marks=pytest.mark.long if each == "roundrobin" else ()) for each in STRATEGIES]


class Joined:
    """A consumer that notes what it holds, what it was told and what it read."""

    def __init__(self, client: Consumer) -> None:
        self.client = client
        self.held: set[tuple[str, int]] = set()
        self.assigned = self.revoked = 0
        self.read: list[tuple[str, int, int]] = []
        self.errors: list[int] = []

    def subscribe(self, topics: Sequence[str]) -> None:
        self.client.subscribe(list(topics), on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)

    def _assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.assigned += 1
        self.held |= {(each.topic, each.partition) for each in partitions}

    def _revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self.revoked += 1
        self.held -= {(each.topic, each.partition) for each in partitions}

    def poll(self) -> None:
        for message in self.client.consume(50, 0.02):
            if (error := message.error()) is not None:
                self.errors.append(error.code())
            else:
                record = got(message)
                self.read.append((record.topic, record.partition, record.offset))


@contextmanager
def joining(broker: Broker, topics: Sequence[str], config: Config) -> Iterator[Joined]:
    quick = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200, "fetch.wait.max.ms": 50}
    with consuming(broker, {**quick, **config}) as client:
        joined = Joined(client)
        joined.subscribe(topics)
        try:
            yield joined
        finally:
            leave(client)


def turn(*members: Joined) -> bool:
    """Poll each once. Always true, so that a condition can begin with it."""
    for member in members:
        member.poll()
    return True


def settle(members: Sequence[Joined], partitions: int) -> None:
    """Poll all in turns until every partition has one owner and every member that can has some."""

    def settled() -> bool:
        turn(*members)
        held = [partition for member in members for partition in member.held]
        busy = sum(bool(member.held) for member in members)
        return len(held) == len(set(held)) == partitions and busy == min(len(members), partitions)

    until(settled, within_s=40, what=lambda: f"shared: {[sorted(member.held) for member in members]}")


def sizes(members: Sequence[Joined]) -> list[int]:
    return sorted(len(member.held) for member in members)


def share(members: Sequence[Joined], partitions: int, *expected: int) -> None:
    """Settle with so many partitions each: cooperative members share in rounds, and all may have an owner before the last."""
    settle(members, partitions)
    until(
        lambda: turn(*members) and sizes(members) == list(expected),
        within_s=40,
        what=lambda: f"{expected} partitions: {[sorted(member.held) for member in members]}",
    )


@pytest.mark.parametrize("strategy", FEW_STRATEGIES)
def test_members_share_and_share_again_when_one_joins_or_leaves(broker: Broker, strategy: str) -> None:
    topic = broker.create_topic("shared", 6)
    config = {"group.id": broker.unique("shared"), "partition.assignment.strategy": strategy}
    with joining(broker, [topic], config) as ann:
        settle([ann], 6)
        with joining(broker, [topic], config) as bob:
            share([ann, bob], 6, 3, 3)
            with joining(broker, [topic], config) as cid:
                share([ann, bob, cid], 6, 2, 2, 2)
        settle([ann], 6)
    assert not ann.errors


def test_cooperative_members_keep_what_they_need_not_give(broker: Broker) -> None:
    topic = broker.create_topic("kept", 6)
    config = {"group.id": broker.unique("kept"), "partition.assignment.strategy": "cooperative-sticky"}
    with joining(broker, [topic], config) as ann:
        settle([ann], 6)
        before = set(ann.held)
        with joining(broker, [topic], config) as bob:
            share([ann, bob], 6, 3, 3)
            assert ann.held < before
            assert ann.revoked == 1  # three were taken, in one step, and three never left


def test_more_members_than_partitions_leave_some_idle(broker: Broker) -> None:
    topic = broker.create_topic("crowded", 2)
    config = {"group.id": broker.unique("crowded")}
    with ExitStack() as stack:
        group = [stack.enter_context(joining(broker, [topic], config)) for _ in range(3)]
        share(group, 2, 0, 1, 1)


@pytest.mark.parametrize("strategy", FEW_STRATEGIES)
def test_several_topics_are_shared_together(broker: Broker, strategy: str) -> None:
    topics = [broker.create_topic("one", 2), broker.create_topic("two", 4)]
    config = {"group.id": broker.unique("both"), "partition.assignment.strategy": strategy}
    with joining(broker, topics, config) as ann, joining(broker, topics, config) as bob:
        share([ann, bob], 6, 3, 3)


def test_members_of_different_subscriptions(broker: Broker) -> None:
    first, second = broker.create_topic("first", 2), broker.create_topic("second", 2)
    config = {"group.id": broker.unique("mixed")}
    with joining(broker, [first], config) as ann, joining(broker, [first, second], config) as bob:
        settle([ann, bob], 4)
        assert {topic for topic, _ in ann.held} == {first}
        assert (second, 0) in bob.held
        assert (second, 1) in bob.held


def test_each_record_goes_to_one_member(broker: Broker) -> None:
    topic = broker.create_topic("divided", 6)
    config = {"group.id": broker.unique("divided"), "enable.auto.commit": True}
    with ExitStack() as stack:
        group = [stack.enter_context(joining(broker, [topic], config)) for _ in range(3)]
        settle(group, 6)
        for partition in range(6):
            send_values(broker, topic, [b"x"] * 50, partition=partition)

        def all_read() -> bool:
            return turn(*group) and sum(len(member.read) for member in group) >= 300

        until(all_read, what="every record is read")
        read = [record for member in group for record in member.read]
        assert len(set(read)) == len(read) == 300


def test_members_without_a_strategy_in_common_are_refused(broker: Broker) -> None:
    topic = broker.create_topic("discord", 2)
    group = broker.unique("discord")
    with joining(broker, [topic], {"group.id": group, "partition.assignment.strategy": "range"}) as ann:
        settle([ann], 2)
        odd = {"group.id": group, "partition.assignment.strategy": "roundrobin"}
        with joining(broker, [topic], odd) as bob:
            until(lambda: turn(ann, bob) and bob.errors, what="bob is told")
            assert KafkaError.INCONSISTENT_GROUP_PROTOCOL in bob.errors
        settle([ann], 2)


def test_the_strategy_that_all_know_is_chosen(broker: Broker) -> None:
    topic = broker.create_topic("accord", 4)
    group = broker.unique("accord")
    both = {"group.id": group, "partition.assignment.strategy": "roundrobin,range"}
    one = {"group.id": group, "partition.assignment.strategy": "range"}
    with joining(broker, [topic], both) as ann:
        settle([ann], 4)
        with joining(broker, [topic], one) as bob:
            share([ann, bob], 4, 2, 2)


def test_a_session_timeout_outside_the_limits_is_refused(broker: Broker) -> None:
    topic = broker.create_topic("hasty")
    hasty = {"group.id": broker.unique("hasty"), "session.timeout.ms": 50, "heartbeat.interval.ms": 20}
    with joining(broker, [topic], hasty) as ann:
        until(lambda: turn(ann) and ann.errors, what="ann is told")
        assert KafkaError.INVALID_SESSION_TIMEOUT in ann.errors


def test_a_member_that_stops_polling_loses_its_partitions(broker: Broker) -> None:
    topic = broker.create_topic("idle", 2)
    config = {"group.id": broker.unique("idle")}
    hurried = {**config, "max.poll.interval.ms": 6_000}
    with joining(broker, [topic], hurried) as ann:
        settle([ann], 2)
        with joining(broker, [topic], config) as bob:
            until(lambda: turn(bob) and len(bob.held) == 2, what="bob has all")
            settle([ann, bob], 2)  # and ann is welcome again


def test_two_clients_with_one_instance_id_cannot_both_stay(broker: Broker) -> None:
    topic = broker.create_topic("twins", 2)
    config = {"group.id": broker.unique("twins"), "group.instance.id": "the one"}
    with joining(broker, [topic], config) as ann:
        settle([ann], 2)
        with joining(broker, [topic], config) as twin:
            until(lambda: turn(ann, twin) and twin.held, what="the twin has taken over")
            until(lambda: turn(ann, twin) and KafkaError._FATAL in ann.errors, what="ann is fenced")
            assert not twin.errors


def test_unsubscribing_leaves_and_subscribing_returns(broker: Broker) -> None:
    topic = broker.create_topic("in-and-out", 2)
    config = {"group.id": broker.unique("in-and-out")}
    with joining(broker, [topic], config) as ann, joining(broker, [topic], config) as bob:
        settle([ann, bob], 2)
        ann.client.unsubscribe()
        until(lambda: turn(ann, bob) and len(bob.held) == 2, what="bob has all")
        ann.held.clear()
        ann.subscribe([topic])
        settle([ann, bob], 2)


@pytest.mark.parametrize("count", [12])
def test_many_members_join_at_once(broker: Broker, count: int) -> None:
    topic = broker.create_topic("many", count * 2)
    config = {"group.id": broker.unique("many")}
    with ExitStack() as stack:
        group = [stack.enter_context(joining(broker, [topic], config)) for _ in range(count)]
        share(group, count * 2, *[2] * count)
