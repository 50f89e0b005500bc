"""The synchronous clients, and Admin: against a real broker, from threads, and after a fork."""

import os
import threading

import pytest
from tests.support.broker import Broker
from tests.support.forked import end_in_time
from tests.support.server_process import read

from holdfast.client import (
    Admin,
    ConsumerSettings,
    KafkaConflictError,
    KafkaNotFoundError,
    ProducerRecord,
    ProducerSettings,
    RecordMetadata,
    TopicPartition,
    sync,
)
from holdfast.vocabulary.errors import ClosedError, InvalidError, UsageError

QUICK = ProducerSettings(linger_ms=0)


def test_many_threads_send_through_one_producer_and_each_keeps_its_order(broker: Broker) -> None:
    topic = broker.create_topic("threads")
    small = ProducerSettings(linger_ms=1, buffer_records_max=20)
    with sync.Producer(broker.bootstrap, value_serializer="str", settings=small) as producer:

        def work(name: str) -> None:
            for number in range(100):
                producer.send(topic, f"{name}{number}")

        threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
        assert producer.send_and_wait(topic, "last").offset == 300
    found = read(broker.bootstrap, topic, 301)
    for name in "abc":
        assert [value for value in found if value[0] == name] == [f"{name}{number}" for number in range(100)]


def test_outcomes_are_waited_for_or_called_back(broker: Broker) -> None:
    topic = broker.create_topic("outcomes")
    called: list[RecordMetadata] = []
    done = threading.Event()
    with sync.Producer(broker.bootstrap, settings=QUICK) as producer:
        sent = producer.send(topic, b"0")
        sent.add_done_callback(lambda each: called.append(each.result()))
        sent.add_done_callback(lambda _: done.set())
        assert sent.result(60).offset == 0
        assert done.wait(60)
        many = producer.send_many(topic, [ProducerRecord(b"1", headers=[("a", b"b")]), b"2"])
        assert [each.offset for each in many.result()] == [1, 2]
        assert producer.send_many(topic, []).result() == []
        failed = producer.send(topic, b"x", partition=9)
        assert isinstance(failed.exception(), KafkaNotFoundError)
        with pytest.raises(KafkaNotFoundError, match="has no such partition"):
            producer.flush()
    assert called == [sent.result()]
    with pytest.raises(ClosedError):
        producer.send(topic, b"late")


def test_a_consumer_without_an_event_loop(broker: Broker) -> None:
    topic, group = broker.create_topic("plain"), broker.unique("billing")
    place = TopicPartition(topic, 0)
    with sync.Producer(broker.bootstrap, value_serializer="json") as producer:
        producer.send_many(topic, [{"n": number} for number in range(10)])
    settings = ConsumerSettings(auto_commit_interval_ms=60_000, fetch_wait_ms=20)
    with sync.Consumer(
        broker.bootstrap, topic, group_id=group, value_deserializer="json", settings=settings
    ) as consumer:
        for record in consumer:
            if record.value == {"n": 4}:
                break
        assert consumer.assignment == {place}
        assert consumer.position(place) == 5
        assert consumer.lag() == {place: 5}
    with sync.Consumer(broker.bootstrap, topic, group_id=group, settings=settings) as consumer:
        assert next(iter(consumer)).offset == 4  # the one that may not have been processed
        batch = next(consumer.batches(3))
        assert batch[0].offset == 5
        consumer.commit()
        consumer.seek(place, 9)
        consumer.pause(place)
        assert consumer.fetch(timeout_ms=20) == []
        consumer.resume(place)
        assert [each.offset for each in consumer.fetch()] == [9]
        assert consumer.committed() == {place: 5 + len(batch)}


def test_a_fork_is_told_to_open_clients_of_its_own(broker: Broker) -> None:
    topic = broker.create_topic("forked")
    with (
        sync.Producer(broker.bootstrap) as producer,
        sync.Consumer(broker.bootstrap, topic) as consumer,
        sync.Admin(broker.bootstrap) as admin,
    ):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            end_in_time()
            texts = []
            for call in (lambda: producer.send(topic, b"x"), lambda: next(consumer), admin.list_topics):
                try:
                    call()
                except UsageError as error:
                    texts.append(str(error))
            os.write(writing, "\n".join(texts).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            told = pipe.read().splitlines()
        os.waitpid(child, 0)
        here = os.getpid()
        assert told == [
            f"this {what} was opened by process {here}: after a fork, open another one"
            for what in ("producer", "consumer", "admin client")
        ]
        producer.send_and_wait(topic, b"of the parent")


async def test_topics_are_administered(broker: Broker) -> None:
    name = broker.unique("administered")
    async with Admin(broker.bootstrap) as admin:
        assert await admin.create_topic(name, partitions=2, config={"retention.ms": "1000000"})
        assert not await admin.create_topic(name, exist_ok=True)
        with pytest.raises(KafkaConflictError, match=f"topic {name} exists already"):
            await admin.create_topic(name)
        with pytest.raises(InvalidError, match="invalid partitions 0: must be at least 1"):
            await admin.create_topic("x", partitions=0)
        assert name in await admin.list_topics()
        await admin.add_partitions(name, 3)
        described = await admin.describe_topic(name)
        assert [row.partition for row in described.partitions] == [0, 1, 2]
        assert (await admin.topic_config(name))["retention.ms"].value == "1000000"
        await admin.set_topic_config(name, {"retention.ms": None, "max.message.bytes": "2000"})
        config = await admin.topic_config(name)
        assert config["max.message.bytes"].value == "2000"
        assert config["retention.ms"].source != "topic"
        await admin.delete_topic(name)
        with pytest.raises(KafkaNotFoundError, match=f"topic {name} does not exist"):
            await admin.describe_topic(name)
        cluster = await admin.describe_cluster()
        assert [each.id for each in cluster.brokers] == [cluster.controller]
    with pytest.raises(ClosedError):
        await admin.list_topics()


def test_groups_are_administered(broker: Broker) -> None:
    topic, group = broker.create_topic("grouped"), broker.unique("billing")
    with sync.Producer(broker.bootstrap) as producer:
        producer.send_many(topic, [b"x"] * 5)
    settings = ConsumerSettings(auto_commit_interval_ms=0, fetch_wait_ms=20)
    with sync.Admin(broker.bootstrap) as admin:
        with sync.Consumer(broker.bootstrap, topic, group_id=group, settings=settings) as consumer:
            assert consumer.fetch()
            consumer.commit()
            described = admin.describe_group(group)
            assert described.state == "stable"
            assert described.members[0].partitions == ((topic, 0),)
            with pytest.raises(KafkaConflictError, match="has 1 active member"):
                admin.reset_group(group, topic, to="earliest")
        assert (group, "empty") in admin.list_groups("empty")
        assert [(row.committed, row.lag) for row in admin.group_lag(group)] == [(5, 0)]
        assert [move.to for move in admin.reset_group(group, topic, to=2)] == [2]
        assert [row.lag for row in admin.group_lag(group)] == [3]
        admin.delete_group(group)
        with pytest.raises(KafkaNotFoundError, match=f"group {group} does not exist"):
            admin.describe_group(group)
        with pytest.raises(UsageError, match="unknown state 'busy' of a group: must be one of preparing"):
            admin.list_groups("busy")
