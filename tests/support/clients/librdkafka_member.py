"""A member of a consumer group that runs librdkafka, as a process: `python librdkafka_member.py SETTINGS`, as JSON.

Its output is that of `group_members`. Rebalances happen inside `poll`: before partitions are given up, what was read from
them is committed; what could not be committed is forgotten with them, for their next owner to read.
"""

import json
import signal
import sys
import time  # noqa: TID251 (a process of its own)
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from tests.support.clients.events import say

BATCH = 20


class Member:
    """Reads, commits, and tells."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._pending: list[Message] = []
        self._turn = 0
        instance = {"group.instance.id": settings["instance"]} if "instance" in settings else {}
        self._client = Consumer(
            {
                "bootstrap.servers": settings["bootstrap"],
                "group.id": settings["group"],
                "session.timeout.ms": settings["session_ms"],
                "heartbeat.interval.ms": 300,
                "partition.assignment.strategy": settings.get("assignor", "range"),
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 1_000,
                "fetch.wait.max.ms": 100,
                **instance,
            }
        )
        self.leaving = False

    def run(self) -> None:
        topic = self._settings["topic"]
        self._client.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        try:
            while not self.leaving:
                message = self._client.poll(0.1)
                if message is not None and message.error() is None:
                    self._pending.append(message)
                if self._pending and (message is None or len(self._pending) >= BATCH):
                    self._commit()
        finally:
            self._client.close()

    def _commit(self) -> None:
        say("committing", values=[(message.value() or b"").decode() for message in self._pending])
        self._turn += 1
        if self._turn == self._settings.get("hold_at"):
            say("holding")
            sys.stdin.readline()
        ends = {(message.topic(), message.partition()): (message.offset() or 0) + 1 for message in self._pending}
        offsets = [TopicPartition(str(topic), partition or 0, end) for (topic, partition), end in ends.items()]
        began_ns = time.monotonic_ns()
        try:
            answers = self._client.commit(offsets=offsets, asynchronous=False)
            errors = [each.error for each in answers or () if each.error is not None]
        except KafkaException as failure:
            errors = [failure.args[0]]
        if errors:
            # The client's own errors have negative codes: then nobody knows whether the broker has committed. Nor
            # where it took long: the client may have sent it twice, and the refusal is of the second.
            took_ms = (time.monotonic_ns() - began_ns) / 1_000_000
            certain = all(error.code() > 0 for error in errors) and took_ms < self._settings.get("doubt_ms", 60_000)
            say("refused" if certain else "unanswered", error=errors[0].name())
            return
        say("committed")
        self._pending = []

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        say("assigned", partitions=[each.partition for each in partitions])

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        if self._pending:
            self._commit()
        self._forget(partitions)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._forget(partitions)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        gone = {each.partition for each in partitions}
        self._pending = [message for message in self._pending if message.partition() not in gone]
        say("revoked", partitions=sorted(gone))


if __name__ == "__main__":
    member = Member(json.loads(sys.argv[1]))

    def leave(*_: object) -> None:
        member.leaving = True

    signal.signal(signal.SIGTERM, leave)
    member.run()
