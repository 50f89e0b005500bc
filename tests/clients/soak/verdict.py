"""The judgement of a soak: every acknowledged record is in the log once and in order, and the group has read it all.

The log is read from the start of every partition, by a consumer without a group. The one rule: nothing is judged by
what the server says of itself.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.support.broker import Broker
from tests.support.workload import Verdict, judge

READ_TIMEOUT_S = 60.0

Range = tuple[int, int, int]  # partition, first offset, last offset


def ends(broker: Broker, topic: str, partitions: int) -> dict[int, int]:
    """The end offset of each partition."""
    client = _consumer(broker)
    try:
        return {
            number: client.get_watermark_offsets(TopicPartition(topic, number), timeout=READ_TIMEOUT_S)[1]
            for number in range(partitions)
        }
    finally:
        client.close()


def log_of(broker: Broker, topic: str, partitions: int) -> Iterator[bytes]:
    """Every value, one partition after the other."""
    for number, end in ends(broker, topic, partitions).items():
        client = _consumer(broker)
        client.assign([TopicPartition(topic, number, 0)])
        try:
            expected = 0
            while expected < end:
                messages = client.consume(min(10_000, end - expected), timeout=READ_TIMEOUT_S)
                assert messages, f"partition {number} ends at {end} and gives nothing from {expected} on"
                for message in messages:
                    if message.error() is not None:
                        raise KafkaException(message.error())
                    assert message.offset() == expected, (
                        f"partition {number}: {message.offset()} follows {expected - 1}"
                    )
                    expected += 1
                    value = message.value()
                    assert value is not None
                    yield value.rstrip(b".")  # the padding
        finally:
            client.close()


def _consumer(broker: Broker) -> Consumer:
    told = {"bootstrap.servers": broker.bootstrap, "group.id": "soak-verdict", "enable.auto.commit": False}
    return Consumer({**told, "auto.offset.reset": "error", "fetch.queue.backoff.ms": 5})


def judge_log(folder: Path, log: list[bytes]) -> tuple[int, int, Verdict]:
    """How many were acknowledged, how many have no known outcome, and what the log says to that."""
    acknowledged = _lines(folder.glob("*.acknowledged"))
    failed = _lines(folder.glob("*.failed"))
    return len(acknowledged), len(failed), judge(acknowledged, log, maybe=failed)


def _lines(files: Iterable[Path]) -> list[bytes]:
    return [line for file in files for line in file.read_bytes().splitlines()]


def ranges(folder: Path, word: str) -> list[Range]:
    """What the readers wrote of `word`, whole lines only: they may be writing."""
    found = []
    for file in folder.glob("*.ranges"):
        for line in file.read_text().split("\n")[:-1]:
            said, *numbers = line.split()
            if said == word:
                partition, first, last = map(int, numbers)
                found.append((partition, first, last))
    return found


def unread(read: list[Range], ends: dict[int, int]) -> int:
    """How many offsets below the ends no reader was given."""
    return sum(ends.values()) - sum(last - first + 1 for _, first, last in _merged(read))


def twice(done: list[Range]) -> int:
    """How many offsets lie in more than one acknowledged commit."""
    return sum(last - first + 1 for _, first, last in done) - sum(last - first + 1 for _, first, last in _merged(done))


def _merged(given: list[Range]) -> list[Range]:
    merged: list[Range] = []
    for partition, first, last in sorted(given):
        if merged and merged[-1][0] == partition and first <= merged[-1][2] + 1:
            merged[-1] = (partition, merged[-1][1], max(merged[-1][2], last))
        else:
            merged.append((partition, first, last))
    return merged
