"""A producer that keeps writing numbered records, and records which of them were acknowledged, and at which offsets.

The one rule: a record counts when the broker has acknowledged it. The producer retries for ever, so none is left in doubt.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, Producer
from tests.support.waiting import until

from holdfast.vocabulary.random import SeededRandom

TURNS_PER_S = 20
FLUSH_TIMEOUT_S = 150


@dataclass(slots=True)
class Acknowledged:
    """By (partition, offset): the number of a good record. `poisoned`: the offsets of invalid records, of which `incomplete` lack a
    field that a column needs; a query sees a null there."""

    good: dict[tuple[int, int], int] = field(default_factory=dict)
    poisoned: set[tuple[int, int]] = field(default_factory=set)
    incomplete: set[tuple[int, int]] = field(default_factory=set)
    failed: int = 0

    def __len__(self) -> int:
        return len(self.good) + len(self.poisoned)


def amount_of(number: int) -> int:
    """A number that is not the record's own, so that rows that were mixed up are found."""
    return number * 7_919 % 1_009 - 500


def record(number: int) -> bytes:
    """A good one, with a field that no column takes."""
    return json.dumps({"seq": number, "amount": amount_of(number), "note": f"n{number}"}).encode()


INCOMPLETE = b'{"seq": %d}'


def poison(number: int) -> bytes | None:
    """No JSON, no object, the wrong type, a column that is missing, one that is too large, nothing at all."""
    kinds = (b"{", b"[%d]", b'{"seq": "x%d", "amount": 1}', INCOMPLETE, b'{"seq": 1, "amount": 1%040d}', None)
    kind = kinds[number % len(kinds)]
    return kind % number if kind is not None and b"%" in kind else kind


def is_incomplete(value: bytes) -> bool:
    """Whether a value is an object with a number and nothing else."""
    return value.startswith(b'{"seq": ') and value[8:-1].isdigit() and value.endswith(b"}")


class Writer:
    """Writes to a topic from a thread of its own while `writing`, and by hand with `send`."""

    def __init__(self, bootstrap: str, topic: str, *, per_s: int, poisoned_share: float, seed: int) -> None:
        self.topic, self.acknowledged = topic, Acknowledged()
        self._per_s, self._share, self._rng = per_s, poisoned_share, SeededRandom(seed).random
        self._sent = 0
        self._lock = threading.Lock()
        self._running, self._ended = threading.Event(), threading.Event()
        self._client = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 0,
                "socket.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )

    @contextmanager
    def writing(self) -> Iterator["Writer"]:
        """The thread, for the body; it writes after `resume`."""
        thread = threading.Thread(target=self._write, name="writer", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._running.set()
            thread.join()

    def pause(self) -> None:
        """Write nothing more, and wait until all that was written is acknowledged."""
        self._running.clear()
        with self._lock:
            left = self._client.flush(FLUSH_TIMEOUT_S)
        assert left == 0, f"{left} records were not acknowledged within {FLUSH_TIMEOUT_S} s"
        assert self.acknowledged.failed == 0

    def resume(self) -> None:
        """Continue writing."""
        self._running.set()

    def await_more(self, count: int, *, timeout_s: float = 60) -> None:
        """Until so many more are acknowledged."""
        goal = len(self.acknowledged) + count
        until(lambda: len(self.acknowledged) >= goal, within_s=timeout_s, what=f"{count} more records")

    def send(self, values: list[bytes | None], *, first: int = 0, partition: int = -1, poisoned: bool = False) -> None:
        """These values, numbered from `first`, and wait until they are acknowledged; `poisoned`: no row comes of them."""
        for number, value in enumerate(values, first):
            noting = self._noting(value, None if poisoned else number)
            self._client.produce(self.topic, value, partition=partition, on_delivery=noting)
        assert self._client.flush(FLUSH_TIMEOUT_S) == 0

    def _noting(self, value: bytes | None, number: int | None):  # type: ignore[no-untyped-def]
        def delivered(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is not None or partition is None or offset is None:
                self.acknowledged.failed += 1
            elif number is None:
                self.acknowledged.poisoned.add((partition, offset))
                if value is not None and is_incomplete(value):
                    self.acknowledged.incomplete.add((partition, offset))
            else:
                self.acknowledged.good[partition, offset] = number

        return delivered

    def _write(self) -> None:
        pause = threading.Event()
        while not self._ended.is_set():
            self._running.wait()
            with self._lock:
                for _ in range(self._per_s // TURNS_PER_S if self._running.is_set() else 0):
                    self._write_one()
                self._client.poll(0)
            pause.wait(1 / TURNS_PER_S)

    def _write_one(self) -> None:
        bad = self._rng.random() < self._share
        value = poison(self._sent) if bad else record(self._sent)
        try:
            self._client.produce(self.topic, value, on_delivery=self._noting(value, None if bad else self._sent))
        except BufferError:  # the broker has been unavailable for long
            self._client.poll(0.1)
        else:
            self._sent += 1
