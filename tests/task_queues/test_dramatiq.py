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
from holdfast.dramatiq.broker import LeasedMessage
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError


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


def test_a_queue_is_flushed(broker: HoldfastBroker) -> None:
    heaps = broker.heaps
    for queue in ("default", "other"):
        broker.declare_queue(queue)
        for _ in range(3):
            broker.enqueue(dramatiq.Message(queue, "nobody", (), {}, {}))
    broker.flush("default")
    assert [each.ready for each in heaps.call(heaps.client.stats(broker.heap("default")))] == [0]
    assert [each.ready for each in heaps.call(heaps.client.stats(broker.heap("other")))] == [3]
    broker.flush_all()
    assert [each.ready for each in heaps.call(heaps.client.stats(broker.heap("other")))] == [0]


def test_a_message_that_cannot_be_decoded_is_a_dead_letter_and_takes_no_slot(broker: HoldfastBroker) -> None:
    broker.declare_queue("default")
    consumer = broker.consume("default", prefetch=1, timeout=20_000)
    heap, heaps = broker.heap("default"), broker.heaps
    bad = [b"\xff no message", b'{"\\ud800": 1, "args": []}', b"1"]
    for payload in bad:
        heaps.call(heaps.client.enqueue(heap, payload, priority=1))
    broker.enqueue(dramatiq.Message("default", "nobody", (), {}, {}))
    assert [next(consumer) for _ in bad] == [None] * 3
    message = next(consumer)
    assert message.actor_name == "nobody"
    consumer.ack(message)

    def letters() -> list[bytes]:
        return [each.payload for each in heaps.call(heaps.client.dead_letters(heap, reason_contains="not decoded"))]

    until(lambda: sorted(letters()) == sorted(bad))
    broker.join("default", timeout=round(WAIT_S * 1000))


def test_after_a_reconnection_no_more_is_prefetched_than_before(broker: HoldfastBroker) -> None:
    broker.declare_queue("default")
    for _ in range(4):
        broker.enqueue(dramatiq.Message("default", "nobody", (), {}, {}))
    before = broker.consume("default", prefetch=1, timeout=100)
    old = next(before)
    after = broker.consume("default", prefetch=1, timeout=100)
    new = next(after)
    after.ack(old)  # as Dramatiq does, with what it worked on while it connected again
    assert next(after) is None
    after.ack(new)
    last = next(after)
    assert last is not None
    after.requeue([last])
    assert next(after) is not None


def test_a_message_of_a_queue_that_is_deleted_meanwhile_is_given_up(broker: HoldfastBroker) -> None:
    began, go = threading.Event(), threading.Event()

    @dramatiq.actor(broker=broker, actor_name="work")
    def work() -> None:
        began.set()
        go.wait(WAIT_S)

    work.send()
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()
    heap, heaps = broker.heap("default"), broker.heaps
    try:
        assert began.wait(WAIT_S)
        token = heaps.call(heaps.client.confirm("heap.delete", heap))
        heaps.call(heaps.client.delete(heap, confirmation_token=token))
        go.set()
        until(lambda: heap not in {topic for topic, *_ in heaps.client._leases._renewals._held})
        until(lambda: not heaps.loop._running)
    finally:
        go.set()
        worker.stop()


def test_a_message_whose_retry_cannot_be_enqueued_is_tried_again(
    broker: HoldfastBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dramatiq enqueues it anew, logs that it could not, and acknowledges the first one."""
    tried: list[int] = []

    @dramatiq.actor(broker=broker, actor_name="second_time", min_backoff=1, max_backoff=1)
    def second_time() -> None:
        tried.append(1)
        if len(tried) == 1:
            raise ZeroDivisionError

    async def away(*given: object, **options: object) -> None:
        raise UnavailableError("node", "for the test")

    second_time.send()
    monkeypatch.setattr(broker.heaps.client, "enqueue", away)
    worker = dramatiq.Worker(broker, worker_timeout=100, worker_threads=1)
    worker.start()
    try:
        until(lambda: len(tried) == 2, within_s=10)
        broker.join("default", timeout=round(WAIT_S * 1000))
    finally:
        worker.stop()


def test_a_message_whose_retry_was_enqueued_in_the_end_is_done(
    broker: HoldfastBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise there would be two of it."""
    broker.declare_queue("ends")
    broker.enqueue(dramatiq.Message(queue_name="ends", actor_name="nobody", args=(), kwargs={}, options={}))
    consumer = broker.consume("ends", prefetch=1, timeout=100)
    found = until(lambda: next(consumer))
    assert isinstance(found, LeasedMessage)
    client = broker.heaps.client

    async def away(*given: object, **options: object) -> None:
        raise UnavailableError("node", "for the test")

    with monkeypatch.context() as patch:
        patch.setattr(client, "enqueue", away)
        with pytest.raises(UnavailableError):
            broker.enqueue(found)
    broker.enqueue(found)
    consumer.ack(found)
    heap = broker._created("ends")
    until(lambda: not sum(each.inflight for each in broker.heaps.call(client.stats(heap))))
    assert sum(each.ready + each.delayed for each in broker.heaps.call(client.stats(heap))) == 1
