"""A batch of commits as arguments of the server's function, and its rows as outcomes. No I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from holdfast.contracts.store import AtVersion, Committed, Conflict, Entry, Operation, Put, Requirement
from holdfast.stores.batcher import PendingWrite

if TYPE_CHECKING:
    from holdfast.stores.postgres.connection_pool import Row


@dataclass(frozen=True, slots=True)
class QueuedCommit:
    """One caller's commit."""

    require: Sequence[Requirement]
    apply: Sequence[Operation]

    @property
    def size_bytes(self) -> int:
        """Its approximate size in a batch."""
        size = sum(len(requirement.key) for requirement in self.require)
        return size + sum(len(op.key) + (len(op.value) if type(op) is Put else 0) for op in self.apply)


Outcome: TypeAlias = Committed | Conflict
PendingCommit: TypeAlias = PendingWrite[QueuedCommit, Outcome]


def encode(batch: Sequence[PendingCommit]) -> tuple[Sequence[object] | None, ...]:
    """The arrays of `commit_batch`, from `ids` on. The array of sessions is None if no put has one."""
    requires = [requirement for write in batch for requirement in write.work.require]
    applies = [operation for write in batch for operation in write.work.apply]
    sessions = [operation.session if type(operation) is Put else None for operation in applies]
    return (
        [write.id for write in batch],
        [len(write.work.require) for write in batch],
        [len(write.work.apply) for write in batch],
        [requirement.key for requirement in requires],
        [requirement.version if type(requirement) is AtVersion else 0 for requirement in requires],
        [operation.key for operation in applies],
        [operation.value.decode() if type(operation) is Put else None for operation in applies],
        sessions if any(session is not None for session in sessions) else None,
    )


def decode(rows: Iterable["Row"], count: int) -> list[Outcome]:
    """One outcome per commit; row 0 is not a commit."""
    outcomes: list[Outcome] = [Conflict()] * count
    found: dict[int, dict[str, Entry | None]] = {}
    for nth, outcome, detail, key, value, version, session in rows:
        if nth == 0:
            continue
        if outcome is None:
            entries = found.setdefault(nth, {})
            if key is not None:
                entries[key] = None if version is None else Entry(key, value.encode(), version, session)
            outcomes[nth - 1] = Conflict(entries, detail)
        else:
            outcomes[nth - 1] = Committed(outcome)
    return outcomes
