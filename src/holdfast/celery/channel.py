"""Kombu's channel on heaps: a queue is a heap, an exchange is a topic, a temporary queue reads topics.

The rules: a publish returns when the message is durable (but for transient ones: events). Nothing is put back when a channel closes
that a worker has started: its lease is renewed, and its ack still works.
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from queue import Empty
from typing import Any, Final
from weakref import WeakMethod

from kombu.transport import virtual

from holdfast.celery.broker import CeleryBroker
from holdfast.celery.deliveries import ChannelDeliveries
from holdfast.celery.exchanges import matcher
from holdfast.celery.messages import (
    PRIORITY_MAX,
    delay_of,
    delivered,
    delivery_tag,
    encode,
    priority_of,
    safe_name,
)
from holdfast.celery.signals import task_lost, was_killed
from holdfast.heap.administration import HeapDescription
from holdfast.heaps.message import Message
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError

_log: Final = logging.getLogger(__name__)

_CLOCK: Final = RealClock()
_TRANSIENT: Final = 1


class QoS(virtual.QoS):  # type: ignore[misc]
    """Settles leases. Safe from any thread, and after the channel closed."""

    restore_at_shutdown = False

    def __init__(self, channel: Any, prefetch_count: int = 0) -> None:
        super().__init__(channel, prefetch_count)
        self._on_collect.cancel()  # nothing is restored at the exit, and its registry keeps the channel from being collected

    def ack(self, delivery_tag: str) -> None:
        """The message is done; or its greenlet was killed, and it failed."""
        if was_killed(delivery_tag):
            self.reject(delivery_tag, requeue=True)
            return
        self.channel.deliveries.ack(delivery_tag)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """The message failed."""
        self.channel.deliveries.reject(delivery_tag, requeue=requeue)
        super().ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Give back what is not acknowledged."""
        self._flush()
        for tag in list(self._delivered):
            self.channel.deliveries.release(tag)
        self._delivered.clear()
        return []


class Channel(virtual.Channel):  # type: ignore[misc]
    """One channel."""

    QoS = QoS
    do_restore = False
    supports_fanout = True
    max_priority = PRIORITY_MAX

    def __init__(self, connection: Any, **options: Any) -> None:
        super().__init__(connection, **options)
        self._no_ack: set[str] = set()
        self._temporary_kinds: dict[str, bool] = {}
        self._settings = connection.settings
        self.deliveries = ChannelDeliveries(
            connection.heaps,
            connection.inbox,
            lease=self._settings.lease,
            declare=partial(self._broker.declared, settings=self._settings),
            on_message=_weak(self._on_message),
            on_lost=task_lost,
        )
        connection.heaps.loop.on_collected(self, self.deliveries.abandon)

    @property
    def _broker(self) -> CeleryBroker:
        """Looked up each time: a fork has its own."""
        broker: CeleryBroker = self.connection.broker
        return broker

    # ── queues ──

    def prepare_queue_arguments(self, arguments: Mapping[str, Any], **options: Any) -> dict[str, Any]:
        """Whether a queue expires decides what it is."""
        return {**arguments, "expires": options.get("expires")}

    def _new_queue(self, queue: str, **options: Any) -> None:
        temporary = any(
            (
                options.get("auto_delete"),
                options.get("exclusive"),
                (options.get("arguments") or {}).get("expires"),
            )
        )
        if temporary:
            declared = self.connection.temporary
            if queue not in declared:
                declared[queue] = self._broker.exchanges.declare(queue, self.connection.inbox)
            self._broker.exchanges.bind(declared[queue], "", queue, matcher("direct", queue, None))
        else:
            self._broker.declare(queue, self._settings)

    def _has_queue(self, queue: str, **options: Any) -> bool:
        if queue in self.connection.temporary:
            return True
        return self._broker.find(queue, self._settings) is not None

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        temporary = self.connection.temporary.get(queue)
        if temporary is not None:
            kind = self.typeof(exchange).type
            self._broker.exchanges.bind(temporary, exchange, routing_key, matcher(kind, routing_key, pattern))

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **options: Any) -> None:
        """Delete a queue and everything in it."""
        if if_empty and self._size(queue):
            return
        self._delete(queue)
        self.state.queue_bindings_delete(queue)
        for exchange in self.state.exchanges.values():
            exchange["table"] = [row for row in exchange["table"] if row[2] != queue]

    def _delete(self, queue: str, *args: Any, **options: Any) -> None:
        temporary = self.connection.temporary.pop(queue, None)
        if temporary is not None:
            self._broker.exchanges.delete(temporary)
        else:
            self.deliveries.cancel(queue)  # its consumer would declare it again
            self._broker.delete_queue(queue, self._settings)

    def _size(self, queue: str) -> int:
        temporary = self.connection.temporary.get(queue)
        if temporary is not None:
            return len(temporary.buffered)
        return int(self._broker.ready(queue, self._settings))

    def _purge(self, queue: str) -> int:
        """Remove what waits; not what a worker has, nor what is not due yet."""
        temporary = self.connection.temporary.get(queue)
        if temporary is not None:
            count = len(temporary.buffered)
            temporary.buffered.clear()
            return count
        return int(self._broker.purge(queue, self._settings))

    # ── publish ──

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **options: Any) -> None:
        """Publish a message to an exchange, or to the queue that the routing key names."""
        self._inplace_augment_message(message, exchange, routing_key)
        if not exchange:
            self._put(routing_key, message)
            return
        bound = self._lookup(exchange, routing_key)
        queues = [queue for queue in bound if queue and queue not in self.connection.temporary]
        for queue in queues:
            self._put(queue, message)
        if not queues or self.typeof(exchange).type != "direct":
            wait = message["properties"].get("delivery_mode") != _TRANSIENT
            self._broker.exchanges.publish(exchange, routing_key, message, wait=wait)

    def _put(self, queue: str, message: dict[str, Any], **options: Any) -> None:
        found = self._broker.known(queue, self._settings)
        if found is None:  # a temporary one, of this process or another
            self._broker.exchanges.publish("", queue, message, wait=True)
            return
        try:
            self._enqueue(found, message)
        except UnknownTopicError:  # it was deleted elsewhere; Kombu remembers that it was declared
            self._enqueue(self._broker.declare(queue, self._settings), message)

    def _enqueue(self, queue: HeapDescription, message: dict[str, Any]) -> None:
        heaps, priority = self._broker.heaps, priority_of(message)
        heaps.call(
            heaps.client.enqueue(
                queue.name,
                encode(message),
                priority=priority if queue.config.mode == "max" else -priority,
                delay=delay_of(message, _CLOCK.now_ms()),
            )
        )

    # ── consume ──

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """How many messages may be unacknowledged."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.deliveries.set_limit(prefetch_count)

    def basic_consume(self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **options: Any) -> None:
        """Consume a queue."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **options)
        if no_ack:
            self._no_ack.add(queue)
        temporary = self.connection.temporary.get(queue)
        if temporary is not None:
            temporary.consume(self.connection.inbox, partial(_weak(self._take), queue))
        else:
            self.deliveries.consume(queue, self._heap(queue))

    def basic_cancel(self, consumer_tag: str) -> None:
        """Consume it no more."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None:
            self._no_ack.discard(queue)
            temporary = self.connection.temporary.get(queue)
            if temporary is not None:
                temporary.cancel(self.connection.inbox)
            else:
                self.deliveries.cancel(queue)

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        temporary = self.connection.temporary.get(queue)
        if temporary is not None:
            message: dict[str, Any] | None = temporary.take()
            if message is None:
                raise Empty
            return message
        try:
            while (found := self.deliveries.get(self._heap(queue))) is not None:
                if (raw := self._delivered(queue, found)) is not None:
                    return raw
        except UnknownTopicError:
            raise Empty from None
        raise Empty

    def basic_get(self, queue: str, no_ack: bool = False, **options: Any) -> Any:
        """One message, or None."""
        message = super().basic_get(queue, no_ack=no_ack, **options)
        if message is not None and no_ack:
            self.deliveries.ack(message.delivery_tag)
        return message

    def _take(self, queue: str) -> None:
        temporary = self.connection.temporary.get(queue)
        if temporary is None or queue not in self.connection._callbacks:
            return
        message = temporary.take()
        if message is not None:
            self.connection._deliver(message, queue)

    def _on_message(self, queue: str, message: Message) -> None:
        tag = delivery_tag(message)
        if self.closed or queue not in self.connection._callbacks:
            self.deliveries.release(tag)  # the consumer was cancelled meanwhile
            return
        raw = self._delivered(queue, message)
        if raw is None:
            return
        if queue in self._no_ack:
            self.deliveries.ack(tag)
        self.connection._deliver(raw, queue)

    def _delivered(self, queue: str, message: Message) -> dict[str, Any] | None:
        """Kombu's message; None: it is not one, and a dead letter."""
        try:
            return delivered(message)
        except InvalidError as error:
            _log.error("message %s of queue %s is moved to the dead letters: %s", message.id, queue, error)
            self.deliveries.move_to_dead_letters(delivery_tag(message), str(error))
            return None

    def _heap(self, queue: str) -> str:
        return safe_name(self._settings.prefix, queue)

    def close(self) -> None:
        """Close it. What was not started is given back."""
        if not self.closed:
            super().close()
            self.deliveries.close()


def _weak(method: Callable[..., None]) -> Callable[..., None]:
    """Call a method, unless its object was collected."""
    found = WeakMethod(method)

    def call(*args: Any) -> None:
        if (bound := found()) is not None:
            bound(*args)

    return call
