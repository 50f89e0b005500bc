"""The Python SDK against bare confluent-kafka, which carries it: records a second, by turns, against one real server.

Each turn sends or reads the same number of records of 100 bytes with 1,000 keys on four partitions: batched, with lz4, idempotent.
The bare producer counts its delivery reports and the bare consumer takes lists of messages, as any program would. The ratio is that
of the client's own processor time, which other processes do not disturb. `--quick` is a smoke run.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka

from holdfast.client import Admin, Consumer, Producer, ProducerRecord, ProducerSettings, sync

TOPIC, PARTITIONS, BATCH = "bench", 4, 1_000
VALUE = b"x" * 100
KEYS = [b"key-%d" % number for number in range(1_000)]
RECORDS = [ProducerRecord(VALUE, key) for key in KEYS]
SETTINGS = ProducerSettings()
Turn = Callable[[str, int], None]


@contextmanager
def serving() -> Iterator[str]:
    """A server on its defaults; yields its Kafka address."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-sdk-") as folder:
        addresses = Path(folder) / "addresses.json"
        argv = [
            *(sys.executable, "-m", "holdfast", "serve", "--data", f"{folder}/data", "--kafka", "127.0.0.1:0"),
            *("--http", "off", "--grpc", "off", "--roles", "api,agent"),
            *("--log-level", "error", "--print-addresses", str(addresses)),
        ]
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
        try:
            while not addresses.exists():
                if process.poll() is not None:
                    raise SystemExit(f"the server ended with {process.returncode}")
                time.sleep(0.02)
            yield json.loads(addresses.read_text())["kafka"]
        finally:
            process.terminate()
            process.wait()


def bare_send(bootstrap: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "log_level": 0, **SETTINGS.properties()})
    reported: list[int] = []

    def report(error: Any, message: Any) -> None:
        assert error is None
        reported.append(message.offset())

    for number in range(count):
        producer.produce(TOPIC, VALUE, KEYS[number % 1_000], on_delivery=report)
        if not number % 100:
            producer.poll(0)
    producer.flush()
    assert len(reported) == count


async def async_send(bootstrap: str, count: int) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(count):
            await producer.send(TOPIC, VALUE, KEYS[number % 1_000])


async def async_send_many(bootstrap: str, count: int) -> None:
    async with Producer(bootstrap) as producer:
        for _ in range(0, count, BATCH):
            await producer.send_many(TOPIC, RECORDS)


def sync_send(bootstrap: str, count: int) -> None:
    with sync.Producer(bootstrap) as producer:
        for number in range(count):
            producer.send(TOPIC, VALUE, KEYS[number % 1_000])


def sync_send_many(bootstrap: str, count: int) -> None:
    with sync.Producer(bootstrap) as producer:
        for _ in range(0, count, BATCH):
            producer.send_many(TOPIC, RECORDS)


def bare_read(bootstrap: str, count: int) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bare", "enable.auto.commit": False, "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    left = count
    while left > 0:
        left -= len([(each.offset(), each.key(), each.value()) for each in consumer.consume(500, timeout=1)])
    consumer.close()


async def async_batches(bootstrap: str, count: int) -> None:
    left = count
    async with Consumer(bootstrap, TOPIC) as consumer:
        async for batch in consumer.batches():
            left -= len(batch)
            if left <= 0:
                return


async def async_records(bootstrap: str, count: int) -> None:
    left = count
    async with Consumer(bootstrap, TOPIC) as consumer:
        async for _ in consumer:
            left -= 1
            if left <= 0:
                return


def sync_batches(bootstrap: str, count: int) -> None:
    left = count
    with sync.Consumer(bootstrap, TOPIC) as consumer:
        for batch in consumer.batches():
            left -= len(batch)
            if left <= 0:
                return


def sync_records(bootstrap: str, count: int) -> None:
    left = count
    with sync.Consumer(bootstrap, TOPIC) as consumer:
        for _ in consumer:
            left -= 1
            if left <= 0:
                return


def _in_loop(work: Callable[[str, int], Coroutine[Any, Any, None]]) -> Turn:
    return lambda bootstrap, count: asyncio.run(work(bootstrap, count))


SENDING: dict[str, Turn] = {
    "bare produce": bare_send,
    "async send": _in_loop(async_send),
    "async send_many": _in_loop(async_send_many),
    "sync send": sync_send,
    "sync send_many": sync_send_many,
}
READING: dict[str, Turn] = {
    "bare consume": bare_read,
    "async batches": _in_loop(async_batches),
    "async records": _in_loop(async_records),
    "sync batches": sync_batches,
    "sync records": sync_records,
}


def rates(turns: dict[str, Turn], bootstrap: str, count: int, rounds: int) -> dict[str, list[float]]:
    """Records a second of the client's processor time of each, round by round; the first of each warms and is not counted."""
    found: dict[str, list[float]] = {name: [] for name in turns}
    for number in range(rounds + 1):
        for name, turn in turns.items():
            began = time.process_time()
            turn(bootstrap, count)
            if number:
                found[name].append(count / (time.process_time() - began))
    return found


def run(count: int, rounds: int, say: Callable[[str], None]) -> dict[str, float]:
    """The median ratio of each to the bare client of its round."""
    ratios: dict[str, float] = {}
    with serving() as bootstrap:
        asyncio.run(_create(bootstrap))
        for turns in (SENDING, READING):
            found = rates(turns, bootstrap, count, rounds)
            bare = next(iter(found.values()))
            for name, each in found.items():
                ratios[name] = statistics.median(mine / theirs for mine, theirs in zip(each, bare, strict=True))
                say(f"{name:16s} {statistics.median(each):10,.0f} records/s of one core  {ratios[name]:5.2f} of bare")
    return ratios


async def _create(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(TOPIC, partitions=PARTITIONS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run")
    quick = parser.parse_args().quick
    run(5_000 if quick else 100_000, 1 if quick else 3, print)


if __name__ == "__main__":
    main()
