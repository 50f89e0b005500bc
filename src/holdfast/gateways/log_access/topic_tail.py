"""Partitions of a topic, read together as their records become visible.

The rules: what waits to be taken is bounded by one read: a slow reader stops the reads, and holds up nobody else. An error is
the last that is found, and so is the end of the server.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from holdfast.gateways.log_access.log_reads import LogReads, ReadResult
from holdfast.log.errors import OffsetOutOfRangeError
from holdfast.log.topics import Topic
from holdfast.vocabulary.errors import ClosedError, HoldfastError
from holdfast.vocabulary.tasks import background_tasks

PARTITIONS_MAX: Final = 64
_WAIT_MS: Final = 5_000

Followed = tuple[int, ReadResult] | HoldfastError
"""A partition and what was read of it, or why there is no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSizes:
    """How much of a partition is read at once."""

    records_max: int = 200
    bytes_max: int = 256 * 1024


class TopicTail:
    """What was read and not taken yet. `over`: there is an end that nothing more should be sent after."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Followed] = asyncio.Queue(maxsize=1)
        self.over = False

    async def end_with(self, what: Coroutine[Any, Any, object]) -> None:
        """Be over once this returns, before anything else that waits to be sent."""
        await what
        self.over = True
        await self.queue.put(ClosedError("the stream"))


@asynccontextmanager
async def following(
    reading: LogReads,
    topic: Topic,
    positions: Mapping[int, int],
    *,
    sizes: ReadSizes,
    ends: Sequence[Coroutine[Any, Any, object]],
    skip_removed: bool,
) -> AsyncIterator[TopicTail]:
    """The reads from these positions on, for the body. `ends`: the first that returns is the end of it.

    `skip_removed`: what retention has removed is no error.
    """
    found = TopicTail()

    async def follow(partition: int, offset: int) -> None:
        while True:
            try:
                result = await reading.read(
                    topic,
                    partition,
                    offset,
                    records_max=sizes.records_max,
                    bytes_max=sizes.bytes_max,
                    wait_ms=_WAIT_MS,
                )
            except OffsetOutOfRangeError as error:
                if not skip_removed or offset >= error.start:
                    await found.queue.put(error)
                    return
                offset = error.start
                continue
            except HoldfastError as error:
                await found.queue.put(error)
                return
            if result.next_offset != offset:
                await found.queue.put((partition, result))
            offset = result.next_offset

    async with background_tasks(*map(found.end_with, ends), *(follow(*each) for each in positions.items())):
        yield found
