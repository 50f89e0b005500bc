"""Leadership gained and lost: one line for many partitions, and what was recovered."""

from holdfast.log.partition.leadership_log import LeadershipLog
from holdfast.vocabulary.types import TopicPartition


def test_partitions_gained_together_are_one_line_and_named_up_to_a_limit() -> None:
    log = LeadershipLog()
    for number in range(10):
        log.gained(TopicPartition("orders", number), 3, recovered=0, began_ms=0, ended_ms=1)
    (line,) = log.lines()
    assert line.startswith("leadership of 10 partitions gained: orders:0 (epoch 3), orders:1 (epoch 3)")
    assert line.endswith("orders:7 (epoch 3) and 2 more")
    assert log.lines() == []


def test_recovered_records_are_counted_with_the_time_from_the_first_to_the_last() -> None:
    log = LeadershipLog()
    log.gained(TopicPartition("orders", 0), 2, recovered=5, began_ms=100, ended_ms=120)
    log.gained(TopicPartition("orders", 1), 2, recovered=7, began_ms=105, ended_ms=140)
    log.gained(TopicPartition("orders", 2), 2, recovered=0, began_ms=0, ended_ms=999)
    assert log.lines()[0] == "recovered 12 unpublished records of 2 partitions from the WAL in 40 ms"


def test_lost_partitions_are_grouped_by_the_reason() -> None:
    log = LeadershipLog()
    log.lost(TopicPartition("orders", 0), "moved to another agent")
    log.lost(TopicPartition("orders", 1), "moved to another agent")
    log.lost(TopicPartition("old", 0), "topic deleted")
    assert log.lines() == [
        "leadership of 2 partitions ended, moved to another agent: orders:0, orders:1",
        "leadership of 1 partition ended, topic deleted: old:0",
    ]
