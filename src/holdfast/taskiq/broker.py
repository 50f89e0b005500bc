"""A broker for taskiq: priorities and delays are the broker's, and a task is leased from its delivery to its acknowledgement.

The one rule: leases are renewed on a thread of their own, so a task that keeps the event loop busy keeps its message.
"""

import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from taskiq import AckableMessage, AsyncBroker, AsyncResultBackend, BrokerMessage

from holdfast.heaps import task_queue
from holdfast.heaps.background import BackgroundHeaps, background_heaps
from holdfast.heaps.message import Message
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_log: Final = logging.getLogger(__name__)

_WAIT_S: Final = 20.0


class HoldfastBroker(AsyncBroker):
    """Tasks in one heap, which is created at startup.

    Labels of a task: `priority` (a number, higher first) and `delay` (seconds until it may run). `lease`: seconds until a worker
    that is gone loses its tasks. `partitions`, `queue_config`: of a new heap.
    """

    def __init__(
        self,
        bootstrap: str = "127.0.0.1:9092",
        *,
        queue: str = "taskiq",
        lease: float = 30.0,
        partitions: int = 1,
        queue_config: Mapping[str, object] | None = None,
        result_backend: AsyncResultBackend[Any] | None = None,
    ) -> None:
        super().__init__(result_backend)
        self._bootstrap, self.queue, self._lease = bootstrap, queue, lease
        self._partitions, self._config = partitions, task_queue.queue_config(lease, queue_config or {})

    @property
    def heaps(self) -> BackgroundHeaps:
        """The client of this process."""
        return background_heaps(self._bootstrap)

    async def startup(self) -> None:
        """Create the queue, if it does not exist."""
        await super().startup()
        client = self.heaps.client
        await self.heaps.run(client.create(self.queue, partitions=self._partitions, config=self._config, exist_ok=True))

    async def kick(self, message: BrokerMessage) -> None:
        """Enqueue a task; returns when it is durable."""
        enqueuing = self.heaps.client.enqueue(
            self.queue,
            message.message,
            priority=int(_number(message.labels, "priority")),
            delay=max(0.0, _number(message.labels, "delay")),
        )
        await self.heaps.run(enqueuing)

    async def listen(self) -> AsyncGenerator[bytes | AckableMessage, None]:
        """Tasks for as long as it is iterated, one at a time: what is taken in advance hides what is more urgent."""
        attempt = 0
        while True:
            try:
                popped = await self.heaps.pop(self.queue, visibility=self._lease, wait=_WAIT_S)
            except HoldfastError as error:
                if task_queue.is_logged(attempt):
                    _log.warning("queue %s cannot be consumed, trying again: %s", self.queue, error)
                await task_queue.pause(attempt)
                attempt += 1
                continue
            attempt = 0
            for message in popped:
                yield AckableMessage(data=message.payload, ack=self._acknowledging(message))

    def _acknowledging(self, message: Message) -> Any:
        async def ack() -> None:
            if not await self.heaps.run(task_queue.settle(message, Message.ack)):
                task_queue.log_refused(message)

        return ack


def _number(labels: Mapping[str, Any], name: str) -> float:
    value = labels.get(name, 0)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InvalidError(f"label {name}", value, "a number") from None
