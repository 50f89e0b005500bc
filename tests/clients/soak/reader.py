"""A member of the soak's group as a process: `python reader.py SETTINGS`. It reads and commits until SIGTERM.

It writes lines of ranges `word partition first last`: `read` what it was given, `done` what a commit that was
acknowledged covers. The one rule: what is read and not yet committed is forgotten when its partition is taken away;
whoever holds it next reads it again.
"""

import json
import signal
import sys
from pathlib import Path
from typing import Any, TextIO

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

BATCH = 500


class Reader:
    def __init__(self, settings: dict[str, Any], lines: TextIO) -> None:
        self._lines = lines
        self._pending: dict[int, list[tuple[int, int]]] = {}
        self._topic = settings["topic"]
        told = {
            "bootstrap.servers": settings["bootstrap"],
            "group.id": settings["group"],
            "partition.assignment.strategy": settings["assignor"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": settings["session_ms"],
            "heartbeat.interval.ms": 1_000,
            "socket.timeout.ms": 10_000,
            "reconnect.backoff.max.ms": 500,
            "fetch.wait.max.ms": 200,
            "log_level": 2,
        }
        self.client = Consumer(told)
        self.client.subscribe([self._topic], on_revoke=self._revoked, on_lost=self._revoked)

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._pending.pop(each.partition, None)

    def work(self) -> None:
        """Take what there is, and commit it."""
        ranges: dict[int, tuple[int, int]] = {}
        for message in self.client.consume(BATCH, timeout=0.2):
            if message.error() is None:
                partition, offset = _place(message)
                first, _ = ranges.get(partition, (offset, offset))
                ranges[partition] = (first, offset)
        for partition, (first, last) in ranges.items():
            self._say("read", partition, first, last)
            self._pending.setdefault(partition, []).append((first, last))
        if self._pending:
            self._commit()

    def _commit(self) -> None:
        pending = {partition: list(ranges) for partition, ranges in self._pending.items()}
        offsets = [TopicPartition(self._topic, number, ranges[-1][1] + 1) for number, ranges in pending.items()]
        try:
            answers = self.client.commit(offsets=offsets, asynchronous=False)
        except KafkaException as refused:
            error: KafkaError = refused.args[0]
            if error.code() == KafkaError.ILLEGAL_GENERATION or error.code() == KafkaError.UNKNOWN_MEMBER_ID:
                self._pending.clear()  # no longer ours; the rebalance that follows says what is
            return  # otherwise nobody knows: the next commit covers these, too
        for answer in answers or []:
            if answer.error is None:
                for first, last in pending[answer.partition]:
                    self._say("done", answer.partition, first, last)
                self._pending.pop(answer.partition, None)

    def _say(self, word: str, partition: int, first: int, last: int) -> None:
        self._lines.write(f"{word} {partition} {first} {last}\n")
        self._lines.flush()


def _place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def main(settings: dict[str, Any]) -> int:
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    with (Path(settings["folder"]) / f"{settings['name']}.ranges").open("w") as lines:
        reader = Reader(settings, lines)
        while not ending:
            reader.work()
        reader.client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
