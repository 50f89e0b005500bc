"""Dramatiq's own worker runs actors on heaps: urgent messages first, delayed ones in time, long ones once, failed ones kept."""

import threading
from collections.abc import Iterator
from pathlib import Path

import dramatiq
import pytest
from dramatiq.errors import QueueNotFound
from tests.support.server_process import ServeProcess
from tests.support.waiting import WAIT_S, until

from holdfast.dramatiq import HoldfastBroker
from holdfast.vocabulary.clock import RealClock


@pytest.fixture
def broker(node: ServeProcess, tmp_path: Path) -> Iterator[HoldfastBroker]:
    broker = HoldfastBroker(node.kafka, lease=2.0, prefix=f"{tmp_path.name}.")
    yield broker
    broker.close()


@pytest.mark.long
def test_urgent_messages_come_first_delayed_ones_in_time_and_a_long_one_once(broker: HoldfastBroker) -> None:
    ran: list[str] = []
    times: dict[str, int] = {}
    clock, go = RealClock(), threading.Event()

    @dramatiq.actor(broker=broker, actor_name="note")
    def note(name: str) -> None:
        ran.append(name)
        times[name] = clock.now_ms()
        if name == "long":
            go.wait(4.5)

    sent_ms = clock.now_ms()
    note.send_with_options(args=("later",), delay=1_000)
    for name, priority in (("low", 1), ("high", 9), ("long", 10)):
        note.send_with_options(args=(name,), broker_priority=priority)
    workers = [dramatiq.Worker(broker, worker_timeout=100, worker_threads=1) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        broker.join("default", timeout=round(WAIT_S * 1000))
    finally:
        for worker in workers:
            worker.stop()
    assert sorted(ran) == ["high", "later", "long", "low"], "each of them once"
    assert ran.index("high") < ran.index("low")
    assert times["later"] >= sent_ms + 1_000


def test_a_message_that_is_given_up_is_a_dead_letter(broker: HoldfastBroker) -> None:
    @dramatiq.actor(broker=broker, actor_name="fail", max_retries=0)
    def fail() -> None:
        raise ZeroDivisionError

    fail.send()
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()
    letters = broker.heap("default") + ".dlq"
    heaps = broker.heaps
    try:
        until(lambda: len(heaps.call(heaps.client.peek(letters))) == 1)
    finally:
        worker.stop()


def test_a_queue_that_was_not_declared_is_refused(broker: HoldfastBroker) -> None:
    with pytest.raises(QueueNotFound):
        broker.consume("nowhere")
