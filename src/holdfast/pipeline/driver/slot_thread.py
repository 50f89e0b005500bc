"""A slot's thread, and what it is told and tells: the shell around `SlotProcessor`.

The one rule: no insert is begun within the margin of the end of the claims, and what is under way then is cancelled. It is told
by the boot clock, which runs through suspend; safety does not hang on it, the fences see to that.
"""

import logging
from collections.abc import Callable
from threading import Condition, Thread
from typing import Final

from holdfast.pipeline.driver.slot_processor import DriverResources, SlotProcessor
from holdfast.pipeline.driver.slot_revisions import PermanentError
from holdfast.pipeline.model.driver_protocol import (
    FromDriver,
    PartitionsReleased,
    RunSlot,
    SlotClaims,
    SlotFailed,
    SlotFinished,
    SlotHalted,
)

_log: Final = logging.getLogger(__name__)

Say = Callable[[FromDriver], None]


class SlotThread:
    """One slot. `claims`, `halt` and `check` are for the bookkeeping thread."""

    def __init__(self, run: RunSlot, tools: DriverResources, say: Say) -> None:
        self._run, self._tools, self._say = run, tools, say
        self._changed = Condition()
        self._claims: dict[int, int] = {}
        self._left_out: dict[int, int] = {}  # by later claims; each is let go, also one that was never taken over
        self._told = False
        self._until_ms = 0
        self._halting = False
        self._halt_by_ms = 0
        self._working_since_ms = 0
        self._cancelled = False
        self._said_ms = 0
        self._work = SlotProcessor(run, tools, self._may_write)
        self._thread = Thread(target=self._serve, name=f"slot-{run.slot}", daemon=True)

    # --- for the bookkeeping thread

    def start(self) -> None:
        """Begin to work; partitions come with the first `Claims`."""
        self._thread.start()

    def claims(self, said: SlotClaims) -> None:
        """What the slot owns now, and until when."""
        with self._changed:
            claims = {int(number): epoch for number, epoch in said.epochs.items()}
            self._left_out |= {number: epoch for number, epoch in self._claims.items() if claims.get(number) != epoch}
            self._claims = claims
            self._until_ms, self._told = said.until_ms, True
            self._changed.notify_all()

    def halt(self, within_ms: int) -> None:
        """Begin nothing new; what is under way is cancelled after `within_ms`."""
        with self._changed:
            self._halting, self._halt_by_ms = True, self._tools.clock.boot_ms() + within_ms
            self._changed.notify_all()

    def check(self, now_ms: int) -> None:
        """Cancel what runs past its time."""
        since_ms = self._working_since_ms
        if not since_ms or self._cancelled:
            return
        late = now_ms - since_ms > self._tools.settings.job_timeout_ms
        ended = self._told and now_ms >= self._until_ms - self._tools.settings.margin_ms
        if late or ended or (self._halting and now_ms >= self._halt_by_ms):
            self._cancelled = True
            _log.warning("slot %s: what is under way is cancelled", self._run.slot)
            self._tools.jobs.cancel(self._run.slot)

    @property
    def over(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    # --- the slot's own thread

    def _serve(self) -> None:
        try:
            while not self._halting:
                self._turn()
            self._say(SlotHalted(slot=self._run.slot))
        except PermanentError as error:
            self._say(self._work.progress())
            self._say(SlotFailed(slot=self._run.slot, reason=str(error), lasting=True))
        except Exception as error:
            _log.exception("slot %s", self._run.slot)
            self._say(SlotFailed(slot=self._run.slot, reason=f"{type(error).__name__}: {error}"[:2_000]))
        finally:
            self._work.close()

    def _turn(self) -> None:
        with self._changed:
            claims, left_out = dict(self._claims), self._left_out
            self._left_out = {}
        self._work.let_go(claims)
        if left_out:
            self._say(
                PartitionsReleased(
                    slot=self._run.slot, epochs={str(number): epoch for number, epoch in left_out.items()}
                )
            )
        batches = self._work.tally.batches
        again_ms = self._tools.clock.boot_ms() + self._tools.settings.poll_ms
        if claims and self._may_write():
            self._working_since_ms, self._cancelled = self._tools.clock.boot_ms(), False
            try:
                again_ms = self._work.step(claims)
            finally:
                self._working_since_ms = 0
        self._report(force=self._work.tally.batches > batches)
        if claims and self._work.finished(claims):
            self._say(self._work.progress())
            self._say(SlotFinished(slot=self._run.slot))
            self._wait_for_news(claims, None)
        else:
            self._wait_for_news(claims, again_ms)

    def _wait_for_news(self, claims: dict[int, int], until_ms: int | None) -> None:
        """Until other partitions are claimed, the slot is halted, or the time has come."""
        with self._changed:
            while not self._halting and self._claims == claims and not self._left_out:
                now_ms = self._tools.clock.boot_ms()
                if until_ms is not None and now_ms >= until_ms:
                    return
                wait_ms = self._tools.settings.progress_ms if until_ms is None else until_ms - now_ms
                self._changed.wait(wait_ms / 1_000)

    def _report(self, *, force: bool) -> None:
        now_ms = self._tools.clock.boot_ms()
        if force or now_ms >= self._said_ms + self._tools.settings.progress_ms:
            self._said_ms = now_ms
            self._say(self._work.progress())

    def _may_write(self) -> bool:
        left_ms = self._until_ms - self._tools.clock.boot_ms()
        return not self._halting and left_ms > self._tools.settings.margin_ms
