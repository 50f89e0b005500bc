"""aiokafka: groups whose members come, go, freeze and die, with offsets that nobody loses and nobody counts twice."""

import asyncio
from collections.abc import Iterable

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError, OffsetMetadataTooLargeError
from tests.support.aiokafka_client import administering, consuming, producing, send, take
from tests.support.broker import Broker
from tests.support.clients.group_members import await_committed, await_shared, committed, members, verdict
from tests.support.waiting import until
from tests.support.workload import Item, keyed

ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]


async def settled(*consumers: AIOKafkaConsumer, partitions: int) -> None:
    """Wait until the consumers share the partitions, each with its part."""
    async with asyncio.timeout(30):
        while True:
            held = [consumer.assignment() for consumer in consumers]
            if all(held) and sum(map(len, held)) == partitions and len(frozenset().union(*held)) == partitions:
                return
            await asyncio.gather(*[consumer.getmany(timeout_ms=20) for consumer in consumers])


async def send_items(broker: Broker, topic: str, items: Iterable[Item]) -> list[bytes]:
    """Send a workload and wait for every answer; what was sent."""
    async with producing(broker) as producer:
        told = list(items)
        await asyncio.gather(*[await producer.send(topic, item.value, item.key) for item in told])
    return [item.value for item in told]


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda each: each.name)
async def test_members_share_what_there_is_as_they_come_and_go(broker: Broker, assignor: type) -> None:
    topic, group = broker.create_topic("shared", 6), broker.unique("group")
    settings = {"group_id": group, "partition_assignment_strategy": [assignor]}
    async with consuming(broker, topic, **settings) as ann:
        await settled(ann, partitions=6)
        async with consuming(broker, topic, **settings) as bob:
            await settled(ann, bob, partitions=6)
            assert {len(ann.assignment()), len(bob.assignment())} == {3}
            async with consuming(broker, topic, **settings) as eve:
                await settled(ann, bob, eve, partitions=6)
                assert {len(each.assignment()) for each in (ann, bob, eve)} == {2}
            await settled(ann, bob, partitions=6)
        await settled(ann, partitions=6)


def test_the_sticky_assignor_moves_only_what_must_move(broker: Broker) -> None:
    topic, group = broker.create_topic("sticky", 6), broker.unique("group")
    with members(broker.bootstrap, "aiokafka_member.py", topic=topic, group=group, assignor="sticky") as start:
        ann, bob = start("ann"), start("bob")
        await_shared([ann, bob], 6)
        before = [ann.assigned, bob.assigned]
        eve = start("eve")
        await_shared([ann, bob, eve], 6)
        assert ann.assigned < before[0]
        assert bob.assigned < before[1]


async def test_more_members_than_partitions_leave_one_idle(broker: Broker) -> None:
    topic, group = broker.create_topic("few", 1), broker.unique("group")
    async with consuming(broker, topic, group_id=group) as ann, consuming(broker, topic, group_id=group) as bob:
        async with asyncio.timeout(20):
            while sorted([len(ann.assignment()), len(bob.assignment())]) != [0, 1]:
                await asyncio.gather(ann.getmany(timeout_ms=50), bob.getmany(timeout_ms=50))


async def test_members_who_agree_on_no_assignor_do_not_mix(broker: Broker) -> None:
    topic, group = broker.create_topic("mixed", 2), broker.unique("group")
    by_range = {"group_id": group, "partition_assignment_strategy": [RangePartitionAssignor]}
    by_turns = {"group_id": group, "partition_assignment_strategy": [RoundRobinPartitionAssignor]}
    async with consuming(broker, topic, **by_range) as ann:
        await settled(ann, partitions=2)
        stranger = AIOKafkaConsumer(topic, bootstrap_servers=broker.bootstrap, **by_turns)
        try:
            with pytest.raises(KafkaError):
                await stranger.start()
        finally:
            await stranger.stop()
        await settled(ann, partitions=2)


async def test_a_group_starts_where_it_committed(broker: Broker) -> None:
    topic, group = broker.create_topic("resumed"), broker.unique("group")
    place = TopicPartition(topic, 0)
    async with producing(broker) as producer:
        await send(producer, topic, [b"%d" % number for number in range(20)])
    async with consuming(broker, topic, group_id=group) as consumer:
        assert await consumer.committed(place) is None
        await take(consumer, 5)
        await consumer.commit()
        assert await consumer.committed(place) == 5
        await take(consumer, 5)
    async with consuming(broker, topic, group_id=group) as consumer:
        assert [record.offset for record in await take(consumer, 2)] == [5, 6]
        await consumer.commit({place: 12})
        await consumer.seek_to_committed(place)
        assert (await take(consumer, 1))[0].offset == 12
        await consumer.commit({place: 3})  # back is as good as forth
    async with consuming(broker, topic, group_id=group) as consumer:
        assert (await take(consumer, 1))[0].offset == 3


async def test_offsets_are_committed_by_themselves(broker: Broker) -> None:
    topic, group = broker.create_topic("auto"), broker.unique("group")
    async with producing(broker) as producer:
        await send(producer, topic, [b"x"] * 5)
    told = {"group_id": group, "enable_auto_commit": True, "auto_commit_interval_ms": 100}
    async with consuming(broker, topic, **told) as consumer, administering(broker) as admin:
        await take(consumer, 5)
        async with asyncio.timeout(10):
            while [each.offset for each in (await admin.list_consumer_group_offsets(group)).values()] != [5]:
                await consumer.getmany(timeout_ms=50)


async def test_offsets_carry_metadata(broker: Broker) -> None:
    topic, group = broker.create_topic("metadata"), broker.unique("group")
    place = TopicPartition(topic, 0)
    async with consuming(broker, topic, group_id=group) as consumer, administering(broker) as admin:
        await settled(consumer, partitions=1)
        for metadata in ("", "plain", "ключ 値", "m" * 4_000):
            await consumer.commit({place: (1, metadata)})
            assert (await admin.list_consumer_group_offsets(group))[place] == (1, metadata)
        with pytest.raises(OffsetMetadataTooLargeError):
            await consumer.commit({place: (1, "m" * 5_000)})


async def test_a_static_member_returns_without_a_rebalance(broker: Broker) -> None:
    topic, group = broker.create_topic("static", 4), broker.unique("group")
    settings = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "partition_assignment_strategy": [RangePartitionAssignor],
    }
    revoked: list[str] = []

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, partitions: object) -> None:
            revoked.append(repr(partitions))

        async def on_partitions_assigned(self, partitions: object) -> None: ...

    async with consuming(broker, group_instance_id="ann", **settings) as ann:
        ann.subscribe([topic], listener=Listener())
        async with consuming(broker, topic, group_instance_id="bob", **settings) as bob:
            await settled(ann, bob, partitions=4)
            held, so_far = bob.assignment(), len(revoked)
        async with consuming(broker, topic, group_instance_id="bob", **settings) as bob:
            await settled(ann, bob, partitions=4)
            assert bob.assignment() == held
        assert len(revoked) == so_far


@pytest.mark.long  # as kafka-python and kafkajs
def test_a_group_outlives_members_that_join_freeze_and_die(broker: Broker) -> None:
    topic, group = broker.create_topic("lives", 6), broker.unique("group")
    sent: list[bytes] = []
    with members(broker.bootstrap, "aiokafka_member.py", topic=topic, group=group) as start:
        those = [start("ann"), start("bob", hold_at=2), start("eve")]
        await_shared(those, 6)
        ann, bob, eve = those
        sent += asyncio.run(send_items(broker, topic, keyed(600, keys=30)))
        until(lambda: bob.events_of("holding"), what="bob holds what he has read")
        bob.freeze()
        eve.kill()
        sent += asyncio.run(send_items(broker, topic, keyed(300, keys=30, start=600)))
        those.append(start("dan"))
        await_shared([ann, those[3]], 6)
        await_committed(those, sent)
        refused_before = len(bob.events_of("refused"))
        bob.thaw()
        bob.go()  # what he commits now was read and committed by the others
        until(lambda: len(bob.events_of("refused")) > refused_before, what="bob's late commit is refused")
        await_shared([ann, bob, those[3]], 6)
        sent += asyncio.run(send_items(broker, topic, keyed(300, keys=30, start=900)))
        await_committed(those, sent)
        ann.leave()
        await_shared([bob, those[3]], 6)
        sent += asyncio.run(send_items(broker, topic, keyed(300, keys=30, start=1_200)))
        await_committed(those, sent)
        for member in (bob, those[3]):
            member.leave()
        judged = verdict(those, sent)
        assert judged.clean, judged
        assert committed([bob])[0]  # he worked again after his rest


@pytest.mark.long
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky"])
def test_a_group_outlives_many_deaths(broker: Broker, assignor: str) -> None:
    topic, group = broker.create_topic("deaths", 8), broker.unique("group")
    sent: list[bytes] = []
    with members(broker.bootstrap, "aiokafka_member.py", topic=topic, group=group, assignor=assignor) as start:
        living = [start("0"), start("1"), start("2")]
        every = list(living)
        for turn in range(6):
            await_shared(living, 8)
            sent += asyncio.run(send_items(broker, topic, keyed(400, keys=40, start=400 * turn)))
            victim = living.pop(0)
            victim.kill() if turn % 2 else victim.leave()
            living.append(start(str(3 + turn)))
            every.append(living[-1])
            await_committed(every, sent)
        judged = verdict(every, sent)
        assert judged.clean, judged
