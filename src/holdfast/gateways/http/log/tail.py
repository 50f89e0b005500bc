"""The tail of a topic as server-sent events: each record as it becomes visible, until the request has to end.

The rules: every event's id is the position after it, in all partitions, so that a client that connects again with `Last-Event-ID`
misses nothing. A tail ends before the time limit of requests and when the server stops; the browser's EventSource then connects
again by itself. What waits to be sent is bounded: a slow reader stops the reads, and holds up nobody else.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from holdfast.gateways.http.log.records import from_record
from holdfast.gateways.log_access.log_reads import LogReads, ReadResult
from holdfast.gateways.log_access.topic_tail import Followed, ReadSizes, following
from holdfast.log.topics import Topic
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, InvalidError

_BEAT_MS: Final = 10_000
_RETRY: Final = b"retry: 200\n\n"
_ALIVE: Final = b": alive\n\n"

Positions = dict[int, int]
"""Partition → the next offset."""


def parse_event_id(text: str) -> Positions:
    """The positions in a `Last-Event-ID`."""
    try:
        pairs = (each.split(":") for each in text.split(",") if each)
        return {int(partition): int(offset) for partition, offset in pairs}
    except ValueError:
        raise InvalidError("Last-Event-ID", text[:100], "the id of an event of this topic") from None


async def tail_events(
    reading: LogReads,
    topic: Topic,
    positions: Mapping[int, int],
    *,
    clock: Clock,
    until_ms: float,
    stop: asyncio.Event,
    ended: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> AsyncIterator[bytes]:
    """The events from these positions on, until the clock reaches `until_ms`, `stop` is set, or `ended` returns."""
    at = dict(positions)
    yield _RETRY
    ends = (stop.wait(), *([ended()] if ended is not None else ()))
    async with following(reading, topic, at, sizes=ReadSizes(), ends=ends, skip_removed=True) as found:
        while not found.over and (left_ms := until_ms - clock.boot_ms()) > 0:
            item: Followed | None = None
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left_ms, _BEAT_MS) / 1000):
                    item = await found.queue.get()
            if found.over:
                return
            if item is None:
                yield _ALIVE
            elif isinstance(item, HoldfastError):
                return  # the client connects again, and hears of it if it lasts
            else:
                yield _encode(at, *item)


def _encode(at: Positions, partition: int, result: ReadResult) -> bytes:
    """The events of one read; moves `at`."""
    out = bytearray()
    for record in result.records:
        at[partition] = record.offset + 1
        data = msgspec.json.encode(from_record(partition, record))
        out += b"id: %b\ndata: %b\n\n" % (_event_id(at), data)
    at[partition] = result.next_offset
    return bytes(out) or _ALIVE


def _event_id(at: Mapping[int, int]) -> bytes:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(at.items())).encode()
