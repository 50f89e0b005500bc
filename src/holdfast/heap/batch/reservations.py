"""The reserved messages of a partition: of batches that are prepared and not resolved. Part of its state, and pure.

The one rule: a reserved message is in the log and nowhere else. Nobody pops, cancels or counts it, and it keeps its record, its id
and its producer's number, until a RESOLVE makes it a message like any other, or nothing.
"""

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.heap.batch.model import BatchRecord, Prepared, Resolved
from holdfast.heap.batch.participant import PartitionBatches
from holdfast.heap.records import Enqueue, ProducerSequence, Reserve


class ReservedMessage(NamedTuple):
    """A message that waits for a decision, without its payload, which stays in the log."""

    batch: str
    enqueued_ms: int
    enqueue: Enqueue


class ReservationsImage(NamedTuple):
    """A copy of everything, for a snapshot."""

    prepared: list[Prepared]
    to_forget: list[Prepared]
    messages: list[tuple[int, ReservedMessage]]


class Reservations:
    """What is reserved in one partition."""

    def __init__(self) -> None:
        self.batches = PartitionBatches()
        self.messages: dict[int, ReservedMessage] = {}  # by offset
        self.keys: dict[ProducerSequence, str] = {}  # producers' numbers that are taken, perhaps: by which batch
        self._offsets: dict[str, list[int]] = {}  # by batch

    @property
    def prepared(self) -> Mapping[str, Prepared]:
        """The batches that are not resolved here."""
        return self.batches.prepared

    @property
    def to_forget(self) -> Mapping[str, Prepared]:
        """The batches whose end this partition has to see to."""
        return self.batches.to_forget

    def reserve(self, offset: int, timestamp_ms: int, record: Reserve) -> None:
        """A message of a batch is in the log."""
        enqueue = record.enqueue._replace(payload=b"", headers=())
        self._add(offset, ReservedMessage(record.batch, timestamp_ms, enqueue))

    def apply(self, record: BatchRecord) -> list[tuple[int, ReservedMessage]]:
        """Take a record of a batch; the messages that are reserved no more by it."""
        self.batches.apply(record)
        return self._release(record.batch) if isinstance(record, Resolved) else []

    def of_batch(self, batch: str) -> list[ReservedMessage]:
        """The messages of a batch."""
        return [self.messages[offset] for offset in self._offsets.get(batch, ())]

    def _add(self, offset: int, message: ReservedMessage) -> None:
        self.messages[offset] = message
        self._offsets.setdefault(message.batch, []).append(offset)
        if message.enqueue.producer is not None:
            self.keys[message.enqueue.producer] = message.batch

    def _release(self, batch: str) -> list[tuple[int, ReservedMessage]]:
        released = [(offset, self.messages.pop(offset)) for offset in self._offsets.pop(batch, ())]
        for _, message in released:
            if message.enqueue.producer is not None:
                self.keys.pop(message.enqueue.producer, None)
        return released

    def image(self) -> ReservationsImage:
        """A copy."""
        return ReservationsImage([*self.prepared.values()], [*self.to_forget.values()], [*self.messages.items()])

    @classmethod
    def restored(cls, image: ReservationsImage) -> "Reservations":
        """What an image was taken of."""
        made = cls()
        made.batches.restore(image.prepared, image.to_forget)
        for offset, message in image.messages:
            made._add(offset, message)
        return made
