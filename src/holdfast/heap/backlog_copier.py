"""When parts of a backlog are copied into files (`spilled_messages`) before anybody pops them, so that the first pops find them.

The one rule: one part at a time, and only what is worth it: of a backlog that has outgrown memory, is popped at all, and leaves
space to those that are popped. Whoever pops waits for the part that is under way at most, and copies the rest without a limit.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from holdfast.heap.payload_spill import SpillSpace
from holdfast.heap.spilled_messages import SpilledMessages
from holdfast.log.owned_partition import OwnedPartition

_log: Final = logging.getLogger(__name__)

PART: Final = 131_072  # records of the log that are copied at once
_PART_MIN: Final = 16_384  # the same of a backlog that does not grow
_LEFT: Final = 4  # a part of the space that is left to those who pop
_GROWN: Final = 4  # a part of a backlog, until it is looked at again whether files are worth it


class BacklogCopier:
    """Copies the backlog of one leadership. `is_unused`: nobody popped from its files, which were given up."""

    def __init__(self, log: OwnedPartition, space: SpillSpace, files: SpilledMessages) -> None:
        self._log, self._space, self._files = log, space, files
        self._part: asyncio.Task[None] | None = None
        self._seen_end = 0  # of the log at the last look
        self._worth_from = 0  # messages
        self.is_unused = False

    def reset(self) -> None:
        """There is no backlog any more: the next one is looked at anew."""
        self._worth_from, self.is_unused = 0, False

    def is_due(self, messages: int) -> bool:
        """Whether a part is to be copied now of a backlog of so many messages."""
        space = self._space
        if self._part is not None or self.is_unused or messages < self._worth_from:
            return False
        if space.bytes > space.bytes_max * (_LEFT - 1) // _LEFT or not space.free_bytes():
            return False
        end, seen = self._log.high_watermark, self._seen_end
        self._seen_end = end
        if not self._files:
            return True
        newer = end - self._files.end  # what comes now may come in pieces that are worth it
        return newer >= PART or (end == seen and newer >= _PART_MIN)

    async def copy(self, part: Callable[[], Coroutine[Any, Any, None]], messages: int) -> int:
        """Have a part copied; how many bytes that were. If it was not worth a file, it is tried when there are more messages."""
        before = self._space.bytes
        self._part = asyncio.ensure_future(part())
        self._part.add_done_callback(self._report)
        try:
            await self.ended()
        finally:
            self.stop()
            self._part = None
        if not self._files:
            self._worth_from = messages + messages // _GROWN
        return max(0, self._space.bytes - before)

    async def ended(self) -> None:
        """Return once no part is being copied."""
        if self._part is not None:
            await asyncio.wait({self._part})

    def stop(self) -> None:
        """Nobody needs the part that is being copied."""
        if self._part is not None:
            self._part.cancel()

    def _report(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("a backlog of %s is not copied: %s", self._log.partition_id, error, exc_info=error)
