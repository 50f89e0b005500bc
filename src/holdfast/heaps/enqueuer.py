"""Enqueues of one client: those of one loop turn, and those that come while others are on their way, leave together.

The one rule: every message has a producer and a sequence number of its own, so that sending it again after a lost answer enqueues
it once. The producer is this very client: another one of the same name has messages of its own. One message that is refused takes
no other with it.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count as counted
from itertools import repeat
from typing import Final

import msgspec

from holdfast.heap.errors import ProducerFencedError, SequenceForgottenError
from holdfast.heap.model import Enqueued, NewMessage
from holdfast.heap.records import ProducerSequence
from holdfast.heap.routing import MessageRouter, routing_key
from holdfast.heap.wire import EnqueueBatchRequest, EnqueueRequest, HeapRequest
from holdfast.heaps.enqueue_lanes import (
    EnqueueOutcome,
    Lane,
    LaneRequest,
    SharedLane,
    WaitingMessages,
    cut,
    message_bytes,
)
from holdfast.heaps.nodes import HeapNodes
from holdfast.vocabulary.errors import HoldfastError, InvalidError
from holdfast.vocabulary.random import fast_share

_NAME_CHARS: Final = 200  # of the client's name, in its producer's
_ONE_MESSAGE: Final = (InvalidError, ProducerFencedError, SequenceForgottenError)  # what may be wrong with one alone


class Enqueuer:
    """The producer side of a client."""

    def __init__(self, nodes: HeapNodes, *, name: str, bytes_max: int, linger_ms: float) -> None:
        self._nodes, self.producer = nodes, f"{name[:_NAME_CHARS]}/{nodes.random.token()}"
        self._sequences = counted()
        self._router = MessageRouter()
        self._lanes: dict[tuple[str, int | None], Lane] = {}
        self._linger_s = linger_ms / 1_000
        self._tasks: set[asyncio.Task[None]] = set()
        self._bytes_max, self._bytes = bytes_max, 0
        self._room = asyncio.Event()
        self._room.set()

    async def enqueue(self, topic: str, partitions: int, message: NewMessage) -> Enqueued:
        """Enqueue a message; returns when it is durable. Waits while too many bytes are on their way."""
        (found,) = await self._give(topic, self._place(message, partitions), partitions, self._numbered((message,)))
        return _enqueued(found)

    async def enqueue_many(self, topic: str, partitions: int, messages: Sequence[NewMessage]) -> list[Enqueued]:
        """The same for many. One that is refused takes no other with it: its error is raised when all have an outcome."""
        numbered, sizes = self._numbered(messages), list(map(message_bytes, messages))
        if partitions == 1:
            places: dict[int | None, Sequence[int]] = {0: range(len(messages))}
        else:
            by_place: dict[int | None, list[int]] = defaultdict(list)
            for at, message in enumerate(messages):
                by_place[self._place(message, partitions)].append(at)
            places = dict(by_place)
        parts = [
            (place, mine[first:end]) for place, mine in places.items() for first, end in cut([sizes[at] for at in mine])
        ]
        if len(parts) == 1:
            return _all_enqueued(await self._give(topic, parts[0][0], partitions, numbered))
        given = [self._give(topic, place, partitions, [numbered[at] for at in mine]) for place, mine in parts]
        outcomes: dict[int, EnqueueOutcome] = {}
        for (_, mine), found in zip(parts, await asyncio.gather(*given), strict=True):
            outcomes.update(zip(mine, found, strict=True))
        return _all_enqueued([outcomes[at] for at in range(len(numbered))])

    def _place(self, message: NewMessage, partitions: int) -> int | None:
        """The partition of a message; None: any."""
        if partitions > 1 and routing_key(message) is None:
            return None
        return self._router.partition(message, partitions)

    def _numbered(self, messages: Sequence[NewMessage]) -> list[NewMessage]:
        """The messages with a producer and a sequence number each. They are sent to no other partition than their first one."""
        each = zip(repeat(self.producer), repeat(0), self._sequences, strict=False)
        own, replace = map(tuple.__new__, repeat(ProducerSequence), each), msgspec.structs.replace
        return [
            replace(message, producer=next(own), pinned=True) if message.producer is None else message
            for message in messages
        ]

    async def enqueue_batch(self, topic: str, partitions: int, messages: Sequence[NewMessage]) -> list[Enqueued]:
        """All of them or none, also over several partitions. Sent again it goes to the same partitions, and happens once."""
        if not messages:
            return []
        places = self._router.batch(messages, partitions)
        numbered, lowest = self._numbered(messages), min(places)
        request: HeapRequest = EnqueueRequest(topic=topic, partition=lowest, messages=numbered)
        if lowest != max(places):
            request = EnqueueBatchRequest(topic=topic, partition=lowest, messages=numbered, places=places)
        async with self._on_their_way(sum(map(message_bytes, messages))):
            found: list[Enqueued] = await self._nodes.call(request, again=True)
        return found

    @asynccontextmanager
    async def _on_their_way(self, size_bytes: int) -> AsyncIterator[None]:
        """Payloads that count against the limit during the body, which waits for room."""
        await self._has_room()
        self._bytes += size_bytes
        try:
            yield
        finally:
            self._release(size_bytes)

    def _release(self, size_bytes: int) -> None:
        self._bytes -= size_bytes
        self._room.set()

    async def _give(
        self, topic: str, partition: int | None, partitions: int, messages: list[NewMessage]
    ) -> list[EnqueueOutcome]:
        await self._has_room()
        lane = self._lanes.get((topic, partition))
        if lane is None:
            # It is gone when it is idle: its turns begin anywhere, so that rare messages go to all partitions, too.
            lane = SharedLane(int(fast_share() * partitions)) if partition is None else Lane(partition)
            self._lanes[topic, partition] = lane
        if isinstance(lane, SharedLane):
            lane.partitions = partitions
        loop = asyncio.get_running_loop()
        given = WaitingMessages(messages, sum(map(message_bytes, messages)), loop.create_future())
        lane.add(given)
        if not lane.is_scheduled:
            lane.is_scheduled = True
            loop.call_soon(self._gather, topic, partition, lane)
        self._bytes += given.size_bytes
        try:
            return await given.answer
        finally:
            if not given.is_taken:  # it was cancelled; what is on its way counts until it is answered
                given.messages.clear()
                self._release(given.size_bytes)

    async def _has_room(self) -> None:
        while self._bytes >= self._bytes_max:
            self._room.clear()
            await self._room.wait()

    async def flush(self) -> None:
        """Return when everything that was given has an answer."""
        while self._tasks or any(lane.waiting for lane in self._lanes.values()):
            await asyncio.sleep(0) if not self._tasks else await asyncio.wait(self._tasks)  # noqa: TID251

    def _gather(self, topic: str, place: int | None, lane: Lane) -> None:
        lane.is_scheduled = False
        if not lane.lingers():
            self._send(topic, place, lane)
        elif lane.timer is None:
            lane.timer = asyncio.get_running_loop().call_later(self._linger_s, self._send, topic, place, lane)

    def _send(self, topic: str, place: int | None, lane: Lane) -> None:
        """Send what waits."""
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        while lane.waiting and lane.has_room():
            if taken := lane.take():
                task = asyncio.ensure_future(self._deliver(topic, place, lane, lane.begin(), taken))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        if lane.is_idle and self._lanes.get((topic, place)) is lane:
            del self._lanes[topic, place]  # its heap may be gone

    async def _deliver(
        self, topic: str, place: int | None, lane: Lane, request: LaneRequest, taken: list[WaitingMessages]
    ) -> None:
        messages = [each for some in taken for each in some.messages]
        try:
            outcomes = await self._together(topic, request.partition, messages)
        except BaseException as error:
            for some in taken:
                if not some.answer.done():
                    some.answer.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            at = 0
            for some in taken:
                if not some.answer.done():
                    some.answer.set_result(outcomes[at : at + len(some.messages)])
                at += len(some.messages)
        finally:
            self._release(sum(some.size_bytes for some in taken))
            lane.end(request)
            self._send(topic, place, lane)

    async def _together(self, topic: str, partition: int, messages: list[NewMessage]) -> list[EnqueueOutcome]:
        outcomes: list[EnqueueOutcome] = []
        parts, halvings = [messages], len(messages) // 4
        while parts:
            part = parts.pop()
            try:
                outcomes += await self._nodes.call(
                    EnqueueRequest(topic=topic, partition=partition, messages=part), again=True
                )
            except HoldfastError as error:
                if len(part) == 1 or not isinstance(error, _ONE_MESSAGE):
                    outcomes += [error] * len(part)  # sent one by one, each would get it after as long a time
                    continue
                # Whose fault it is shows when each half is sent by itself, or, if it is many's, each message; what was
                # enqueued is a duplicate.
                size = (len(part) + 1) // 2 if halvings > 0 else 1
                parts += [part[at : at + size] for at in reversed(range(0, len(part), size))]
                halvings -= 1
        return outcomes


def _all_enqueued(outcomes: list[EnqueueOutcome]) -> list[Enqueued]:
    return [outcome if type(outcome) is Enqueued else _enqueued(outcome) for outcome in outcomes]


def _enqueued(outcome: EnqueueOutcome) -> Enqueued:
    if isinstance(outcome, HoldfastError):
        raise outcome
    return outcome
