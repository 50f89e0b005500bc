"""How long a stream waits for its minimum of rows: from the first record that waits, not from the last batch."""

from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql.streaming.datasource import ReadMinRows

from holdfast.spark.ranges import TopicOffsets
from holdfast.spark.source.options import parse_source_options
from holdfast.spark.source.stream import StreamReader
from holdfast.vocabulary.clock import FakeClock

MINIMUM = 10


@dataclass
class OnePartition:
    """A planner over a log that grows."""

    end: int = 0

    def topic_offsets(self, topic: str) -> TopicOffsets:
        return TopicOffsets("A", (0,), (self.end,))


class WaitingStream:
    def __init__(self) -> None:
        given = {"bootstrap": "h:1", "topics": "a", "startingOffsets": "earliest", "minRows": str(MINIMUM)}
        options = parse_source_options({**given, "maxTriggerDelay": "1m"}, streaming=True)
        self.clock, self.log = FakeClock(), OnePartition()
        self.reader = StreamReader(options, clock=self.clock, planner=cast(Any, self.log))
        self.position = self.reader.initialOffset()

    def batch(self, *, after_ms: int = 0) -> int:
        """The rows of the next batch; 0: there is none yet."""
        self.clock.advance_ms(after_ms)
        before, self.position = self.position, self.reader.latestOffset(self.position, ReadMinRows(MINIMUM))
        return int(self.position["topics"]["a"]["offsets"]["0"]) - int(before["topics"]["a"]["offsets"]["0"])


def test_fewer_rows_than_the_minimum_wait_for_the_delay_and_no_longer() -> None:
    stream = WaitingStream()
    stream.log.end = 3
    assert [stream.batch(after_ms=each) for each in (0, 59_000, 999)] == [0, 0, 0]
    assert stream.batch(after_ms=1) == 3


def test_the_wait_counts_from_the_first_record_that_waits() -> None:
    stream = WaitingStream()
    assert [stream.batch(after_ms=100_000) for _ in range(3)] == [0, 0, 0]
    stream.log.end = 3
    assert [stream.batch(after_ms=each) for each in (30_000, 59_999, 1)] == [0, 0, 3]
    stream.log.end = 5
    assert [stream.batch(after_ms=each) for each in (1, 59_999, 1)] == [0, 0, 2]


def test_enough_rows_do_not_wait() -> None:
    stream = WaitingStream()
    stream.log.end = MINIMUM
    assert stream.batch() == MINIMUM
