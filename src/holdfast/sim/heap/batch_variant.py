"""Which code the world of batches runs: the shipped code, or a mutant with a single mistake."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.contracts.store import Requirement
from holdfast.heap.batch.coordinator import BatchCoordinator
from holdfast.heap.batch.model import Prepared
from holdfast.heap.batch.participant import BatchOutcome, outcome_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchVariant:
    """Everything a mutant may replace."""

    name: str
    wrong: str = ""
    coordinator: type[BatchCoordinator] = BatchCoordinator
    reads_epochs_first: bool = True
    asks_the_store: bool = True
    waits_for_the_coordinator: bool = True

    def outcome(self, prepared: Prepared, *, own_epoch: int, coordinator_epoch: int, is_decided: bool) -> BatchOutcome:
        """What a participant takes to be the outcome."""
        return outcome_of(
            prepared,
            own_epoch=own_epoch,
            coordinator_epoch=coordinator_epoch,
            is_decided=is_decided and self.asks_the_store,
        )


class _Unfenced(BatchCoordinator):
    def _requirements(self) -> Sequence[Requirement]:
        return super()._requirements()[:1]


class _ForgetsEarly(BatchCoordinator):
    def resolved(self, partition: int) -> bool:
        super().resolved(partition)
        self._resolved.update(self.partitions)
        return True


CORRECT_BATCHES: Final = BatchVariant(name="correct")
BATCH_MUTANTS: Final = {
    variant.name: variant
    for variant in (
        BatchVariant(name="decision-unfenced", wrong="the decision requires no epochs", coordinator=_Unfenced),
        BatchVariant(
            name="key-forgotten-early", wrong="the key goes with the first who resolved", coordinator=_ForgetsEarly
        ),
        BatchVariant(
            name="key-read-first", wrong="the key is looked for before the epochs are read", reads_epochs_first=False
        ),
        BatchVariant(name="store-not-asked", wrong="a new leader aborts whatever is prepared", asks_the_store=False),
        BatchVariant(
            name="abort-while-undecided",
            wrong="a participant that has waited long aborts",
            waits_for_the_coordinator=False,
        ),
    )
}
