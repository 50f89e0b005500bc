"""A slot's thread: claims and halts come in, progress goes out; the shell around a processor (`engines`).

The one rule: no insert is begun within the margin before the claims expire, and a batch that is under way then is cancelled. Time
is the boot clock's, which runs through suspend. Safety does not depend on it: the fences do that.
"""

import logging
from collections.abc import Callable
from threading import Condition, Thread
from typing import Final

from holdfast.pipeline.driver.engines import Processor, open_processor
from holdfast.pipeline.driver.slot_context import DriverResources
from holdfast.pipeline.driver.slot_revisions import PermanentError
from holdfast.pipeline.driver.streaming.stream_processor import StreamProcessor
from holdfast.pipeline.model.driver_protocol import (
    FromDriver,
    PartitionsReleased,
    RunSlot,
    SlotClaims,
    SlotFailed,
    SlotFinished,
    SlotHalted,
    slot_title,
)
from holdfast.vocabulary.errors import UnavailableError

_log: Final = logging.getLogger(__name__)

SendMessage = Callable[[FromDriver], None]

_STUCK_MS: Final = 2_000  # beyond the end of a halt; the worker kills a driver whose slot has not halted after 5 s


class SlotThread:
    """One slot. `set_claims`, `halt` and `cancel_overdue` are for the supervising loop."""

    def __init__(self, run: RunSlot, resources: DriverResources, send: SendMessage) -> None:
        self._run, self._resources, self._send = run, resources, send
        self._title = slot_title(run)
        self._changed = Condition()
        self._claims: dict[int, int] = {}
        self._revoked: dict[int, int] = {}  # by later claims; each is released, also one that was never taken over
        self._has_claims = False
        self._until_ms = 0
        self._halting = False
        self._halt_by_ms = 0
        self._at_work = False
        self._cancelled = False
        self._end_reported = False
        self._processor: Processor | None = None
        self._reported_ms = 0
        self._thread = Thread(target=self._serve, name=f"slot-{run.slot}", daemon=True)

    # --- for the supervising loop

    def start(self) -> None:
        """Start the thread; partitions come with the first `SlotClaims`."""
        self._thread.start()

    def set_claims(self, message: SlotClaims) -> None:
        """What the slot owns now, and until when."""
        with self._changed:
            claims = {int(number): epoch for number, epoch in message.epochs.items()}
            self._revoked |= {number: epoch for number, epoch in self._claims.items() if claims.get(number) != epoch}
            self._claims = claims
            self._until_ms, self._has_claims = message.until_ms, True
            self._changed.notify_all()

    def halt(self, within_ms: int) -> None:
        """Begin nothing new; the current batch is cancelled after `within_ms`."""
        with self._changed:
            self._halting, self._halt_by_ms = True, self._resources.clock.boot_ms() + within_ms
            self._changed.notify_all()

    def cancel_overdue(self, now_ms: int) -> None:
        """Cancel a batch one of whose jobs takes too long, whose claims expire, or that a halt does not wait for."""
        if not self._at_work or self._cancelled:
            return
        reason = ""
        if self._resources.jobs.running_ms(self._run.slot) > self._resources.settings.job_timeout_ms:
            reason = f"a job took more than {self._resources.settings.job_timeout_ms} ms"
        elif self._has_claims and now_ms >= self._until_ms - self._resources.settings.margin_ms:
            reason = "its claims expire"
        elif self._halting and now_ms >= self._halt_by_ms:
            reason = "the slot halts"
        if reason:
            self._cancelled = True
            _log.warning("%s: batch cancelled: %s", self._title, reason)
            self._resources.jobs.cancel(self._run.slot)

    def leave_behind_if_stuck(self, now_ms: int) -> None:
        """Report a halted slot as such although its thread is stuck, in a call of a sink that does not respond.

        The driver would be killed otherwise, with the slots of all other pipelines. What the call does later is fenced, like what a
        killed driver has sent. A streaming query is not left behind: Spark would go on with it.
        """
        with self._changed:
            overdue = self._halting and now_ms >= self._halt_by_ms + _STUCK_MS and self._thread.is_alive()
            if not overdue or self._end_reported or isinstance(self._processor, StreamProcessor):
                return
            self._end_reported = True
            self._send(SlotHalted(slot=self._run.slot))
        _log.warning("%s: its thread is stuck and is left behind", self._title)

    @property
    def ended(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    # --- the slot's own thread

    def _report_to_worker(self, message: FromDriver) -> None:
        """One that was left behind has nothing more to say: as far as the worker knows it has halted, and may run again."""
        with self._changed:
            if not self._end_reported:
                self._end_reported = isinstance(message, SlotHalted | SlotFailed)
                self._send(message)

    def _serve(self) -> None:
        processor: Processor | None = None
        try:
            processor = self._processor = self._opened()
            try:
                while processor is not None and not self._halting:
                    self._turn(processor)
            finally:
                if processor is not None:
                    processor.stop()
            self._report_to_worker(SlotHalted(slot=self._run.slot))
        except PermanentError as error:
            if processor is not None:
                self._report_to_worker(processor.progress())
            self._report_to_worker(SlotFailed(slot=self._run.slot, reason=str(error), lasting=True))
        except Exception as error:
            _log.exception("%s failed", self._title)
            self._report_to_worker(SlotFailed(slot=self._run.slot, reason=f"{type(error).__name__}: {error}"[:2_000]))
        finally:
            if processor is not None:
                processor.close()

    def _opened(self) -> Processor | None:
        """The processor of the pipeline's engine, once the store answers; None: the slot was halted before."""
        while not self._halting:
            try:
                return open_processor(self._run, self._resources, self._may_write)
            except UnavailableError as error:
                _log.warning("%s: %s", self._title, error)
                retry_ms = self._resources.clock.boot_ms() + self._resources.settings.retry_max_ms
                self._wait_for_change(dict(self._claims), retry_ms)
        return None

    def _turn(self, processor: Processor) -> None:
        with self._changed:
            claims, revoked = dict(self._claims), self._revoked
            self._revoked = {}
        processor.drop_unclaimed(claims)
        if revoked:
            epochs = {str(number): epoch for number, epoch in revoked.items()}
            self._report_to_worker(PartitionsReleased(slot=self._run.slot, epochs=epochs))
        batches = processor.counters.batches
        next_ms = self._resources.clock.boot_ms() + self._resources.settings.poll_ms
        if claims and self._may_write():
            self._at_work, self._cancelled = True, False
            try:
                next_ms = processor.turn(claims)
            finally:
                self._at_work = False
        self._report(processor, force=processor.counters.batches > batches)
        if claims and processor.finished(claims):
            self._report_to_worker(processor.progress())
            self._report_to_worker(SlotFinished(slot=self._run.slot))
            self._wait_for_change(claims, None)
        else:
            self._wait_for_change(claims, next_ms)

    def _wait_for_change(self, claims: dict[int, int], until_ms: int | None) -> None:
        """Until other partitions are claimed, the slot is halted, or the time has come."""
        with self._changed:
            while not self._halting and self._claims == claims and not self._revoked:
                now_ms = self._resources.clock.boot_ms()
                if until_ms is not None and now_ms >= until_ms:
                    return
                wait_ms = self._resources.settings.progress_ms if until_ms is None else until_ms - now_ms
                self._changed.wait(wait_ms / 1_000)

    def _report(self, processor: Processor, *, force: bool) -> None:
        now_ms = self._resources.clock.boot_ms()
        if force or now_ms >= self._reported_ms + self._resources.settings.progress_ms:
            self._reported_ms = now_ms
            self._report_to_worker(processor.progress())

    def _may_write(self) -> bool:
        left_ms = self._until_ms - self._resources.clock.boot_ms()
        return not self._halting and left_ms > self._resources.settings.margin_ms
