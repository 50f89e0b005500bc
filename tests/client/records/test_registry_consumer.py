"""Consumers of a registry: partitions claimed through a store, checkpoints fenced, also for a process that was frozen."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.broker import Broker
from tests.support.server_process import environment, produce
from tests.support.waiting import async_until, until

import holdfast
from holdfast.client import Consumer, ConsumerSettings, TopicPartition
from holdfast.registry import RegistrySettings
from holdfast.vocabulary.errors import FencedError, InvalidError

EXPLICIT = ConsumerSettings(auto_commit_interval_ms=0, fetch_wait_ms=20)

FROZEN = """
import asyncio, sys
from pathlib import Path
import holdfast
from holdfast.client import Consumer, ConsumerSettings
from holdfast.registry import RegistrySettings

async def main(bootstrap, topic, store, told):
    settings = RegistrySettings(partitions=1, ttl_ms=2_000, settle_ms=0)
    async with holdfast.connect(store) as hf:
        registry = hf.registry("billing", settings=settings)
        consumer = Consumer.from_registry(
            bootstrap, topic, registry, name="frozen", settings=ConsumerSettings(auto_commit_interval_ms=0)
        )
        async with consumer:
            await consumer.fetch(3)
            await consumer.commit()
            await consumer.fetch(3)
            Path(told).write_text("processing")
            while not Path(told + ".go").exists():
                await asyncio.sleep(0.01)
            try:
                await consumer.commit()
            except holdfast.FencedError as error:
                print(type(error).__name__, error.epoch, error.current, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_partitions_are_shared_and_each_record_is_checkpointed_once(broker: Broker) -> None:
    topic = broker.create_topic("shared", 4)
    for number in range(4):
        produce(broker.bootstrap, topic, *map(str, range(10)), partition=number)
    settings = RegistrySettings(partitions=4, ttl_ms=10_000, settle_ms=0)
    read: list[tuple[int, int]] = []
    async with holdfast.connect("memory:") as hf:
        registry = hf.registry("billing", settings=settings)

        async def work(consumer: Consumer) -> None:
            try:
                records = await consumer.fetch(timeout_ms=20)
                await consumer.commit()
            except FencedError:  # moved to the other one before it was committed, which reads it again
                return
            read.extend((record.partition, record.offset) for record in records)

        first = Consumer.from_registry(broker.bootstrap, topic, registry, name="ann", settings=EXPLICIT)
        second = Consumer.from_registry(broker.bootstrap, topic, registry, name="bob", settings=EXPLICIT)
        async with first, second:
            await async_until(lambda: len(first.assignment) == len(second.assignment) == 2)
            while len(set(read)) < 40:
                await work(first)
                await work(second)
        assert sorted(read) == [(partition, offset) for partition in range(4) for offset in range(10)]
        assert [state.checkpoint for state in await registry.partitions()] == [10] * 4
        assert [state.owner for state in await registry.partitions()] == [None] * 4


async def test_a_consumer_that_was_frozen_is_replaced_and_its_late_commit_is_refused(
    broker: Broker, tmp_path: Path
) -> None:
    topic = broker.create_topic("frozen")
    produce(broker.bootstrap, topic, *map(str, range(6)))
    store, told = f"sqlite:///{tmp_path / 'work.db'}", tmp_path / "told"
    child = subprocess.Popen(  # noqa: ASYNC220 (a moment)
        [sys.executable, "-c", FROZEN, broker.bootstrap, topic, store, str(told)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        await asyncio.to_thread(until, told.exists, what="the child has read the second batch")
        os.kill(child.pid, signal.SIGSTOP)
        settings = RegistrySettings(partitions=1, ttl_ms=2_000, settle_ms=0)
        async with holdfast.connect(store) as hf:
            registry = hf.registry("billing", settings=settings)
            async with Consumer.from_registry(broker.bootstrap, topic, registry, name="awake") as consumer:
                found = await anext(consumer)
                assert found.offset == 3  # what was not checkpointed is read again
                epoch = (await registry.partitions())[0].epoch
                (tmp_path / "told.go").touch()
                os.kill(child.pid, signal.SIGCONT)
                out, _ = await asyncio.to_thread(child.communicate, timeout=60)
                words = out.split()
                assert words[0] == "FencedError"
                assert int(words[1]) < int(words[2])
                assert int(words[2]) >= epoch
                assert await consumer.committed(TopicPartition(topic, 0)) == {TopicPartition(topic, 0): 3}
    finally:
        child.kill()
        child.wait()


async def test_a_registry_belongs_to_one_topic_with_as_many_partitions(broker: Broker) -> None:
    topic, other = broker.create_topic("one"), broker.create_topic("other")
    async with holdfast.connect("memory:") as hf:
        three = hf.registry("three", partitions=3)
        with pytest.raises(InvalidError, match=f"must be 1, as topic {topic} has"):
            async with Consumer.from_registry(broker.bootstrap, topic, three, name="ann"):
                pass
        registry = hf.registry("one", partitions=1)
        async with Consumer.from_registry(broker.bootstrap, topic, registry, name="ann"):
            pass
        with pytest.raises(InvalidError, match=f"must be '{topic}', as it was bound"):
            async with Consumer.from_registry(broker.bootstrap, other, registry, name="ann"):
                pass


async def test_a_consumer_whose_name_is_taken_by_another_process_ends(broker: Broker) -> None:
    topic = broker.create_topic("named")
    async with holdfast.connect("memory:") as hf:
        registry = hf.registry("named", partitions=1)
        async with Consumer.from_registry(broker.bootstrap, topic, registry, name="ann") as first:
            await registry.register("ann")
            with pytest.raises(FencedError, match="consumer ann"):
                await first.fetch()
