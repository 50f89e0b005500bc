"""A task's part: rows in, pieces in object storage out. Nothing is visible in a topic yet.

The one rule: every attempt stages under keys of its own. A failed or speculative attempt leaves objects that no plan refers to; the
sweeper deletes them.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator

import pyarrow as pa
from pyarrow import compute

from holdfast.client.producer import TopicRef
from holdfast.contracts.objects import Objects
from holdfast.spark.sink.encoder import BatchEncoder, EncodedBatches, SinkTopic
from holdfast.spark.sink.options import SinkOptions
from holdfast.spark.sink.pieces import PieceContent, StagedPiece, StagedPieceList, hour_of, staged_key
from holdfast.spark.sink.rows import Rows, read_rows
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random

FindTopic = Callable[[str], Awaitable[SinkTopic]]


class PieceStager:
    """Stages the rows of one task attempt, below `prefix`. `spread` makes tasks start with different partitions."""

    def __init__(
        self,
        options: SinkOptions,
        *,
        objects: Objects,
        find_topic: FindTopic,
        clock: Clock,
        random: Random,
        prefix: str,
        spread: int = 0,
    ) -> None:
        self._options, self._objects, self._find_topic = options, objects, find_topic
        self._clock, self._random, self._prefix = clock, random, prefix
        self._encoder = BatchEncoder(compression=options.compression, batch_bytes=options.batch_bytes, spread=spread)
        self._topics: dict[str, SinkTopic] = {}
        self._targets: dict[TopicRef, int] = {}
        self._pieces: list[StagedPiece] = []

    async def add(self, batch: pa.RecordBatch) -> None:
        """Buffer the rows of one Arrow batch; stage a piece when there are enough."""
        if not batch.num_rows:
            return
        rows = read_rows(batch, now_ms=self._clock.now_ms())
        for name, part in _split_by_topic(rows, self._options.topic):
            self._encoder.add(await self._topic(name), part)
        if self._encoder.size_bytes >= self._options.piece_bytes:
            await self._stage(inline=False)

    async def finish(self) -> StagedPieceList:
        """Stage the rest; return all pieces."""
        await self._stage(inline=not self._pieces)
        return StagedPieceList(list(self._targets), self._pieces)

    async def _topic(self, name: str) -> SinkTopic:
        if name not in self._topics:
            self._topics[name] = await self._find_topic(name)
        return self._topics[name]

    async def _stage(self, *, inline: bool) -> None:
        taken = self._encoder.take()
        if not taken:
            return
        contents = [self._content(topic, partition, encoded) for (topic, partition), encoded in taken.items()]
        body = [batch for encoded in taken.values() for batch in encoded.batches]
        if inline and sum(map(len, body)) <= self._options.inline_bytes:
            self._pieces.append(StagedPiece("", b"".join(body), contents))
            return
        key = staged_key(hour_of(self._clock.now_ms()), self._random.token(), prefix=self._prefix)
        await self._objects.put(key, body)  # the key is unique: if it exists, a retry of ours has written it
        self._pieces.append(StagedPiece(key, b"", contents))

    def _content(self, topic: SinkTopic, partition: int, encoded: EncodedBatches) -> PieceContent:
        index = self._targets.setdefault(TopicRef(topic.name, topic.id), len(self._targets))
        return PieceContent(index, partition, [len(batch) for batch in encoded.batches], encoded.counts)


def _split_by_topic(rows: Rows, default: str) -> Iterator[tuple[str, Rows]]:
    """The rows of each topic, in the order in which the topics first appear."""
    if rows.topics is None:
        yield default, rows
        return
    topics = rows.topics.fill_null(default) if default else rows.topics
    if topics.null_count:
        raise InvalidError("column topic", None, "set in every row, unless the option topic is given")
    names: Iterable[str] = compute.unique(topics).to_pylist()
    for name in names:
        at = compute.indices_nonzero(compute.equal(topics, name))
        yield name, _take_rows(rows, at)


def _take_rows(rows: Rows, at: pa.Array) -> Rows:
    indexes = at.to_numpy()
    return Rows(
        keys=None if rows.keys is None else rows.keys.take(at),
        values=rows.values.take(at),
        headers=None if rows.headers is None else [rows.headers[index] for index in indexes.tolist()],
        partitions=None if rows.partitions is None else rows.partitions.take(at),
        topics=None,
        times_ms=rows.times_ms[indexes],
    )
