"""Exchanges as topics, and temporary queues as their readers: how announcements, replies and events travel.

The rules: a temporary queue (auto-delete, exclusive, or one that expires) is no heap but a position in the topics of its exchanges:
it begins at their end, keeps what its bindings match, and nothing remains of it when its process is gone, or nobody refers to it.
Connections of one process that declare it have one and the same: Celery declares a queue for results with the connection that
sends a task, and consumes it with another one, later. A reader goes on whatever it meets: a worker without it obeys no command.
Topics forget by time.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from weakref import WeakSet, WeakValueDictionary, ref

from holdfast.celery.inbox import Inbox
from holdfast.celery.messages import decode, encode, safe_name
from holdfast.client.topic_log import LogEntry, TopicLog
from holdfast.heaps.background import BackgroundHeaps
from holdfast.log.topics import UnknownTopicError
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.tasks import raise_if_cancelled

_log: Final = logging.getLogger(__name__)

_CLOCK: Final = RealClock()
_RETRY_MS: Final = 1_000
_CONFIG: Final = {"retention.ms": str(3_600_000)}
_BUFFERED_MAX: Final = 10_000
_SUFFIX: Final = ".exchange"
_REPLIES: Final = "replies"  # of the exchange without a name: its routing keys are names of queues

Matches = Callable[[str], bool]


class TemporaryQueue:
    """What was read and not taken yet; the oldest is dropped when there is too much. `holders`: of connections that declared it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.buffered: deque[dict[str, Any]] = deque(maxlen=_BUFFERED_MAX)
        self.holders: WeakSet[Inbox] = WeakSet()
        self.readers: dict[tuple[str, str], asyncio.Task[None]] = {}
        self.binding = asyncio.Lock()
        self._consumers: dict[ref[Inbox], Callable[[], None]] = {}

    def put(self, message: dict[str, Any]) -> None:
        """On the thread of leases."""
        self.buffered.append(message)
        for inbox, on_ready in list(self._consumers.items()):
            _put(inbox, on_ready)

    def take(self) -> dict[str, Any] | None:
        """The oldest one, if there is one: other connections may take it."""
        try:
            return self.buffered.popleft()
        except IndexError:
            return None

    def consume(self, inbox: Inbox, on_ready: Callable[[], None]) -> None:
        """Have `on_ready` called for each message, also for those that are here."""
        self._consumers[ref(inbox, self._forget)] = on_ready
        for _ in range(len(self.buffered)):
            inbox.put(on_ready)

    def _forget(self, inbox: "ref[Inbox]") -> None:
        """Its connection was collected, and not closed."""
        self._consumers.pop(inbox, None)

    def cancel(self, inbox: Inbox) -> None:
        """Call it no more."""
        self._consumers.pop(ref(inbox), None)


@dataclass(slots=True)
class _Position:
    """Where a reader is. A topic that was deleted and created again has another id."""

    topic: str
    topic_id: str
    offset: int


class Exchanges:
    """The exchanges of one cluster, in one process."""

    def __init__(self, heaps: BackgroundHeaps, prefix: str) -> None:
        self._heaps, self._prefix = heaps, prefix
        self._known: set[str] = set()
        self._loaded = False
        self._queues: WeakValueDictionary[str, TemporaryQueue] = WeakValueDictionary()

    def declare(self, queue: str, holder: Inbox) -> TemporaryQueue:
        """The temporary queue of a name, for another connection."""
        return self._heaps.call(self._declare(queue, holder))

    def release(self, queue: TemporaryQueue, holder: Inbox) -> None:
        """A connection needs it no more."""
        queue.cancel(holder)
        self._heaps.call(self._release(queue, holder))

    def publish(self, exchange: str, routing_key: str, message: dict[str, Any], *, wait: bool) -> None:
        """Append a message to an exchange's topic; with `wait`, until it is durable."""
        self._load()
        work = self._append(self._topic(exchange), routing_key.encode(), encode(message))
        if wait:
            self._heaps.call(work)
        else:
            self._heaps.post(work)

    def bind(self, queue: TemporaryQueue, exchange: str, routing_key: str, matches: Matches) -> None:
        """Read messages whose routing key matches, from now on."""
        if (exchange, routing_key) not in queue.readers:
            self._load()
            self._heaps.call(self._bind(queue, exchange, routing_key, matches))

    def delete(self, queue: TemporaryQueue) -> None:
        """Read no more, and forget what was read."""
        self._heaps.call(self._delete(queue))

    def _load(self) -> None:
        if not self._loaded:
            TopicLog.load()  # on this thread: leases are renewed meanwhile
            self._loaded = True

    def _topic(self, exchange: str) -> str:
        return safe_name(self._prefix, (exchange or _REPLIES) + _SUFFIX)

    async def _ensure(self, topic: str) -> None:
        if topic not in self._known:
            await self._heaps.log.create(topic, _CONFIG)
            self._known.add(topic)

    async def _append(self, topic: str, key: bytes, value: bytes) -> None:
        await self._ensure(topic)
        try:
            await self._heaps.log.append(topic, key, value)
        except UnknownTopicError:  # it was deleted
            self._known.discard(topic)
            await self._ensure(topic)
            await self._heaps.log.append(topic, key, value)

    async def _declare(self, name: str, holder: Inbox) -> TemporaryQueue:
        found = self._queues.setdefault(name, TemporaryQueue(name))
        found.holders.add(holder)
        return found

    async def _release(self, queue: TemporaryQueue, holder: Inbox) -> None:
        queue.holders.discard(holder)
        if not queue.holders:
            await self._delete(queue)

    async def _delete(self, queue: TemporaryQueue) -> None:
        readers, queue.readers = list(queue.readers.values()), {}
        queue.buffered.clear()
        await _end(readers)

    async def _bind(self, queue: TemporaryQueue, exchange: str, routing_key: str, matches: Matches) -> None:
        async with queue.binding:
            if (exchange, routing_key) not in queue.readers:
                await self._begin(queue, exchange, routing_key, matches)

    async def _begin(self, queue: TemporaryQueue, exchange: str, routing_key: str, matches: Matches) -> None:
        topic = self._topic(exchange)
        await self._ensure(topic)
        found = await self._heaps.log.topic(topic)
        position = _Position(topic, found.id, await self._heaps.log.end(topic))
        reader = asyncio.ensure_future(self._read(position, matches, ref(queue)))
        queue.readers[exchange, routing_key] = reader
        self._heaps.loop.on_collected(queue, partial(_end, [reader]))

    async def _read(self, position: _Position, matches: Matches, queue: "ref[TemporaryQueue]") -> None:
        while True:
            try:
                await self._follow(position, matches, queue)
            except Exception as error:
                raise_if_cancelled()
                self._known.discard(position.topic)
                _log.warning("topic %s cannot be read, trying again: %r", position.topic, error)
            await _CLOCK.sleep_ms(_RETRY_MS)

    async def _follow(self, position: _Position, matches: Matches, queue: "ref[TemporaryQueue]") -> None:
        log = TopicLog(self._heaps.bootstrap)
        try:
            await self._ensure(position.topic)
            found = await log.topic(position.topic)
            if found.id != position.topic_id:  # nothing of it was read
                position.topic_id, position.offset = found.id, 0
            async for entry in log.follow(position.topic, position.offset):
                position.offset = entry.offset + 1
                _take(position.topic, entry, matches, queue)
        finally:
            await log.close()


def _take(topic: str, entry: LogEntry, matches: Matches, queue: "ref[TemporaryQueue]") -> None:
    found = queue()
    if found is None:
        return
    try:
        if matches(entry.key.decode()):
            found.put(decode(entry.value))
    except (UnicodeDecodeError, InvalidError) as error:
        _log.warning("record %d of topic %s is skipped: %s", entry.offset, topic, error)


def _put(inbox: "ref[Inbox]", call: Callable[[], None]) -> None:
    found = inbox()
    if found is not None:
        found.put(call)


async def _end(readers: list[asyncio.Task[None]]) -> None:
    here = [
        reader for reader in readers if reader.get_loop() is asyncio.get_running_loop()
    ]  # not those of a parent process
    for reader in here:
        reader.cancel()
    if here:
        await asyncio.wait(here)


def matcher(kind: str, routing_key: str, pattern: str | None) -> Matches:
    """Which routing keys a binding matches."""
    if kind == "fanout":
        return lambda _: True
    if kind == "topic" and pattern is not None:
        compiled = re.compile(pattern)
        return lambda key: compiled.match(key) is not None
    return lambda key: key == routing_key
