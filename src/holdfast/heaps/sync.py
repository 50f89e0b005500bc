"""The client of heaps for programs without an event loop: the same calls, which block. Usable from several threads.

The one rule: the loop runs on a thread of its own, and belongs to the process that connected. A fork connects anew.
"""

import asyncio
import os
from collections.abc import Awaitable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, TypeVar

from holdfast.client.loop_thread import LoopThread
from holdfast.heap.administration import HeapDescription
from holdfast.heap.dead_letters import DeadLetterReport
from holdfast.heap.model import Enqueued, NewMessage, PartitionStats, PeekedMessage
from holdfast.heaps import client as asynchronous
from holdfast.heaps.message import Message
from holdfast.vocabulary.errors import UsageError

__all__ = ["HeapClient", "SyncMessage", "connect"]

T = TypeVar("T")


class SyncMessage:
    """A leased message. As a context manager it is acknowledged at the end of the body, and negatively if that raises."""

    def __init__(self, message: Message, client: "HeapClient") -> None:
        self._message, self._client = message, client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def __repr__(self) -> str:
        return repr(self._message)

    @property
    def is_lost(self) -> bool:
        """Whether the lease was lost."""
        return self._message.is_lost

    def ack(self) -> None:
        """The work is done."""
        self._client._run(self._message.ack())

    def nack(self, *, backoff: float | None = None, reason: str = "") -> None:
        """The work failed."""
        self._client._run(self._message.nack(backoff=backoff, reason=reason))

    def release(self) -> None:
        """It was not worked on."""
        self._client._run(self._message.release())

    def __enter__(self) -> "SyncMessage":
        self._message.begin_work()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._message.end_work(kind, error, trace)
        self._client._run(self._message.settle_after(error))


class HeapClient:
    """Heaps of one cluster. A context manager."""

    def __init__(self, bootstrap: str = "127.0.0.1:9092", **options: Any) -> None:
        self._process = os.getpid()
        self._thread = LoopThread()
        self._stack = AsyncExitStack()
        self._client = self._run(self._stack.enter_async_context(asynchronous.connect(bootstrap, **options)))

    def submit(self, work: Awaitable[T]) -> "Future[T]":
        """Start a call of `asynchronous` on the client's thread."""
        if self._process != os.getpid():
            raise UsageError("this heap client belongs to another process: connect after the fork")
        return self._thread.submit(_awaited(work))

    @property
    def asynchronous(self) -> asynchronous.HeapClient:
        """The client below, for `submit`."""
        return self._client

    def create(self, topic: str, **options: Any) -> HeapDescription:
        """See `holdfast.heaps.HeapClient.create`."""
        return self._run(self._client.create(topic, **options))

    def update(self, topic: str, **changes: Any) -> HeapDescription:
        """See `holdfast.heaps.HeapClient.update`."""
        return self._run(self._client.update(topic, **changes))

    def describe(self, topic: str) -> HeapDescription:
        """How a heap is configured."""
        return self._run(self._client.describe(topic))

    def delete(self, topic: str, *, confirmation_token: str = "") -> None:
        """See `holdfast.heaps.HeapClient.delete`."""
        self._run(self._client.delete(topic, confirmation_token=confirmation_token))

    def enqueue_many(self, topic: str, messages: Sequence[NewMessage]) -> list[Enqueued]:
        """See `holdfast.heaps.HeapClient.enqueue_many`."""
        return self._run(self._client.enqueue_many(topic, messages))

    def ack(self, messages: Sequence[SyncMessage]) -> None:
        """The work on these is done. See `holdfast.heaps.HeapClient.ack`."""
        self._run(self._client.ack([each._message for each in messages]))

    def release(self, messages: Sequence[SyncMessage]) -> None:
        """These were not worked on. See `holdfast.heaps.HeapClient.release`."""
        self._run(self._client.release([each._message for each in messages]))

    def move_to_dead_letters(self, topic: str, message_id: str, reason: str = "") -> None:
        """See `holdfast.heaps.HeapClient.move_to_dead_letters`."""
        self._run(self._client.move_to_dead_letters(topic, message_id, reason))

    def dead_letters(self, topic: str, **chosen: Any) -> list[PeekedMessage]:
        """See `holdfast.heaps.HeapClient.dead_letters`."""
        return self._run(self._client.dead_letters(topic, **chosen))

    def replay_dead_letters(self, topic: str, **chosen: Any) -> DeadLetterReport:
        """See `holdfast.heaps.HeapClient.replay_dead_letters`."""
        return self._run(self._client.replay_dead_letters(topic, **chosen))

    def delete_dead_letters(self, topic: str, **chosen: Any) -> DeadLetterReport:
        """See `holdfast.heaps.HeapClient.delete_dead_letters`."""
        return self._run(self._client.delete_dead_letters(topic, **chosen))

    def flush(self) -> None:
        """See `holdfast.heaps.HeapClient.flush`."""
        self._run(self._client.flush())

    def enqueue(self, topic: str, payload: bytes, **options: Any) -> Enqueued:
        """See `holdfast.heaps.HeapClient.enqueue`."""
        return self._run(self._client.enqueue(topic, payload, **options))

    def enqueue_batch(self, topic: str, messages: Sequence[NewMessage]) -> list[Enqueued]:
        """See `holdfast.heaps.HeapClient.enqueue_batch`."""
        return self._run(self._client.enqueue_batch(topic, messages))

    def pop(
        self, topic: str, *, max_messages: int = 1, visibility: float | None = None, wait: float = 0
    ) -> list[SyncMessage]:
        """See `holdfast.heaps.HeapClient.pop`."""
        popped = self._take(self._client.pop(topic, max_messages=max_messages, visibility=visibility, wait=wait))
        return [SyncMessage(message, self) for message in popped]

    def pop_stream(self, topic: str, *, prefetch: int = 1, visibility: float | None = None) -> Iterator[SyncMessage]:
        """See `holdfast.heaps.HeapClient.pop_stream`."""
        stream = self._client.pop_stream(topic, prefetch=prefetch, visibility=visibility)
        try:
            while True:
                yield SyncMessage(self._take(anext(stream)), self)
        finally:
            self._run(stream.aclose())

    def peek(self, topic: str, *, limit: int = 10) -> list[PeekedMessage]:
        """What would be popped next, not leased."""
        return self._run(self._client.peek(topic, limit=limit))

    def stats(self, topic: str) -> list[PartitionStats]:
        """What is in each partition."""
        return self._run(self._client.stats(topic))

    def cancel(self, topic: str, message_id: str) -> None:
        """Withdraw a message."""
        self._run(self._client.cancel(topic, message_id))

    def reprioritise(self, topic: str, message_id: str, priority: int) -> None:
        """Give a message another priority."""
        self._run(self._client.reprioritise(topic, message_id, priority))

    def confirm(self, action: str, topic: str) -> str:
        """See `holdfast.heaps.HeapClient.confirm`."""
        return self._run(self._client.confirm(action, topic))

    def purge(self, topic: str, *, confirmation_token: str = "") -> int:
        """Withdraw every message; how many there were. See `holdfast.heaps.HeapClient.purge`."""
        return self._run(self._client.purge(topic, confirmation_token=confirmation_token))

    def close(self) -> None:
        """Finish what is on its way, and close."""
        if self._process == os.getpid():
            self._run(self._stack.aclose())
            self._thread.close()

    def _run(self, work: Awaitable[T]) -> T:
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _take(self, popping: Awaitable[T]) -> T:
        """What was popped. If the wait for it is interrupted (Ctrl-C), it has ended then, and what it got is given back."""
        begun: list[asyncio.Future[Any]] = []

        async def pop() -> T:
            begun.append(asyncio.ensure_future(popping))
            result: T = await begun[0]
            return result

        try:
            return self._run(pop())
        except BaseException:
            if begun:
                self._run(self._abandon(begun))
            raise

    async def _abandon(self, begun: "list[asyncio.Future[Any]]") -> None:
        for each in begun:
            await self._client.abandon(each)

    def __enter__(self) -> "HeapClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _awaited(work: Awaitable[T]) -> T:
    return await work


def connect(bootstrap: str = "127.0.0.1:9092", **options: Any) -> HeapClient:
    """A client that blocks. The options are those of `holdfast.heaps.connect`."""
    return HeapClient(bootstrap, **options)
