"""kafka-python: groups whose members come, go, freeze and die, with offsets that nobody loses and nobody counts twice."""

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from tests.support.broker import Broker
from tests.support.clients.group_members import (
    Member,
    await_committed,
    await_shared,
    committed,
    members,
    shared,
    verdict,
)
from tests.support.kafka_python_client import TIMEOUT_S, administering, consuming, joined, producing, send, take
from tests.support.kafka_python_import import (
    OffsetAndMetadata,
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    TopicPartition,
    errors,
)
from tests.support.waiting import until
from tests.support.workload import Item, keyed

ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]


def send_items(broker: Broker, topic: str, items: Iterable[Item]) -> list[bytes]:
    """Send a workload and wait for every answer; what was sent."""
    with producing(broker) as producer:
        told = list(items)
        for future in [producer.send(topic, item.value, item.key) for item in told]:
            future.get(TIMEOUT_S)
    return [item.value for item in told]


class Polling(threading.Thread):
    """A consumer in a thread of its own, as this client wants it, that polls until it is told to leave."""

    def __init__(self, broker: Broker, topic: str, **settings: Any) -> None:
        super().__init__(daemon=True)
        self.held: set[TopicPartition] = set()
        self._leaving = threading.Event()
        self._told = (broker, topic, settings)
        self.start()

    def run(self) -> None:
        broker, topic, settings = self._told
        with consuming(broker, topic, **settings) as consumer:
            # A leader that has not heard of the topic yet would assign nothing, and leave it so.
            until(lambda: consumer.partitions_for_topic(topic), what=f"{topic} is known")
            while not self._leaving.is_set():
                consumer.poll(timeout_ms=100)
                self.held = consumer.assignment()

    def leave(self) -> None:
        self._leaving.set()
        self.join(TIMEOUT_S)


def await_even(*members: Polling, partitions: int) -> None:
    def even() -> bool:
        held = [member.held for member in members]
        return {len(each) for each in held} == {partitions // len(members)} and len(set().union(*held)) == partitions

    until(even, what=f"{len(members)} members share {partitions} partitions evenly")


def await_one_generation(group: Sequence[Member], partitions: int) -> int:
    """Wait until the partitions are shared in a generation that every member has joined, and so told of all before it."""

    def joined_in() -> set[int]:
        return {member.events_of("assigned")[-1]["generation"] for member in group}

    until(lambda: shared(group, partitions) and len(joined_in()) == 1, what="all members are in one generation")
    (generation,) = joined_in()
    return generation


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda each: str(each.name))
def test_members_share_what_there_is_as_they_come_and_go(broker: Broker, assignor: type) -> None:
    topic, group = broker.create_topic("shared", 6), broker.unique("group")
    told = {"group_id": group, "partition_assignment_strategy": [assignor]}
    ann = Polling(broker, topic, **told)
    await_even(ann, partitions=6)
    bob, eve = Polling(broker, topic, **told), Polling(broker, topic, **told)
    await_even(ann, bob, eve, partitions=6)
    bob.leave()
    await_even(ann, eve, partitions=6)
    eve.leave()
    await_even(ann, partitions=6)
    ann.leave()


def test_cooperative_members_keep_reading_what_they_keep(broker: Broker) -> None:
    topic, group = broker.create_topic("cooperative", 4), broker.unique("group")
    with members(
        broker.bootstrap, "kafka_python_member.py", topic=topic, group=group, assignor="cooperative-sticky"
    ) as start:
        ann = start("ann")
        await_shared([ann], 4)
        sent = send_items(broker, topic, keyed(200, keys=30))
        bob = start("bob")
        await_shared([ann, bob], 4)
        revoked = {number for event in ann.events_of("revoked") for number in event["partitions"]}
        assert revoked == bob.assigned  # only what bob got was taken from her
        sent += send_items(broker, topic, keyed(200, keys=30, start=200))
        ann.leave()
        await_shared([bob], 4)
        await_committed([ann, bob], sent)
        bob.leave()
        judged = verdict([ann, bob], sent)
        assert judged.clean, judged


def test_a_group_outlives_members_that_join_freeze_and_die(broker: Broker) -> None:
    topic, group = broker.create_topic("lives", 6), broker.unique("group")
    with members(broker.bootstrap, "kafka_python_member.py", topic=topic, group=group) as start:
        those = [start("ann"), start("bob", hold_at=2), start("eve")]
        await_shared(those, 6)
        ann, bob, eve = those
        sent = send_items(broker, topic, keyed(600, keys=30))
        until(lambda: bob.events_of("holding"), what="bob holds what he has read")
        bob.freeze()
        eve.kill()
        sent += send_items(broker, topic, keyed(300, keys=30, start=600))
        dan = start("dan")
        those.append(dan)
        await_shared([ann, dan], 6)
        await_committed(those, sent)
        bob.thaw()
        bob.go()  # what he commits now was read and committed by the others
        until(lambda: bob.events_of("refused"), what="bob's late commit is refused")
        await_shared([ann, bob, dan], 6)
        sent += send_items(broker, topic, keyed(300, keys=30, start=900))
        await_committed(those, sent)
        for member in (ann, bob, dan):
            member.leave()
        judged = verdict(those, sent)
        assert judged.clean, judged
        assert committed([bob])[0]


@pytest.mark.long
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_a_group_outlives_many_deaths(broker: Broker, assignor: str) -> None:
    topic, group = broker.create_topic("deaths", 8), broker.unique("group")
    sent: list[bytes] = []
    with members(broker.bootstrap, "kafka_python_member.py", topic=topic, group=group, assignor=assignor) as start:
        living = [start("0"), start("1"), start("2")]
        every = list(living)
        for turn in range(6):
            await_shared(living, 8)
            sent += send_items(broker, topic, keyed(400, keys=40, start=400 * turn))
            victim = living.pop(0)
            victim.kill() if turn % 2 else victim.leave()
            living.append(start(str(3 + turn)))
            every.append(living[-1])
            await_committed(every, sent)
        judged = verdict(every, sent)
        assert judged.clean, judged


def test_a_static_member_returns_without_a_rebalance(broker: Broker) -> None:
    topic, group = broker.create_topic("static", 4), broker.unique("group")
    with members(broker.bootstrap, "kafka_python_member.py", topic=topic, group=group, session_ms=30_000) as start:
        ann, bob = start("ann", instance="ann"), start("bob", instance="bob")
        generation = await_one_generation([ann, bob], 4)
        held, so_far = bob.assigned, len(ann.events_of("revoked"))
        bob.kill()
        bob = start("bob again", instance="bob")
        assert await_one_generation([ann, bob], 4) == generation, (ann.events, bob.events)
        assert bob.assigned == held
        assert len(ann.events_of("revoked")) == so_far, (ann.events, bob.events)


def test_a_second_bearer_of_a_name_fences_the_first(broker: Broker) -> None:
    topic, group = broker.create_topic("fenced"), broker.unique("group")
    told = {"group_id": group, "group_instance_id": "ann"}
    place = TopicPartition(topic, 0)
    with consuming(broker, topic, **told) as first:
        joined(first)
        with consuming(broker, topic, **told) as second:
            joined(second)
            with pytest.raises(errors.FencedInstanceIdError):
                first.commit({place: OffsetAndMetadata(1, "", -1)})
            # The client answers with a fetch that is under way, and joining began one: that of before the commit ends here.
            assert second.committed(place) is None
            second.commit({place: OffsetAndMetadata(2, "", -1)})
            assert second.committed(place) == 2


@pytest.mark.parametrize(
    "version",
    [None, (0, 11), (2, 4), *(pytest.param(each, marks=pytest.mark.long) for each in ((1, 0), (2, 0), (3, 0)))],
    ids=str,
)
def test_a_group_starts_where_it_committed(broker: Broker, version: tuple[int, ...] | None) -> None:
    topic, group = broker.create_topic("resumed"), broker.unique("group")
    place = TopicPartition(topic, 0)
    with producing(broker) as producer:
        send(producer, topic, [b"%d" % number for number in range(20)])
    told = {"group_id": group, "api_version": version}
    with consuming(broker, topic, **told) as consumer:
        joined(consumer)
        assert consumer.committed(place) is None
        consumer.seek_to_beginning(place)
        take(consumer, 5)
        consumer.commit()
        assert consumer.committed(place) == 5
    with consuming(broker, topic, **told) as consumer:
        assert take(consumer, 1)[0].offset == 5
        consumer.commit({place: OffsetAndMetadata(12, "twelve", -1)})
        found = consumer.committed(place, metadata=True)
        assert (found.offset, found.metadata) == (12, "twelve")
    with consuming(broker, topic, **told) as consumer:
        assert take(consumer, 1)[0].offset == 12


def test_offsets_are_committed_by_themselves(broker: Broker) -> None:
    topic, group = broker.create_topic("auto"), broker.unique("group")
    with producing(broker) as producer:
        send(producer, topic, [b"x"] * 5)
    told = {"group_id": group, "enable_auto_commit": True, "auto_commit_interval_ms": 100}
    with consuming(broker, topic, **told) as consumer, administering(broker) as admin:
        take(consumer, 5)

        def stored() -> bool:
            consumer.poll(timeout_ms=50)
            return [each.offset for each in admin.list_group_offsets(group)[group].values()] == [5]

        until(stored, what="the offset is stored")


def test_metadata_that_is_too_large_is_refused(broker: Broker) -> None:
    topic, group = broker.create_topic("metadata"), broker.unique("group")
    place = TopicPartition(topic, 0)
    with consuming(broker, topic, group_id=group) as consumer:
        joined(consumer)
        with pytest.raises(errors.OffsetMetadataTooLargeError):
            consumer.commit({place: OffsetAndMetadata(1, "m" * 5_000, -1)})
        consumer.commit({place: OffsetAndMetadata(1, "m" * 4_000, -1)})


def test_offsets_are_kept_without_a_group_of_members(broker: Broker) -> None:
    topic, group = broker.create_topic("alone"), broker.unique("group")
    place = TopicPartition(topic, 0)
    with consuming(broker, group_id=group) as consumer:
        consumer.assign([place])
        consumer.commit({place: OffsetAndMetadata(3, "by hand", -1)})
        assert consumer.committed(place) == 3


def test_a_session_too_short_is_refused(broker: Broker) -> None:
    topic, group = broker.create_topic("short"), broker.unique("group")
    told = {"group_id": group, "session_timeout_ms": 10, "heartbeat_interval_ms": 3}
    with consuming(broker, topic, **told) as consumer, pytest.raises(errors.InvalidSessionTimeoutError):
        joined(consumer)
