"""A broker for Dramatiq: priorities and delays are the broker's, and a message is leased from its delivery to its acknowledgement.

The rules: there are no delay queues, and no ETA in a message: it is delivered when it is due. A message that Dramatiq gives up, or
cannot decode, is a dead letter of its heap.
"""

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from dramatiq import Broker, Consumer, Message, MessageProxy, Middleware
from dramatiq.errors import ConnectionClosed, DecodeError, QueueJoinTimeout, QueueNotFound

from holdfast.heaps import message as heap_message
from holdfast.heaps import task_queue
from holdfast.heaps.background import BackgroundHeaps, background_heaps
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError

_log: Final = logging.getLogger(__name__)

_CLOCK: Final = RealClock()
_JOIN_MS: Final = 50


class HoldfastBroker(Broker):  # type: ignore[misc]
    """Each queue is a heap, which is created when it is declared.

    `broker_priority` (an option of messages and actors: higher first) or else the actor's `priority` (lower first) is the message's
    priority. `lease`: seconds until a worker that is gone loses its messages. `partitions`, `queue_config`: of new heaps. `prefix`:
    before the names of heaps.
    """

    def __init__(
        self,
        bootstrap: str = "127.0.0.1:9092",
        *,
        lease: float = 30.0,
        partitions: int = 1,
        queue_config: Mapping[str, object] | None = None,
        prefix: str = "",
        middleware: list[Middleware] | None = None,
    ) -> None:
        super().__init__(middleware)
        self.actor_options |= {"broker_priority"}
        self._bootstrap, self.lease, self._prefix = bootstrap, lease, prefix
        self._partitions, self._config = partitions, task_queue.queue_config(lease, queue_config or {})

    @property
    def heaps(self) -> BackgroundHeaps:
        """The client of this process: after a fork, another one."""
        return background_heaps(self._bootstrap)

    def heap(self, queue_name: str) -> str:
        """The heap of a queue. `QueueNotFound`."""
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        return self._prefix + queue_name

    def declare_queue(self, queue_name: str) -> None:
        """Declare a queue; its heap is created when it is first used."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def enqueue(self, message: Message, *, delay: int | None = None) -> Message:
        """Enqueue a message, to be delivered after `delay` milliseconds; returns when it is durable."""
        try:
            heap = self._created(message.queue_name)
            self.emit_before("enqueue", message, delay)
            client = self.heaps.client
            self.heaps.call(
                client.enqueue(heap, message.encode(), priority=self._priority(message), delay=(delay or 0) / 1000)
            )
        except HoldfastError:
            if isinstance(message, LeasedMessage):
                message.is_retry_lost = True
            raise
        if isinstance(message, LeasedMessage):
            message.is_retry_lost = False
        self.emit_after("enqueue", message, delay)
        return message

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30_000) -> Consumer:
        """A consumer of a queue."""
        return HeapConsumer(self.heaps, self._created(queue_name), self.lease, prefetch, timeout)

    def flush(self, queue_name: str) -> None:
        """Drop all messages of a queue, those that are worked on, too."""
        self.heaps.call(self._purge(self._created(queue_name)))

    def flush_all(self) -> None:
        """Drop all messages of all declared queues."""
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, timeout: int | None = None) -> None:
        """Wait until a queue is empty. `QueueJoinTimeout`."""
        heap = self._created(queue_name)
        try:
            self.heaps.call(self._empty(heap), None if timeout is None else timeout / 1000)
        except TimeoutError:
            raise QueueJoinTimeout(queue_name) from None

    def _created(self, queue_name: str) -> str:
        heap = self.heap(queue_name)
        created = self.heaps.loop.resources.setdefault(("heaps", self._bootstrap), set())
        if heap not in created:
            client = self.heaps.client
            self.heaps.call(client.create(heap, partitions=self._partitions, config=self._config, exist_ok=True))
            created.add(heap)
        return heap

    def _priority(self, message: Message) -> int:
        actor = self.actors.get(message.actor_name)
        options = {**(actor.options if actor is not None else {}), **message.options}
        if options.get("broker_priority") is not None:
            return int(options["broker_priority"])
        return -actor.priority if actor is not None else 0

    async def _purge(self, heap: str) -> None:
        client = self.heaps.client
        await client.purge(heap, confirmation_token=await client.confirm("heap.purge", heap))

    async def _empty(self, heap: str) -> None:
        while any(each.ready + each.delayed + each.inflight for each in await self.heaps.client.stats(heap)):
            await _CLOCK.sleep_ms(_JOIN_MS)


class HeapConsumer(Consumer):  # type: ignore[misc]
    """The messages of one queue, at most `prefetch` of them leased at a time."""

    def __init__(self, heaps: BackgroundHeaps, heap: str, lease: float, prefetch: int, timeout: int) -> None:
        self._heaps, self._heap, self._lease, self._timeout_s = heaps, heap, lease, timeout / 1000
        self._slots = threading.Semaphore(prefetch)

    def __next__(self) -> "LeasedMessage | None":
        if not self._slots.acquire(timeout=self._timeout_s):
            return None
        popping = self._heaps.client.pop(self._heap, visibility=self._lease, wait=self._timeout_s)
        try:
            popped = self._heaps.call(popping)
        except HoldfastError as error:
            self._slots.release()
            raise ConnectionClosed(error) from None
        if not popped:
            self._slots.release()
            return None
        [leased] = popped
        try:
            return LeasedMessage(leased, self._slots)
        except DecodeError as error:
            _log.error("message %s of %s is not decoded, and a dead letter: %r", leased.id, leased.topic, error.error)
            reason = f"not decoded: {error.error!r}"
            self._settle(leased, self._slots, lambda message: message.move_to_dead_letters(reason))
            return None

    def ack(self, message: "LeasedMessage") -> None:
        """The message is done, or enqueued again. Dramatiq only logs that it could not be: then this one is tried again."""
        settle = _not_enqueued if message.is_retry_lost else heap_message.Message.ack
        self._settle(message.leased, message.slots, settle)

    def nack(self, message: "LeasedMessage") -> None:
        """Dramatiq gave it up: it is a dead letter."""
        self._settle(message.leased, message.slots, lambda leased: leased.move_to_dead_letters("rejected"))

    def requeue(self, messages: "Iterable[LeasedMessage]") -> None:
        """They were not worked on."""
        idle = list(messages)
        self._heaps.call(self._heaps.client.release([message.leased for message in idle]))
        for message in idle:
            message.slots.release()

    def _settle(self, leased: heap_message.Message, slots: threading.Semaphore, settle: Any) -> None:
        slots.release()
        self._heaps.post(self._settled(leased, settle))

    async def _settled(self, leased: heap_message.Message, settle: Any) -> None:
        if not await task_queue.settle(leased, settle):
            task_queue.log_refused(leased)


class LeasedMessage(MessageProxy):  # type: ignore[misc]
    """A message of Dramatiq and its lease. `slots`: of the consumer that it takes one of, which may be another one by now."""

    def __init__(self, leased: heap_message.Message, slots: threading.Semaphore) -> None:
        super().__init__(Message.decode(leased.payload))
        self.leased, self.slots = leased, slots
        self.is_retry_lost = False


async def _not_enqueued(leased: heap_message.Message) -> None:
    await leased.nack(reason="it failed, and could not be enqueued again")
