"""The history of a partition: what retention lets go of its log, once no message needs it.

The one rule: a record goes when it is older than both snapshots, and no message has its payload there. Messages that stay longer
than the history are written again first (COPY), under the same id; that is durable before a fenced commit moves the log's start.

A stretch of the log of which more than half is messages that wait is left as it is: to write them again would free too little, and
a heap that is larger than `retention_bytes` would be copied for ever. So a byte that is copied frees at least another one.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.heap.config import HeapConfig
from holdfast.heap.message_id import OFFSET_MAX
from holdfast.heap.partition import HeapPartition
from holdfast.heap.settings import HeapSettings
from holdfast.log.model import CleanupPolicy
from holdfast.log.owned_snapshots import KEPT
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)

_TOGETHER: Final = 500
_BYTES_TOGETHER: Final = 1 << 20


class HistoryKeeper:
    """Trims the log of one leadership. `keep_messages_ms`: how long messages stay, of a heap of dead letters; -1: for ever."""

    def __init__(
        self,
        partition: HeapPartition,
        settings: HeapSettings,
        *,
        keep_messages_ms: Callable[[], int],
        clock: Clock,
        random: Random,
    ) -> None:
        self._partition, self._settings, self._clock, self._random = partition, settings, clock, random
        self._keep_messages_ms = keep_messages_ms

    async def run(self) -> None:
        """Until the partition's view has ended."""
        while self._partition.ended is None:
            await self._clock.sleep_ms(self._random.jitter(self._settings.trim_interval_ms, share=0.2))
            try:
                await self.expire_dead_letters()
                await self.trim()
            except HoldfastError as error:
                if self._partition.ended is None:
                    which = self._partition.log.partition_id
                    _log.warning("the history of %s is not trimmed, retrying later: %s", which, error)

    async def trim(self) -> int:
        """Remove what may go; where the log starts now. Raises what storage raises; a death anywhere leaves a valid log."""
        log, state = self._partition.log, self._partition.state
        policy = history_policy(self._partition.rules.config)
        snapshots = log.snapshots.list.snapshots
        if policy is None or len(snapshots) < KEPT:
            return log.start_offset
        until = min(await log.retention_start(policy), snapshots[0].offset)
        if until <= log.start_offset or 2 * state.count_below(until) > until - log.start_offset:
            return log.start_offset
        await self._copy_forward(until)
        failpoints.reached("heap.copied-forward")
        return await log.trim(until, state.lowest_place)

    async def _copy_forward(self, until: int) -> None:
        """Write messages again whose records are below `until`, at a bounded rate."""
        state, start, count = self._partition.state, 0, 1
        while offsets := state.messages_below(until, start=start, count=count):
            start = offsets[-1] + 1
            copied_bytes = await self._partition.copy_forward(offsets)
            count = max(1, min(_TOGETHER, 2 * count, _BYTES_TOGETHER * len(offsets) // max(1, copied_bytes)))
            failpoints.reached("heap.copied-some")
            await self._clock.sleep_ms(copied_bytes * 1_000 / self._settings.copy_bytes_per_s)

    async def expire_dead_letters(self) -> int:
        """Withdraw dead letters that are older than the heap keeps them, except those that are leased; how many."""
        keep_ms, gone = self._keep_messages_ms(), 0
        while keep_ms >= 0:
            before_ms = self._partition.now_ms() - keep_ms
            oldest = self._oldest()
            stored = await self._partition.stored_at(oldest)
            old = [offset for offset in oldest if offset in stored and stored[offset].enqueued_ms < before_ms]
            gone += len(await self._partition.cancel(old))
            if len(old) < _TOGETHER:
                break
        return gone

    def _oldest(self) -> Sequence[int]:
        state = self._partition.state
        oldest = state.messages_below(OFFSET_MAX, start=0, count=_TOGETHER)
        return [offset for offset in oldest if offset in state and offset not in state.leases]


def history_policy(config: HeapConfig) -> CleanupPolicy | None:
    """What a heap's settings let go of its log; None: nothing."""
    if config.retention_ms < 0 and config.retention_bytes < 0:
        return None
    return CleanupPolicy(
        retention_ms=config.retention_ms if config.retention_ms >= 0 else None,
        retention_bytes=config.retention_bytes if config.retention_bytes >= 0 else None,
    )
