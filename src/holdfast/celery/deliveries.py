"""The leases of one channel: popped as its prefetch limit allows, handed to Kombu, settled from any thread.

The rules: everything but the public methods runs on the thread of leases. At most `limit` messages are popped and not settled; of
several queues that are popped at once, what is too much is given back, so that no message waits behind a busy worker. It outlives
its channel: Celery acknowledges running tasks after it closed it. A fork has no part in it: the leases are its parent's.
"""

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

from holdfast.celery.inbox import Inbox
from holdfast.celery.messages import delivery_tag, requeue_pause
from holdfast.heaps import task_queue
from holdfast.heaps.background import BackgroundHeaps
from holdfast.heaps.message import Message
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.tasks import Notify

_log: Final = logging.getLogger(__name__)

_POP_MAX: Final = 100
_WAIT_S: Final = 20.0
_RETRY_MS: Final = 200
_CLOCK: Final = RealClock()

Declare = Callable[[str], Awaitable[object]]
OnMessage = Callable[[str, Message], None]
OnLost = Callable[[Message, str], None]


class ChannelDeliveries:
    """What one channel has leased. `declare` a queue that is not there; `on_message` and `on_lost` are called on Kombu's thread.

    None of them may keep the channel from being collected: what pops for it lives on.
    """

    def __init__(
        self,
        heaps: BackgroundHeaps,
        inbox: Inbox,
        *,
        lease: float,
        declare: Declare,
        on_message: OnMessage,
        on_lost: OnLost,
    ) -> None:
        self._heaps, self._inbox, self._lease = heaps, inbox, lease
        self._declare, self._on_message, self._on_lost = declare, on_message, on_lost
        self._limit = 0
        self._out: dict[str, Message] = {}
        self._handed: set[str] = set()
        self._raised: set[str] = set()
        self._pops: dict[str, asyncio.Task[None]] = {}
        self._changed = Notify()

    # ── any thread ──

    def set_limit(self, limit: int) -> None:
        """How many messages may be leased at once; 0: as many as are handed over."""
        self._heaps.post(self._set_limit(limit))

    def consume(self, queue: str, heap: str) -> None:
        """Pop messages of a queue from now on."""
        self._heaps.post(self._consume(queue, heap))

    def cancel(self, queue: str) -> None:
        """Pop no more of a queue. Those on their way are given back."""
        if self._heaps.loop.is_inherited:
            return
        self._heaps.call(self._cancel(queue))

    def get(self, heap: str) -> Message | None:
        """One message, if there is one."""
        return self._heaps.call(self._get(heap))

    def ack(self, tag: str) -> None:
        """The message is done. Returns at once; it stays leased until the ack is durable. A refusal is told by `on_lost`."""
        self._heaps.post(self._settle(tag, lambda message: message.ack()))

    def reject(self, tag: str, *, requeue: bool) -> None:
        """The message failed: it is tried again, at most `max_retries` times, or becomes a dead letter."""
        if requeue:
            self._heaps.post(self._settle(tag, _requeue))
        else:
            self.move_to_dead_letters(tag, "rejected")

    def move_to_dead_letters(self, tag: str, reason: str) -> None:
        """Nobody can work on the message."""
        self._heaps.post(self._settle(tag, lambda message: message.move_to_dead_letters(reason)))

    def release(self, tag: str) -> None:
        """The message was not worked on."""
        self._heaps.post(self._settle(tag, lambda message: message.release()))

    def close(self) -> None:
        """Pop no more, and give back what was not started."""
        if self._heaps.loop.is_inherited:
            return
        self._heaps.call(self._close(started_tags()))

    # ── the thread of leases ──

    async def _set_limit(self, limit: int) -> None:
        self._limit = limit
        self._changed.notify()

    async def _consume(self, queue: str, heap: str) -> None:
        if queue not in self._pops:
            self._pops[queue] = asyncio.ensure_future(self._pop(queue, heap))

    async def _cancel(self, queue: str) -> None:
        task = self._pops.pop(queue, None)
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))

    def _room(self) -> int:
        if self._limit:
            return self._limit - len(self._out)
        return _POP_MAX - (len(self._out) - len(self._handed))

    async def _pop(self, queue: str, heap: str) -> None:
        while True:
            room = self._room()
            if room <= 0:
                await self._changed.wait()
                continue
            share = max(1, min(room // len(self._pops), _POP_MAX))
            try:
                popped = await self._popped(queue, heap, share)
            except (UnavailableError, OutcomeUnknownError):
                await _CLOCK.sleep_ms(_RETRY_MS)
                continue
            except HoldfastError as error:
                _log.warning("queue %s cannot be consumed, trying again: %s", queue, error)
                await _CLOCK.sleep_ms(_WAIT_S * 1000)
                continue
            room = max(0, self._room())
            self._keep(popped[:room])
            for message in popped[:room]:
                self._inbox.put(partial(self._hand_over, queue, message))
            await self._heaps.client.release(popped[room:])

    async def _popped(self, queue: str, heap: str, count: int) -> list[Message]:
        try:
            return await self._heaps.client.pop(heap, max_messages=count, visibility=self._lease, wait=_WAIT_S)
        except UnknownTopicError:  # with RabbitMQ, Celery declares it again when its consumer is cancelled
            _log.warning("queue %s was deleted, declaring it again", queue)
            await self._declare(queue)
            await _CLOCK.sleep_ms(_RETRY_MS)
            return []

    def _keep(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._out[delivery_tag(message)] = message
            message.on_lost = self._lost

    async def _get(self, heap: str) -> Message | None:
        popped = await self._heaps.client.pop(heap, visibility=self._lease)
        self._keep(popped)
        self._handed.update(map(delivery_tag, popped))
        return popped[0] if popped else None

    async def _settle(self, tag: str, settle: Callable[[Message], Awaitable[None]]) -> None:
        message = self._out.get(tag)
        if message is None:
            return  # of a temporary queue, settled before, or lost and told
        await task_queue.settle(message, settle)  # a loss is told by `_lost`
        self._forget(tag)

    def _lost(self, message: Message) -> None:
        self._forget(delivery_tag(message))
        reason = message.lost_reason
        self._inbox.put(lambda: self._on_lost(message, reason))

    def _forget(self, tag: str) -> None:
        self._out.pop(tag, None)
        self._handed.discard(tag)
        self._raised.discard(tag)
        self._changed.notify()

    async def abandon(self) -> None:
        """The channel was collected, with all that could settle its messages: they are given back."""
        await self._close(frozenset())

    async def _close(self, started: frozenset[str]) -> None:
        for queue in list(self._pops):
            await self._cancel(queue)
        idle = {tag: message for tag, message in self._out.items() if tag not in started and not message.settled}
        failed = [idle.pop(tag) for tag in self._raised & idle.keys()]
        for message in (*idle.values(), *failed):
            self._forget(delivery_tag(message))
        await self._heaps.client.release(list(idle.values()))
        for message in failed:
            with suppress(HoldfastError):
                await _requeue(message)

    # ── Kombu's thread ──

    def _hand_over(self, queue: str, message: Message) -> None:
        tag = delivery_tag(message)
        if tag in self._out:  # it may have been lost or given back meanwhile
            self._handed.add(tag)
            try:
                self._on_message(queue, message)
            except Exception:  # given back without an attempt, it would stop one worker after the other for ever
                self._raised.add(tag)
                raise
            self._heaps.post(self._note_handed())

    async def _note_handed(self) -> None:
        self._changed.notify()


def _requeue(message: Message) -> Awaitable[None]:
    return message.nack(backoff=requeue_pause(message.attempts), reason="requeued")


def started_tags() -> frozenset[str]:
    """The deliveries whose tasks run in this worker."""
    state = sys.modules.get("celery.worker.state")
    if state is None:
        return frozenset()
    return frozenset(str(request.message.delivery_tag) for request in list(state.active_requests))
