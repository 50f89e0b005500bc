"""A run: one slot at work for one generation, from its lease to its last released partition.

No I/O: messages of the driver and results of the store go in. The one rule: a partition is `releasable` only when this worker
cannot write to it any more: its driver released it, halted the run, or is dead.
"""

from dataclasses import dataclass, field

from holdfast.kernel.lease import Lease
from holdfast.pipeline.catalog.worker_status import SlotState, SlotStatus, run_name
from holdfast.pipeline.model.definition import registry_namespace
from holdfast.pipeline.model.driver_protocol import (
    HaltSlot,
    PartitionsReleased,
    RunSlot,
    SlotClaims,
    SlotFailed,
    SlotProgress,
    slot_title,
)
from holdfast.pipeline.workers.slot_assignment import SlotId


@dataclass(slots=True, kw_only=True)
class SlotRun:
    """One slot at work for one generation."""

    slot: SlotId
    label: str
    pipeline_name: str
    generation: int
    worker_id: str
    lease: Lease | None
    since_ms: int
    state: SlotState = "starting"
    started: bool = False
    """The living driver runs it."""
    held: dict[int, int] = field(default_factory=dict)
    """The partitions it may work on, with the epochs of their claims."""
    leaving: dict[int, int] = field(default_factory=dict)
    """Revoked partitions that may still have a batch under way."""
    releasable: dict[int, int] = field(default_factory=dict)
    halt_until_ms: int | None = None
    halted: bool = False
    reason: str = ""
    permanent: bool = False
    """Failed, and not retried before the pipeline is edited."""
    failed_revision: int = 0
    attempts: int = 0
    retry_at_ms: int = 0
    progress: SlotProgress | None = None
    blocked: str = ""
    """Why the worker itself cannot start it: the partitions of its source cannot be counted, for one."""
    sent_claims: SlotClaims | None = None
    logged: tuple[SlotState, str] = ("starting", "")
    """State and reason of the last log line about it."""

    @property
    def name(self) -> str:
        """Its id, for the driver and in the registry."""
        return run_name(self.slot.pipeline_id, self.generation, self.label)

    @property
    def title(self) -> str:
        """As it is called in log lines."""
        return slot_title(self._message)

    @property
    def _message(self) -> RunSlot:
        return RunSlot(
            slot=self.name, pipeline_id=self.slot.pipeline_id, generation=self.generation, name=self.pipeline_name
        )

    @property
    def namespace(self) -> str:
        """Of its generation's registry."""
        return registry_namespace(self.slot.pipeline_id, self.generation)

    @property
    def shares(self) -> bool:
        """Whether partitions are assigned to it. One that failed keeps its share until it leaves the slot."""
        return self.halt_until_ms is None and (self.started or self.state == "failed")

    def start_message(self) -> RunSlot:
        """Start it in a driver that is ready."""
        self.started = True
        self.state, self.reason, self.permanent = "running", "", False
        return self._message

    def claims_message(self, until_ms: int) -> SlotClaims:
        """What it may work on, and until when."""
        epochs = {str(number): epoch for number, epoch in sorted(self.held.items())}
        self.sent_claims = SlotClaims(slot=self.name, epochs=epochs, until_ms=until_ms)
        return self.sent_claims

    def claims_changed(self, until_ms: int) -> bool:
        """Whether the driver has other claims than these, or none."""
        return self.partitions_changed() or self.sent_claims is None or self.sent_claims.until_ms != until_ms

    def partitions_changed(self) -> bool:
        """Whether the driver has other partitions or epochs than these."""
        sent = {} if self.sent_claims is None else self.sent_claims.epochs
        return sent != {str(number): epoch for number, epoch in self.held.items()}

    def halt(self, now_ms: int, *, within_ms: int, grace_ms: int) -> HaltSlot | None:
        """Stop it. None: it is halting already, or was never started."""
        if self.halt_until_ms is not None:
            return None
        self.halt_until_ms = now_ms + within_ms + grace_ms
        if not self.started:
            self.on_halted()
            return None
        self.state = "halting"
        return HaltSlot(slot=self.name, within_ms=within_ms)

    def revoke(self, numbers: set[int]) -> None:
        """These go to other slots: release them once their batch has ended."""
        going = {number: self.held.pop(number) for number in numbers if number in self.held}
        (self.leaving if self.started and self.state != "failed" else self.releasable).update(going)

    def forget(self, numbers: set[int]) -> None:
        """These have another owner: there is nothing left to release."""
        for number in numbers:
            self.held.pop(number, None)

    def on_released(self, message: PartitionsReleased) -> None:
        """The driver has stopped working on revoked partitions."""
        for number, epoch in message.epochs.items():
            if self.leaving.get(int(number)) == epoch:
                self.releasable[int(number)] = self.leaving.pop(int(number))

    def on_progress(self, message: SlotProgress) -> None:
        """It makes progress, or is blocked."""
        if message.batches > (self.progress.batches if self.progress is not None else 0):
            self.attempts = 0
        self.progress = message
        if self.state in ("running", "blocked", "starting"):
            self.state, self.reason = ("blocked", message.blocked) if message.blocked else ("running", "")

    def on_finished(self) -> None:
        """All its partitions have reached the generation's end."""
        if self.state in ("running", "blocked"):
            self.state, self.reason = "finished", ""

    def on_failed(self, message: SlotFailed, *, revision: int, retry_at_ms: int) -> None:
        """It stopped by itself; it is retried at `retry_at_ms`, or with the next revision."""
        self.on_stopped(message.reason)
        self.permanent, self.failed_revision = message.lasting, revision
        self.attempts += 1
        self.retry_at_ms = retry_at_ms

    def on_stopped(self, reason: str) -> None:
        """The driver does not run it any more: revoked partitions can be released."""
        self.started, self.state, self.reason = False, "failed", reason
        self.releasable.update(self.leaving)
        self.leaving.clear()
        if self.halt_until_ms is not None:
            self.on_halted()

    def on_halted(self) -> None:
        """It has ended: all its partitions can be released."""
        self.started, self.halted = False, True
        self.release_all()

    def release_all(self) -> None:
        """All its partitions can be released."""
        self.releasable.update(self.leaving)
        self.releasable.update(self.held)
        self.leaving.clear()
        self.held.clear()

    def may_start(self, now_ms: int, revision: int) -> bool:
        """Whether it may be started in a driver that is ready."""
        if self.started or self.halt_until_ms is not None or self.blocked:
            return False
        return revision != self.failed_revision if self.permanent else now_ms >= self.retry_at_ms

    def status(self, *, now_ms: int, warnings: tuple[str, ...]) -> SlotStatus:
        """The record that is published."""
        progress = self.progress or SlotProgress(slot=self.name)
        return SlotStatus(
            pipeline_id=self.slot.pipeline_id,
            generation=self.generation,
            slot=self.label,
            worker_id=self.worker_id,
            epoch=0 if self.lease is None else self.lease.epoch,
            state="blocked" if self.blocked and self.state == "starting" else self.state,
            reason=self.blocked or self.reason,
            lasting=self.permanent,
            attempts=self.attempts,
            since_ms=self.since_ms,
            updated_at_ms=now_ms,
            rows=progress.rows,
            batches=progress.batches,
            filtered=progress.filtered,
            dlq_rows=progress.dlq_rows,
            bytes_objects=progress.bytes_objects,
            bytes_agents=progress.bytes_agents,
            partitions=progress.partitions,
            epochs={str(number): epoch for number, epoch in sorted(self.held.items())},
            warnings=(*warnings, *progress.warnings),
            stream=progress.stream,
        )
