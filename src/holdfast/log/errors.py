"""What the log refuses, and why. Gateways map these to the codes of their protocol."""

from enum import StrEnum
from typing import Final

from holdfast.vocabulary.errors import CorruptError, HoldfastError, InvalidError


class NotLeaderError(HoldfastError):
    """This agent does not lead the partition. Ask `leader`, or try again. `reason`: why it is offline, if it is."""

    def __init__(self, topic: str, partition: int, leader: str = "", reason: str = "") -> None:
        super().__init__(topic, partition, leader, reason)
        self.topic, self.partition, self.leader, self.reason = topic, partition, leader, reason

    def __str__(self) -> str:
        why = self.reason or (f"its leader is {self.leader}" if self.leader else "it has no leader yet")
        return f"partition {self.topic}:{self.partition} is not led here: {why}"


class LeaderEpochError(HoldfastError):
    """The caller expects another leadership of the partition than the one this agent has."""

    def __init__(self, partition: str, expected: int, current: int) -> None:
        super().__init__(partition, expected, current)
        self.partition, self.expected, self.current = partition, expected, current

    def __str__(self) -> str:
        return f"partition {self.partition} is at leader epoch {self.current}, not {self.expected}"


class FencedLeaderEpochError(LeaderEpochError):
    """The caller's leader epoch is older: refresh the metadata."""


class UnknownLeaderEpochError(LeaderEpochError):
    """The caller's leader epoch is newer than any this agent has seen: try again, here or at the new leader."""


class OffsetOutOfRangeError(InvalidError):
    """There is nothing at this offset (any more, or yet). `start` to `end` is where a reader may begin."""

    def __init__(self, partition: str, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset in partition {partition}", offset, f"{start} to {end}")
        self.args = (partition, offset, start, end)
        self.partition, self.offset, self.start, self.end = partition, offset, start, end


class PendingRangeError(InvalidError):
    """A pipeline may have to read records again that were to be deleted, from `pending` on."""

    def __init__(self, partition: str, offset: int, pending: int) -> None:
        super().__init__(
            f"offset to delete {partition} up to", offset, f"at most {pending}, from where a pipeline reads"
        )
        self.args = (partition, offset, pending)
        self.partition, self.offset, self.pending = partition, offset, pending


class HeapTopicError(InvalidError):
    """The topic is a heap: its records are what the heap did, and nobody else appends, deletes or compacts them."""

    def __init__(self, topic: str, what: str) -> None:
        super().__init__(f"{what} on topic", topic, "one that is not a heap")
        self.args = (topic, what)
        self.topic, self.action = topic, what

    def __str__(self) -> str:
        return f"topic {self.topic} is a heap, which refuses {self.action}: use its own operations (docs/heaps.md)"


class TailNotLocalError(HoldfastError):
    """The partition's last records may be in another agent's WAL. Bring that agent back, or allow an unclean takeover."""

    def __init__(self, partition: str, wal: str, published: int, reserved: int) -> None:
        super().__init__(partition, wal, published, reserved)
        self.partition, self.wal, self.published, self.reserved = partition, wal, published, reserved

    def __str__(self) -> str:
        return (
            f"partition {self.partition} is offline: records between offsets {self.published} and {self.reserved} may be in WAL "
            f"{self.wal}, which is not here; start the agent that has it, or go on without them: docs/how-to/lost-disk.md"
        )


class TailDamagedError(CorruptError):
    """The partition's last records are in this WAL, and some of them are missing: no other agent has them."""


class NotEnoughReplicasError(HoldfastError):
    """Fewer replicas keep up than an append needs. Try again. `appended`: it was sent to some, and its outcome is unknown."""

    def __init__(self, partition: str, in_sync: int, needed: int, appended: bool = False) -> None:
        super().__init__(partition, in_sync, needed, appended)
        self.partition, self.in_sync, self.needed, self.appended = partition, in_sync, needed, appended

    def __str__(self) -> str:
        when = "after the append" if self.appended else "and nothing was appended"
        return f"partition {self.partition} has {self.in_sync} replicas in sync, {self.needed} are needed, {when}"


TO_SEAL: Final = "to seal"
TO_REPLICATE: Final = "to replicate"


class ReplicasUnreachableError(HoldfastError):
    """Too few replicas answer to open the partition. Bring the agents back that have them. `missing` are the WALs of the others.

    `phase`: what they are needed for. `unclean`: the topic lets it go on without those whose agents are gone.
    """

    def __init__(
        self,
        partition: str,
        phase: str,
        needed: int,
        answering: tuple[str, ...],
        missing: tuple[str, ...],
        unclean: bool = False,
    ) -> None:
        super().__init__(partition, phase, needed, answering, missing, unclean)
        self.partition, self.phase, self.needed, self.unclean = partition, phase, needed, unclean
        self.answering, self.missing = answering, missing

    @property
    def spent_epoch(self) -> bool:
        """Whether the next attempt needs a new epoch, and may have other replicas."""
        return self.phase == TO_REPLICATE

    def __str__(self) -> str:
        count = len(self.answering) + len(self.missing)
        answering, missing = ", ".join(self.answering) or "none", ", ".join(self.missing) or "none"
        return (
            f"partition {self.partition} is offline: {self.needed} of {count} replicas must answer ({self.phase}); "
            f"WALs that do: {answering}; that do not: {missing}"
        )


class EpochSpentError(HoldfastError):
    """Under this epoch the partition was, or may have been, replicated before: only a newer one may open it."""

    def __init__(self, partition: str, epoch: int, reason: str) -> None:
        super().__init__(partition, epoch, reason)
        self.partition, self.epoch, self.reason = partition, epoch, reason

    def __str__(self) -> str:
        return f"partition {self.partition} needs a new epoch after {self.epoch}: {self.reason}"


class ProducerRefusal(StrEnum):
    """Why a batch of an idempotent producer was refused; each has a Kafka error code."""

    OUT_OF_ORDER = "out of order sequence"
    DUPLICATE = "duplicate sequence older than those remembered"
    OLD_EPOCH = "producer epoch older than the newest"
    TOO_SOON = "batch after one that was refused for a moment"


class ProducerRefusedError(InvalidError):
    """The batch does not follow what this producer sent before."""

    def __init__(self, refusal: ProducerRefusal, producer_id: int, given: str, allowed: str) -> None:
        super().__init__(f"batch of producer {producer_id}", given, allowed)
        self.args = (refusal, producer_id, given, allowed)
        self.refusal, self.producer_id = refusal, producer_id

    def __str__(self) -> str:
        return f"{self.refusal} of producer {self.producer_id}: {self.given}, expected {self.allowed}"
