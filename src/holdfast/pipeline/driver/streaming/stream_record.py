"""What is recorded of a streaming generation: its owner's epoch, the checkpoint folder in force, the last batch that is done, and
the batch that was begun. One record in the generation's registry namespace, replaced by compare-and-swap.

The one rule: a batch is the bytes of Spark's `offsets/N` and the pieces of its result. Whoever finishes it writes these pieces, not
what a rerun computes.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from holdfast.pipeline.model.query import OutputMode
from holdfast.registry.streams import RetainedOffset
from holdfast.vocabulary.errors import CorruptError

NO_BATCH: Final = -1


class Piece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rows of a batch in one Arrow stream, in an object or, if small, inline."""

    rows: int
    hash: str
    key: str = ""
    """Of the object; empty: the bytes are `body`."""
    body: bytes = b""


class BatchIntent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A batch that is being written, or was written and not recorded: the next owner writes exactly this."""

    batch: int
    epoch: int
    """Of its writer, under which the pieces were stored."""
    revision: int = msgspec.field(name="recipe")
    output_mode: OutputMode
    offsets: str
    """The text of `offsets/N`: the end of the batch in every source, watermark, time, and the settings state depends on."""
    pieces: tuple[Piece, ...] = ()
    refused: tuple[Piece, ...] = ()
    """Dead letters, as pieces of their own."""
    table: str = ""
    """The id of the table in the server, which may have another of that name by now; empty: it has none that lasts."""


class DoneBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The last batch whose rows are all stored."""

    batch: int
    offsets: str


class StreamRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """See the module. `starts`: where the generation begins, by source, topic and partition, as decided by its first owner."""

    epoch: int
    folder: int = 0
    """The epoch whose checkpoint folder is in force; 0: there is none yet."""
    starts: tuple[dict[str, dict[str, int]], ...] = ()
    topics: dict[str, str] = {}
    """Ids of the topics: an offset of another topic of the same name is none of these."""
    done: DoneBatch | None = None
    intent: BatchIntent | None = None
    retain: tuple[RetainedOffset, ...] = ()

    @property
    def done_batch(self) -> int:
        """The number of the last done batch; `NO_BATCH`: none is."""
        return NO_BATCH if self.done is None else self.done.batch

    @property
    def begun_batch(self) -> int:
        """The number of the last batch of which a row may be visible."""
        return self.done_batch if self.intent is None else self.intent.batch


def encode_record(record: StreamRecord) -> bytes:
    """As it is stored."""
    return msgspec.json.encode(record)


def decode_record(key: str, value: bytes) -> StreamRecord:
    """`CorruptError`: no record."""
    try:
        return msgspec.json.decode(value, type=StreamRecord)
    except msgspec.MsgspecError as error:
        raise CorruptError(key, str(error)) from None


class TopicRange(NamedTuple):
    """Offsets [start, end) of a partition that a batch has read."""

    topic: str
    partition: int
    start: int
    end: int


class _Topic(msgspec.Struct, frozen=True):
    id: str
    offsets: dict[str, int]


class _Position(msgspec.Struct, frozen=True):
    topics: dict[str, _Topic]
    name: str = ""
    """Of the source; empty: an earlier build wrote it."""


def positions(offsets: str) -> list[_Position]:
    """The positions in the text of `offsets/N`, by source. A source without one (`-`) is left out."""
    lines = offsets.splitlines()
    try:
        return [msgspec.json.decode(line, type=_Position) for line in lines[2:] if line.startswith("{")]
    except msgspec.MsgspecError as error:
        raise CorruptError("offsets of a batch", str(error)) from None


def source_ranges(
    before: str, offsets: str, source: str, topic: str, starts: Mapping[str, int]
) -> list[list[TopicRange]]:
    """What a batch has read of a source's topic, for every place in the plan that has the source; `before`: offsets of the batch
    before it, `starts`: where the source begins, by partition.

    A query may join a source with itself, and the places may be at different offsets. At each of them a batch follows the last, so
    that every record is in one of them.
    """
    begins = _offsets_by_line(before, source, topic)
    return [
        sorted(
            TopicRange(topic, int(number), begin.get(number, 0), end)
            for begin in [begins.get(line, starts)]
            for number, end in at.items()
            if end > begin.get(number, 0)
        )
        for line, at in _offsets_by_line(offsets, source, topic).items()
    ]


def _offsets_by_line(offsets: str, source: str, topic: str) -> dict[int, dict[str, int]]:
    found = {}
    for number, line in enumerate(offsets.splitlines()[2:]):
        if line.startswith("{"):
            position = msgspec.json.decode(line, type=_Position)
            if topic in position.topics and position.name in ("", source):
                found[number] = position.topics[topic].offsets
    return found


def topic_ids(offsets: str) -> dict[str, str]:
    """The ids of the topics that a batch read."""
    return {name: topic.id for each in positions(offsets) for name, topic in each.topics.items()}


def retained_from(offsets: str) -> tuple[RetainedOffset, ...]:
    """Everything from the end of a batch on, the lowest where several sources read one topic."""
    ends = (
        (name, int(partition), at)
        for each in positions(offsets)
        for name, topic in each.topics.items()
        for partition, at in topic.offsets.items()
    )
    return lowest(ends)


def lowest(offsets: Iterable[tuple[str, int, int]]) -> tuple[RetainedOffset, ...]:
    """The lowest offset of each partition."""
    found: dict[tuple[str, int], int] = {}
    for topic, partition, at in offsets:
        found[topic, partition] = min(at, found.get((topic, partition), at))
    return tuple(RetainedOffset(topic, partition, at) for (topic, partition), at in sorted(found.items()))
