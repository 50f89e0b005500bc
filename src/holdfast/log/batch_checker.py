"""Where the records of produced batches are checked: small batches at once, others on threads of their own.

Decompressing is the cost, so what is small after it is checked on the event loop, within a bound: a batch that turns out to be
larger goes to a thread. There are few of these, so what bombs can take is so many times the limit of one batch. What many
requests that arrived together take is bounded, too: beyond so many bytes in one turn of the loop, batches go to a thread however
small they are.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final

from holdfast.log.batches import BatchRule, InvalidBatchError, RecordBatch, RecordBatchLimits
from holdfast.log.batches.batch_run import BatchRun, verify_run
from holdfast.log.batches.header import CODEC_MASK
from holdfast.log.batches.record_checks import check_records
from holdfast.log.settings import LogSettings
from holdfast.vocabulary.settings import KIB, MIB

_HERE_PACKED_MAX: Final = 16 * KIB  # compressed bytes beyond which nobody tries here
_HERE_LIMITS: Final = RecordBatchLimits(inflated_bytes_max=64 * KIB)  # measured: 0.1 ms, with gzip 0.3 ms
_TURN_BYTES_MAX: Final = 192 * KIB  # decompressed in one turn of the loop
_BATCH_COST_BYTES: Final = 2 * KIB  # what beginning to decompress takes
_HERE_PLAIN_MAX: Final = 2 * MIB  # bytes that need no decompression: 0.2 ms


class BatchChecker:
    """Checks batches as `LogSettings` ask for it."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._threads: ThreadPoolExecutor | None = None
        self._turn_bytes = 0  # decompressed in this turn of the loop

    def limits(self, limits: RecordBatchLimits) -> RecordBatchLimits:
        """A topic's limits, with the one of decompressed bytes: never less than a batch may have uncompressed."""
        return replace(limits, inflated_bytes_max=max(self._settings.inflated_bytes_max, limits.batch_bytes_max))

    def begin(
        self, batches: Sequence[RecordBatch], *, limits: RecordBatchLimits, keyed: bool
    ) -> "asyncio.Future[None] | None":
        """Check batches as `check_records` does. None: all is well; otherwise it is being decided, and the answer will raise."""
        if self.check_now(batches, limits=limits, keyed=keyed):
            return None
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._settings.check_threads, thread_name_prefix="batch-check")
        checked = asyncio.get_running_loop().run_in_executor(
            self._threads, partial(_check, batches, limits=limits, keyed=keyed)
        )
        checked.add_done_callback(_retrieve)
        return checked

    def check_now(self, batches: Sequence[RecordBatch], *, limits: RecordBatchLimits, keyed: bool) -> bool:
        """`begin` for what is small; False: it is not, and undecided."""
        if not keyed and self._settings.check_batches == "headers":
            return True
        size_bytes = sum(len(data) for _, data in batches)
        if not any(header.attributes & CODEC_MASK for header, _ in batches):
            if size_bytes <= _HERE_PLAIN_MAX:
                check_records(batches, limits=limits, keyed=keyed)
                return True
        elif size_bytes <= _HERE_PACKED_MAX:
            return self._check_packed(batches, keyed=keyed)
        return False

    def _check_packed(self, batches: Sequence[RecordBatch], *, keyed: bool) -> bool:
        """`check_now` for compressed batches, within what is left of the turn."""
        allowed = min(_HERE_LIMITS.inflated_bytes_max, _TURN_BYTES_MAX - self._turn_bytes) // len(batches)
        if allowed < _BATCH_COST_BYTES:
            return False
        if not self._turn_bytes:
            asyncio.get_running_loop().call_soon(self._end_turn)
        try:
            inflated = check_records(batches, limits=replace(_HERE_LIMITS, inflated_bytes_max=allowed), keyed=keyed)
        except InvalidBatchError as error:
            self._turn_bytes += allowed * len(batches)
            if error.rule is not BatchRule.INFLATED_SIZE:
                raise
            return False
        self._turn_bytes += inflated + len(batches) * _BATCH_COST_BYTES
        return True

    def _end_turn(self) -> None:
        self._turn_bytes = 0

    def verify_run(self, payloads: Sequence[bytearray], limits: RecordBatchLimits, *, keyed: bool) -> BatchRun | None:
        """The batches of payloads as one run, checked; None: `check_now` has to look at each."""
        return None if keyed else verify_run(payloads, limits=limits, records=self._settings.check_batches != "headers")

    def close(self) -> None:
        """Let the threads end."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)


def _check(batches: Sequence[RecordBatch], *, limits: RecordBatchLimits, keyed: bool) -> None:
    check_records(batches, limits=limits, keyed=keyed)


def _retrieve(checked: "asyncio.Future[None]") -> None:
    """Whoever waited for it may be gone: then nobody wants to hear of it."""
    if not checked.cancelled():
        checked.exception()
