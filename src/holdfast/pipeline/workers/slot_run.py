"""A run: one slot at work for one generation, from the lease to the last partition given back.

No I/O: what the driver said and what the store did goes in. The one rule: a partition is `releasable` only when nothing can be
under way for it here: its driver let it go, halted the run, or is dead.
"""

from dataclasses import dataclass, field

from holdfast.kernel.lease import Lease
from holdfast.pipeline.catalog.worker_status import SlotState, SlotStatus, run_name
from holdfast.pipeline.model.definition import registry_namespace
from holdfast.pipeline.model.driver_protocol import HaltSlot, PartitionsReleased, SlotClaims, SlotFailed, SlotProgress
from holdfast.pipeline.model.driver_protocol import RunSlot as RunMessage
from holdfast.pipeline.workers.slot_assignment import SlotId


@dataclass(slots=True, kw_only=True)
class SlotRun:
    """One slot at work for one generation."""

    slot: SlotId
    label: str
    generation: int
    worker_id: str
    lease: Lease | None
    since_ms: int
    state: SlotState = "starting"
    told: bool = False
    """The driver that lives now knows of it."""
    held: dict[int, int] = field(default_factory=dict)
    """The epochs of the partitions it may work on."""
    leaving: dict[int, int] = field(default_factory=dict)
    """Partitions it was told to let go, and may still be at."""
    releasable: dict[int, int] = field(default_factory=dict)
    halt_until_ms: int | None = None
    halted: bool = False
    reason: str = ""
    lasting: bool = False
    failed_revision: int = 0
    attempts: int = 0
    retry_at_ms: int = 0
    progress: SlotProgress | None = None
    blocked: str = ""
    """Why the worker itself cannot let it begin: its source cannot be counted, for one."""
    said: SlotClaims | None = None

    @property
    def name(self) -> str:
        """What it is called: to the driver, and in the registry."""
        return run_name(self.slot.pipeline_id, self.generation, self.label)

    @property
    def namespace(self) -> str:
        """Of the registry it is a consumer of."""
        return registry_namespace(self.slot.pipeline_id, self.generation)

    @property
    def shares(self) -> bool:
        """Whether it takes part when partitions are shared. One that failed does: they are its own until it gives up the slot."""
        return self.halt_until_ms is None and (self.told or self.state == "failed")

    def tell(self) -> RunMessage:
        """It is said to a driver that is ready."""
        self.told = True
        self.state, self.reason, self.lasting = "running", "", False
        return RunMessage(slot=self.name, pipeline_id=self.slot.pipeline_id, generation=self.generation)

    def claims(self, until_ms: int) -> SlotClaims:
        """What it may work on, until when."""
        epochs = {str(number): epoch for number, epoch in sorted(self.held.items())}
        self.said = SlotClaims(slot=self.name, epochs=epochs, until_ms=until_ms)
        return self.said

    def has_news(self, until_ms: int) -> bool:
        """Whether the driver has yet to hear of its claims as they are."""
        said = self.said
        return said is None or said.until_ms != until_ms or said.epochs != {str(k): v for k, v in self.held.items()}

    def halt(self, now_ms: int, *, within_ms: int, grace_ms: int) -> HaltSlot | None:
        """It is to stop. None: it has, or was never told to begin."""
        if self.halt_until_ms is not None:
            return None
        self.halt_until_ms = now_ms + within_ms + grace_ms
        if not self.told:
            self.stopped()
            return None
        self.state = "halting"
        return HaltSlot(slot=self.name, within_ms=within_ms)

    def let_go_of(self, numbers: set[int]) -> None:
        """These are to be somebody else's: release them once nothing is under way."""
        going = {number: self.held.pop(number) for number in numbers if number in self.held}
        (self.leaving if self.told and self.state != "failed" else self.releasable).update(going)

    def lose(self, numbers: set[int]) -> None:
        """These are somebody else's: there is nothing left to release."""
        for number in numbers:
            self.held.pop(number, None)

    def on_released(self, said: PartitionsReleased) -> None:
        """Nothing is under way any more for some partitions."""
        for number, epoch in said.epochs.items():
            if self.leaving.get(int(number)) == epoch:
                self.releasable[int(number)] = self.leaving.pop(int(number))

    def on_progress(self, said: SlotProgress) -> None:
        """It works, or says what is in the way."""
        if said.batches > (self.progress.batches if self.progress is not None else 0):
            self.attempts = 0
        self.progress = said
        if self.state in ("running", "blocked", "starting"):
            self.state, self.reason = ("blocked", said.blocked) if said.blocked else ("running", "")

    def finished(self) -> None:
        """All it owns is at the generation's end."""
        if self.state in ("running", "blocked"):
            self.state, self.reason = "finished", ""

    def on_failed(self, said: SlotFailed, *, recipe: int, retry_at_ms: int) -> None:
        """It stopped by itself, and is tried again at `retry_at_ms`, or when the recipe is another."""
        self.stopped_working(said.reason)
        self.lasting, self.failed_revision = said.lasting, recipe
        self.attempts += 1
        self.retry_at_ms = retry_at_ms

    def stopped_working(self, reason: str) -> None:
        """The driver does nothing for it any more: what it was letting go is let go."""
        self.told, self.state, self.reason = False, "failed", reason
        self.releasable.update(self.leaving)
        self.leaving.clear()
        if self.halt_until_ms is not None:
            self.stopped()

    def stopped(self) -> None:
        """Nothing is under way for it, and nothing will be: all it owns can be released."""
        self.told, self.halted = False, True
        self.give_all()

    def give_all(self) -> None:
        """All it owns can be released."""
        self.releasable.update(self.leaving)
        self.releasable.update(self.held)
        self.leaving.clear()
        self.held.clear()

    def may_begin(self, now_ms: int, recipe: int) -> bool:
        """Whether it may be told to a driver that is ready."""
        if self.told or self.halt_until_ms is not None or self.blocked:
            return False
        return recipe != self.failed_revision if self.lasting else now_ms >= self.retry_at_ms

    def status(self, *, now_ms: int, warnings: tuple[str, ...]) -> SlotStatus:
        """As it is published."""
        said = self.progress or SlotProgress(slot=self.name)
        return SlotStatus(
            pipeline_id=self.slot.pipeline_id,
            generation=self.generation,
            slot=self.label,
            worker_id=self.worker_id,
            epoch=0 if self.lease is None else self.lease.epoch,
            state="blocked" if self.blocked and self.state == "starting" else self.state,
            reason=self.blocked or self.reason,
            lasting=self.lasting,
            attempts=self.attempts,
            since_ms=self.since_ms,
            updated_at_ms=now_ms,
            rows=said.rows,
            batches=said.batches,
            filtered=said.filtered,
            dlq_rows=said.dlq_rows,
            bytes_objects=said.bytes_objects,
            bytes_agents=said.bytes_agents,
            partitions=said.partitions,
            epochs={str(number): epoch for number, epoch in sorted(self.held.items())},
            warnings=(*warnings, *said.warnings),
        )
