"""taskiq's own receiver runs tasks on a heap: urgent ones first, delayed ones in time, long ones once."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from taskiq import AckableMessage
from taskiq.receiver import Receiver
from taskiq.utils import maybe_awaitable
from tests.support.server_process import ServeProcess
from tests.support.waiting import async_until

from holdfast.taskiq import HoldfastBroker
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError


@pytest_asyncio.fixture
async def broker(node: ServeProcess, tmp_path: Path) -> AsyncIterator[HoldfastBroker]:
    broker = HoldfastBroker(node.kafka, queue=tmp_path.name, lease=2.0)
    await broker.startup()
    yield broker
    await broker.shutdown()


async def acknowledged(broker: HoldfastBroker) -> int:
    return sum(each.acked for each in await broker.heaps.run(broker.heaps.client.stats(broker.queue)))


@pytest.mark.long
async def test_urgent_tasks_run_first_delayed_ones_in_time_and_one_that_takes_several_leases_once(
    broker: HoldfastBroker,
) -> None:
    ran: list[str] = []
    times: dict[str, int] = {}
    clock = RealClock()

    @broker.task(task_name="note")
    async def note(name: str, seconds: float = 0) -> None:
        ran.append(name)
        times[name] = clock.now_ms()
        await clock.sleep_ms(seconds * 1000)

    sent_ms = clock.now_ms()
    await note.kicker().with_labels(delay=1).kiq("later")
    for name, priority in (("low", 1), ("high", 9)):
        await note.kicker().with_labels(priority=priority).kiq(name)
    await note.kicker().with_labels(priority=10).kiq("long", seconds=4.5)
    finish = asyncio.Event()
    receivers = [
        asyncio.ensure_future(Receiver(broker, max_async_tasks=1, run_startup=False).listen(finish)) for _ in range(2)
    ]
    try:
        await async_until(lambda: len(ran) >= 4)
        while await acknowledged(broker) < 4:
            await clock.sleep_ms(20)
    finally:
        finish.set()
        await asyncio.gather(*receivers)
    assert sorted(ran) == ["high", "later", "long", "low"], "each of them once"
    assert ran.index("long") < ran.index("low")
    assert ran.index("high") < ran.index("low")
    assert times["later"] >= sent_ms + 1_000


async def test_a_listener_that_stops_leaves_nothing_leased(broker: HoldfastBroker) -> None:
    listening = broker.listen()
    first = asyncio.ensure_future(anext(listening))
    client = broker.heaps.client
    await asyncio.wait((first,), timeout=0.05)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await listening.aclose()
    await broker.heaps.run(client.enqueue(broker.queue, b"x"))
    (message,) = await broker.heaps.pop(broker.queue, wait=20)
    assert message.payload == b"x"
    await broker.heaps.run(message.ack())


async def test_a_label_that_is_no_number_is_refused(broker: HoldfastBroker) -> None:
    @broker.task(task_name="refused")
    async def task() -> None: ...

    with pytest.raises(Exception) as raised:
        await task.kicker().with_labels(priority="urgent").kiq()
    assert isinstance(raised.value.__cause__, InvalidError)


async def test_a_listener_of_a_queue_that_is_deleted_pauses_longer_and_longer_and_goes_on_with_a_new_one(
    broker: HoldfastBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client, heaps = broker.heaps.client, broker.heaps
    listening = broker.listen()
    first = asyncio.ensure_future(anext(listening))
    token = await heaps.run(client.confirm("heap.delete", broker.queue))
    await heaps.run(client.delete(broker.queue, confirmation_token=token))
    await asyncio.wait((first,), timeout=3.0)
    assert not first.done()
    assert 1 <= len([each for each in caplog.records if "cannot be consumed" in each.message]) <= 3
    await broker.startup()
    await heaps.run(client.enqueue(broker.queue, b"x"))
    message = await first
    assert isinstance(message, AckableMessage)
    assert message.data == b"x"
    await maybe_awaitable(message.ack())
    await listening.aclose()


async def test_an_ack_of_a_queue_that_is_deleted_meanwhile_returns(broker: HoldfastBroker) -> None:
    client, heaps = broker.heaps.client, broker.heaps
    await heaps.run(client.enqueue(broker.queue, b"x"))
    listening = broker.listen()
    message = await anext(listening)
    assert isinstance(message, AckableMessage)
    token = await heaps.run(client.confirm("heap.delete", broker.queue))
    await heaps.run(client.delete(broker.queue, confirmation_token=token))
    await asyncio.wait_for(maybe_awaitable(message.ack()), 30)
    await listening.aclose()
