"""The history of a cluster: beside what the store did, what producers, readers and groups were told, and which objects went."""

from collections.abc import Mapping

import msgspec

from holdfast.contracts.store import Entry
from holdfast.sim import history
from holdfast.sim.history import History


class RecordsSent(msgspec.Struct, frozen=True, tag=True):
    """A producer sends a batch, for the first time or again."""

    at_ms: float
    producer: str
    partition: str
    agent: str
    values: tuple[str, ...]


class RecordsAcknowledged(msgspec.Struct, frozen=True, tag=True):
    """A producer was told that its batch has these offsets."""

    at_ms: float
    producer: str
    partition: str
    base_offset: int
    values: tuple[str, ...]
    idempotent: bool


class SequenceRefused(msgspec.Struct, frozen=True, tag=True):
    """The next batch of an idempotent producer was refused for good, though all before it were acknowledged."""

    at_ms: float
    producer: str
    partition: str
    refusal: str


class RecordsServed(msgspec.Struct, frozen=True, tag=True):
    """An agent served a read that began at `asked_ms`, under `epoch`, with the high watermark of some moment since then."""

    at_ms: float
    asked_ms: float
    agent: str
    partition: str
    epoch: int
    high_watermark: int


class RecordsRead(msgspec.Struct, frozen=True, tag=True):
    """A reader got all that is visible from `start` up to `end`: (offset, value), in the order in which it got them.

    `epochs`: (base offset, leader epoch) of the batches they came in.
    """

    at_ms: float
    reader: str
    partition: str
    start: int
    end: int
    records: tuple[tuple[int, str], ...]
    epochs: tuple[tuple[int, int], ...] = ()


class ReadingFinished(msgspec.Struct, frozen=True, tag=True):
    """Reader `reader` has read everything of the partition, after the last fault and the last append."""

    at_ms: float
    reader: str
    partition: str


class OffsetCommitted(msgspec.Struct, frozen=True, tag=True):
    """A group's commit of an offset was acknowledged."""

    at_ms: float
    group: str
    partition: str
    offset: int


class OffsetFetched(msgspec.Struct, frozen=True, tag=True):
    """A group was told its offset; it had asked at `asked_ms`. -1: none."""

    at_ms: float
    asked_ms: float
    group: str
    partition: str
    offset: int


class ObjectDeleted(msgspec.Struct, frozen=True, tag=True):
    """An object was removed from the bucket."""

    at_ms: float
    key: str


ClusterEvent = (
    RecordsSent
    | RecordsAcknowledged
    | SequenceRefused
    | RecordsServed
    | RecordsRead
    | ReadingFinished
    | OffsetCommitted
    | OffsetFetched
    | ObjectDeleted
    | history.Event
)


class ClusterHistory(History):
    """Takes the events of a cluster down."""

    events: list[ClusterEvent]  # type: ignore[assignment]

    folder = ""  # where the files of this run are: its name is left out of every text, for it is another one each time

    def note(self, who: str, text: str) -> None:
        if self.tracing:
            super().note(who, text.replace(self.folder, ""))

    def actor_crashed(self, actor: str, error: str) -> None:
        super().actor_crashed(actor, error.replace(self.folder, ""))

    def take(self, event: ClusterEvent) -> None:
        """The next event."""
        self.events.append(event)

    @property
    def now_ms(self) -> float:
        """True time."""
        return self._loop.now_ms

    def object_deleted(self, key: str) -> None:
        self.count("objects deleted")
        self.events.append(ObjectDeleted(self._loop.now_ms, key))

    def read_observed(self, found: Mapping[str, Entry | None], *, whole: str | None = None) -> None:
        """Not kept: a cluster reads too much, and the world of leases checks it."""
