"""Consumers of a heap: of the SDK, by pops and by streams, and of the protocol itself, whose operations may come too late.

What they do with a message is chosen by chance: acknowledge it at once or after some work, refuse it, give it back, bury it, or
forget it with their whole client, as a process that dies does.
"""

import asyncio
from random import Random  # noqa: TID251 (seeded, for each client)
from typing import Any, Final

from tests.chaos.heaps.calls import Calls, Ending, delivered

from holdfast import heaps
from holdfast.heap.model import PoppedMessage
from holdfast.heap.wire import AckRequest, ExtendRequest, LostLease, NackRequest, PopRequest
from holdfast.heaps.nodes import HeapNodes
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.runtime import Runtime

CALL_S: Final = 4.0
LIFE_S: Final = (4.0, 15.0)
WAIT_S: Final = 1.0
DIES: Final = 0.5
VISIBILITY_S: Final = (1.0, 2.0, 4.0)
WORK_S: Final = (0.05, 2.5)
PAUSE_MS: Final = 50


class _Consumer:
    """What all of them have."""

    def __init__(self, calls: Calls, bootstrap: str, topic: str, random: Random) -> None:
        self._calls, self._bootstrap, self._topic, self._random = calls, bootstrap, topic, random
        self._clock = RealClock()

    async def _work(self) -> None:
        await self._clock.sleep_ms(self._random.uniform(*WORK_S) * 1000)

    async def run(self, ending: Ending) -> None:
        """One life after another, until it ends."""
        while not ending():
            dies_at_ms = self._clock.boot_ms() + self._random.uniform(*LIFE_S) * 1000
            await self._live(lambda until_ms=dies_at_ms: ending() or self._clock.boot_ms() > until_ms)  # type: ignore[misc]

    async def _live(self, is_over: Ending) -> None:
        raise NotImplementedError


class PoppingConsumer(_Consumer):
    """The SDK's `pop`, several messages at a time, worked on beside each other."""

    async def _live(self, is_over: Ending) -> None:
        async with heaps.connect(self._bootstrap, name=self._calls.name, timeout=CALL_S) as client:
            working: set[asyncio.Task[None]] = set()
            while not is_over():
                count, visibility = self._random.randrange(1, 6), self._random.choice(VISIBILITY_S)
                popped = client.pop(self._topic, max_messages=count, visibility=visibility, wait=WAIT_S)
                messages = await self._calls.pop(popped)
                working |= {asyncio.ensure_future(self._settle(message)) for message in messages}
                working = {task for task in working if not task.done() or task.exception()}
                if not messages:
                    await self._clock.sleep_ms(PAUSE_MS)
            if self._random.random() < DIES:
                for task in working:
                    task.cancel()
            for result in await asyncio.gather(*working, return_exceptions=True):
                if isinstance(result, Exception):
                    raise result

    async def _settle(self, message: heaps.Message) -> None:
        chance, settle = self._random.random(), self._calls.settle
        if chance < 0.2:
            await self._work()
        if message.is_lost:
            return
        if chance < 0.75:
            await settle("ack", message, message.ack(), exact=False)
        elif chance < 0.87:
            backoff = self._random.choice((None, 0.0, 0.3))
            await settle("nack", message, message.nack(backoff=backoff, reason="chaos"))
        elif chance < 0.95:
            await settle("release", message, message.release())
        elif chance < 0.97:
            await settle("bury", message, message.move_to_dead_letters("chaos"))
        # else: forgotten, and renewed until this client ends


class _FailedWork(Exception):  # noqa: N818 - of a handler
    """What a handler raises."""


class StreamingConsumer(_Consumer):
    """The SDK's `pop_stream`, with messages as context managers."""

    async def _live(self, is_over: Ending) -> None:
        async with heaps.connect(self._bootstrap, name=self._calls.name, timeout=CALL_S) as client:
            since_ms = self._calls.record.now_ms()
            stream = client.pop_stream(
                self._topic, prefetch=self._random.choice((1, 4)), visibility=self._random.choice(VISIBILITY_S)
            )
            taking = asyncio.ensure_future(anext(stream))
            try:
                while not is_over():
                    done, _ = await asyncio.wait({taking}, timeout=0.2)
                    if done:
                        await self._handle(taking.result(), since_ms)
                        taking = asyncio.ensure_future(anext(stream))
            finally:
                taking.cancel()
                await asyncio.gather(taking, return_exceptions=True)
                await stream.aclose()

    async def _handle(self, message: heaps.Message, since_ms: int) -> None:
        calls = self._calls
        calls.record(calls.name, "ok", "pop", since_ms=since_ms, messages=[delivered(message)])
        if self._random.random() < 0.2:
            await self._work()
        if self._random.random() < 0.1:
            await calls.settle("nack", message, self._leave(message, fail=True))
        else:
            await calls.settle("ack", message, self._leave(message), exact=False)

    async def _leave(self, message: heaps.Message, *, fail: bool = False) -> None:
        """The end of a body, which settles the message."""
        try:
            async with message:
                if message.is_lost:
                    raise heaps.LeaseLostError(message.topic, message.id, message.lost_reason)
                if fail:
                    raise _FailedWork("chaos")
        except _FailedWork:
            if message.is_lost:
                raise heaps.LeaseLostError(message.topic, message.id, message.lost_reason) from None


class LateConsumer(_Consumer):
    """The protocol itself: leases are renewed by hand, or run out; operations may come after that."""

    async def _live(self, is_over: Ending) -> None:
        nodes = HeapNodes(self._bootstrap, timeout_ms=round(CALL_S * 1000), runtime=Runtime())
        working: set[asyncio.Task[None]] = set()
        try:
            while not is_over():
                visibility_ms = round(self._random.choice(VISIBILITY_S) * 1000)
                request = PopRequest(
                    topic=self._topic,
                    consumer=self._calls.name,
                    max_messages=self._random.randrange(1, 4),
                    visibility_timeout_ms=visibility_ms,
                    wait_ms=WAIT_S * 1000,
                )
                messages: list[PoppedMessage] = await self._calls.pop(nodes.pop(request))
                working |= {asyncio.ensure_future(self._settle(nodes, each, visibility_ms)) for each in messages}
                working = {task for task in working if not task.done() or task.exception()}
                if not messages:
                    await self._clock.sleep_ms(PAUSE_MS)
            for result in await asyncio.gather(*working, return_exceptions=True):
                if isinstance(result, Exception):
                    raise result
        finally:
            nodes.close()

    async def _settle(self, nodes: HeapNodes, message: PoppedMessage, visibility_ms: int) -> None:
        chance = self._random.random()
        if chance < 0.25:  # too late, more often than not
            await self._clock.sleep_ms(visibility_ms * self._random.uniform(0.8, 2.5))
        elif chance < 0.5:
            await self._clock.sleep_ms(visibility_ms * self._random.uniform(0.1, 0.9))
            extend = ExtendRequest(
                topic=message.topic,
                partition=message.partition,
                tokens=[message.lease_token],
                extension_ms=visibility_ms,
            )
            if not await self._calls.settle("extend", message, self._held(nodes, extend)):
                return
            await self._clock.sleep_ms(visibility_ms * self._random.uniform(0.1, 0.9))
        told: dict[str, Any] = {"topic": message.topic, "partition": message.partition, "tokens": [message.lease_token]}
        if chance < 0.9:
            await self._calls.settle("ack", message, self._held(nodes, AckRequest(**told)))
        elif chance < 0.95:
            await self._calls.settle("nack", message, self._held(nodes, NackRequest(**told, backoff_ms=100)))
        # else: it runs out

    async def _held(self, nodes: HeapNodes, request: AckRequest | NackRequest | ExtendRequest) -> None:
        """Sent once. `LeaseLostError`."""
        (found,) = await nodes.call(request, again=False)
        if isinstance(found, LostLease):
            raise found.error(request.topic)
