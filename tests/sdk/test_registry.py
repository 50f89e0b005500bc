"""The registry through the door: a namespace bound to the connection, with consumers and coordinators made from it."""

import asyncio

import pytest

import holdfast
from holdfast.registry import Delivery, Message, RegistrySettings


class Numbers:
    async def next(self, partition: int, offset: int) -> Message:
        if offset >= 3:
            await asyncio.Event().wait()
        return Message(partition=partition, offset=offset, key=str(offset), value=b"")


async def test_a_consumer_gets_every_message_of_every_partition(hf: holdfast.Holdfast) -> None:
    jobs = hf.registry("jobs", partitions=4, settings=RegistrySettings(settle_ms=0))
    await jobs.initialize()
    seen: list[tuple[int, int]] = []
    complete = asyncio.Event()

    async def handle(delivery: Delivery) -> None:
        seen.append((delivery.message.partition, delivery.message.offset))
        if len(seen) == 12:
            complete.set()

    consumer = jobs.consumer("a", source=Numbers(), handler=handle)
    async with asyncio.timeout(20), jobs.coordinator().running(), consumer.following():
        await complete.wait()
    assert sorted(seen) == [(partition, offset) for partition in range(4) for offset in range(3)]
    assert {state.checkpoint for state in await jobs.partitions()} <= {2, 3}


async def test_namespaces_do_not_touch_each_other(hf: holdfast.Holdfast) -> None:
    jobs, mails = hf.registry("jobs", partitions=2), hf.registry("mails", partitions=3)
    await jobs.initialize()
    await mails.initialize()
    assert await jobs.claim(0, "a", 0)
    assert [state.owner for state in await mails.partitions()] == [None, None, None]


async def test_another_number_of_partitions_is_refused(hf: holdfast.Holdfast) -> None:
    await hf.registry("jobs", partitions=2).initialize()
    with pytest.raises(holdfast.InvalidError, match="invalid partitions of registry 'jobs' 3: must be 2"):
        await hf.registry("jobs", partitions=3).initialize()
