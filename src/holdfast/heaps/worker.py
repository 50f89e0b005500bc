"""Workers: a function that is called for each message, several at a time, until it is told to stop.

The rules: a message is acknowledged when the function returns, and negatively when it raises. A worker that stops finishes what it
has begun; one that is cancelled gives everything back. When a lease is lost, a coroutine is cancelled: somebody else has the
message. A plain function runs on a thread and cannot be stopped; its acknowledgement is refused. The threads are the worker's own:
what the event loop needs for itself waits for none of them.
"""

import asyncio
import inspect
import logging
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Final

from holdfast.heap.errors import LeaseLostError
from holdfast.heaps.client import HeapClient, connect
from holdfast.heaps.message import Message
from holdfast.vocabulary.errors import HoldfastError

_log: Final = logging.getLogger(__name__)

_ABANDONED_MAX: Final = 32  # threads of functions that go on without a lease, while others are handled

Handler = Callable[[Message], Awaitable[object] | object]


class Worker:
    """A function and the heap whose messages it handles. Made by `worker`."""

    def __init__(self, topic: str, handler: Handler, *, concurrency: int, visibility: float | None) -> None:
        self.topic, self.handler = topic, handler
        self._concurrency, self._visibility = concurrency, visibility
        self._stop: asyncio.Event | None = None

    async def __call__(self, message: Message) -> None:
        """Handle one message, as a worker does, without settling it."""
        await self._call(message, None)

    async def serve(self, client: HeapClient) -> None:
        """Handle messages until `stop`, or until cancelled."""
        self._stop = stop = asyncio.Event()
        running: set[asyncio.Task[None]] = set()
        threads = ThreadPoolExecutor(self._concurrency + _ABANDONED_MAX, thread_name_prefix=f"worker-{self.topic}")
        stream = client.pop_stream(self.topic, prefetch=self._concurrency, visibility=self._visibility)
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set() and (message := await _next(client, stream, stopping)) is not None:
                task = asyncio.ensure_future(self._handle(message, threads))
                running.add(task)
                task.add_done_callback(running.discard)
            if running:
                await asyncio.wait(running)
        finally:
            stopping.cancel()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await stream.aclose()
            threads.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Take no more messages; `serve` returns when those that were begun are finished."""
        if self._stop is not None:
            self._stop.set()

    def run(self, bootstrap: str = "127.0.0.1:9092", **options: Any) -> None:
        """Serve in this process until SIGTERM or SIGINT. `options`: those of `connect`."""
        asyncio.run(self._run(bootstrap, options))

    async def _run(self, bootstrap: str, options: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        async with connect(bootstrap, **options) as client:
            await self.serve(client)

    async def _call(self, message: Message, threads: Executor | None) -> None:
        if inspect.iscoroutinefunction(self.handler):
            await self.handler(message)
        else:
            call = copy_context().run
            await asyncio.get_running_loop().run_in_executor(threads, call, self.handler, message)

    async def _handle(self, message: Message, threads: Executor) -> None:
        work = asyncio.ensure_future(self._settled(message, threads))
        lost = asyncio.ensure_future(message.lost.wait())
        try:
            await asyncio.wait((work, lost), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                _log.warning("the lease of message %s is lost while it is handled: cancelling", message.id)
                work.cancel()
            await asyncio.wait((work,))
            if not work.cancelled() and (error := work.exception()) is not None:
                raise error
        finally:
            lost.cancel()
            work.cancel()
            await asyncio.wait((work,))  # it gives the message back

    async def _settled(self, message: Message, threads: Executor) -> None:
        try:
            async with message:
                await self._call(message, threads)
        except LeaseLostError as error:
            _log.warning("%s", error)
        except HoldfastError as error:
            _log.warning("message %s of %s could not be settled: %s", message.id, message.topic, error)
        except Exception:
            _log.exception("message %s of %s failed", message.id, message.topic)


async def _next(
    client: HeapClient, stream: AsyncGenerator[Message, None], stopping: "asyncio.Future[Any]"
) -> Message | None:
    """The next message; None: there is to be none. One that comes in the moment in which this is cancelled is given back."""
    following = asyncio.ensure_future(anext(stream))
    try:
        await asyncio.wait((following, stopping), return_when=asyncio.FIRST_COMPLETED)
        if following.done():
            return following.result()
    except asyncio.CancelledError:
        await client.abandon(following)
        raise
    await client.abandon(following)
    return None


def worker(topic: str, *, concurrency: int = 1, visibility: float | None = None) -> Callable[[Handler], Worker]:
    """Make a worker of a function: `@worker("jobs", concurrency=8)`. It gets the message; a plain function runs on a thread."""

    def decorate(handler: Handler) -> Worker:
        return Worker(topic, handler, concurrency=concurrency, visibility=visibility)

    return decorate
