"""A stream of synthetic orders, sent at a steady rate by a librdkafka producer on a thread of its own."""

import itertools
import json
import random
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from holdfast.vocabulary.errors import UnavailableError

_TICK_S: Final = 0.02
_FLUSH_S: Final = 60.0
_PEOPLE: Final = ("Ann", "Bob", "Cid", "Dee", "Eve", "Fay")
_CITIES: Final = ("Berlin", "Lisbon", "Oslo", "Quito", "Tokyo")


def orders(seed: int = 1) -> Iterator[dict[str, Any]]:
    """Orders without end; the same for the same seed except for their timestamps."""
    rng = random.Random(seed)  # noqa: S311 - synthetic data
    for number in itertools.count():
        yield {
            "id": number,
            "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "user": {"name": rng.choice(_PEOPLE), "city": rng.choice(_CITIES)},
            "items": rng.randint(1, 9),
            "total": f"{rng.uniform(1, 500):.2f}",
            "paid": rng.random() < 0.9,
        }


class EventStream:
    """Sends until `finish`. `sent` and `acknowledged` may be read from any thread."""

    def __init__(self, bootstrap: str, topic: str, *, rate: float) -> None:
        self.sent = self.acknowledged = self.failed = 0
        self.reason = ""
        self._topic, self._rate = topic, rate
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, name="demo events", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def finish(self) -> None:
        """Stop sending, and return once every record is acknowledged."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(_FLUSH_S)
        if left or self.failed:
            raise UnavailableError("Kafka", self.reason or f"{left} records not acknowledged within {_FLUSH_S:g} s")

    def _run(self) -> None:
        began, made = time.monotonic(), orders()
        while not self._stop.is_set():
            due = int((time.monotonic() - began) * self._rate) + 1
            while self.sent < due and not self._stop.is_set():
                self._send(next(made))
            self._producer.poll(0)
            self._stop.wait(_TICK_S)

    def _send(self, order: dict[str, Any]) -> None:
        while True:
            try:
                key = order["user"]["name"].encode()
                self._producer.produce(self._topic, json.dumps(order).encode(), key, on_delivery=self._on_delivery)
            except BufferError:
                self._producer.poll(0.1)
                if self._stop.is_set():
                    return
            else:
                self.sent += 1
                return

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed += 1
            self.reason = str(error)
