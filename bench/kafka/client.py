"""`python -m bench.kafka.client`: load.c in Python, for machines without a C compiler.

The same arguments and the same line of JSON. With it the client is what is measured, and the report says so.
"""

import json
import os
import sys
import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

WARM_UP_S = 0.5
PRODUCING = {
    "acks": "all",
    "message.timeout.ms": 60_000,
    "socket.nagle.disable": True,
}
FAST = {
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 131_072,
}
CONSUMING = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "fetch.queue.backoff.ms": 5,
    "fetch.message.max.bytes": 4_194_304,
    "fetch.max.bytes": 33_554_432,
    "receive.message.max.bytes": 67_108_864,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 131_072,
}


class Acked:
    """What was acknowledged so far."""

    def __init__(self) -> None:
        self.records = self.failed = 0

    def __call__(self, error: object, _message: object) -> None:
        if error is None:
            self.records += 1
        else:
            self.failed += 1


def _done(records: int, size: int, seconds: float, total: int, failed: int = 0, **more: float) -> dict[str, Any]:
    counted = {"records": records, "bytes": records * size, "total_records": total, "total_bytes": total * size}
    return {**counted, "seconds": seconds, "failed": failed, "client_cpu_s": time.process_time(), **more}


def produce(producer: Producer, topic: str, partitions: int, size: int, seconds: float) -> dict[str, Any]:
    acked, payload, sent, begin, before = Acked(), os.urandom(size), 0, 0.0, 0
    first_ack = 0.0
    while True:
        at = time.perf_counter()
        if not first_ack and acked.records:
            first_ack = at
        if not begin and first_ack and at >= first_ack + WARM_UP_S:
            begin, before = at, acked.records
        if begin and at >= begin + seconds:
            break
        for _ in range(256):
            try:
                producer.produce(topic, payload, partition=sent // 256 % partitions, on_delivery=acked)
                sent += 1
            except BufferError:
                producer.poll(0.001)
        producer.poll(0)
    records = acked.records - before
    producer.flush(60)
    return _done(records, size, at - begin, acked.records, acked.failed)


def consume(consumer: Consumer, topic: str, partitions: int, limit: int, seconds: float) -> dict[str, Any]:
    started = last = time.perf_counter()
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    records, size = 0, 0
    while records < limit and last < started + seconds:
        for message in consumer.consume(10_000, 0.1):
            if message.error() is None:
                records, size, last = records + 1, len(message.value() or b""), time.perf_counter()
        if time.perf_counter() > last + 30:
            sys.exit("client: nothing more arrives")
    return _done(records, size, last - started, records)


def latency(producer: Producer, topic: str, size: int, seconds: float, per_second: float) -> dict[str, Any]:
    took_us: list[float] = []
    ended, payload, acked = threading.Event(), os.urandom(size), Acked()

    def poll() -> None:
        while not ended.is_set():
            producer.poll(0.1)

    polling = threading.Thread(target=poll)
    polling.start()
    due = time.perf_counter()
    since = due + WARM_UP_S + 0.5
    while due < since + seconds:
        time.sleep(max(0.0, due - time.perf_counter()))

        def answered(error: object, message: object, sent: float = time.perf_counter()) -> None:
            acked(error, message)
            if sent >= since:
                took_us.append((time.perf_counter() - sent) * 1e6)

        producer.produce(topic, payload, partition=0, on_delivery=answered)
        due += 1 / per_second
    producer.flush(60)
    ended.set()
    polling.join()
    took_us.sort()
    shares = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999, "max_us": 1.0}
    percentiles = {name: took_us[int((len(took_us) - 1) * share)] for name, share in shares.items()}
    return _done(len(took_us), size, seconds, acked.records, acked.failed, **percentiles)


def main(args: list[str]) -> int:
    mode, bootstrap, topic, partitions, number, seconds, *rest = args
    told = dict(each.split("=", 1) for each in rest if "=" in each)
    if mode == "consume":
        consumer = Consumer({"bootstrap.servers": bootstrap, **CONSUMING, **told})
        done = consume(consumer, topic, int(partitions), int(number), float(seconds))
        consumer.close()
    else:
        pace = FAST if mode == "produce" else {"linger.ms": 0}
        producer = Producer({"bootstrap.servers": bootstrap, **PRODUCING, **pace, **told})
        if mode == "produce":
            done = produce(producer, topic, int(partitions), int(number), float(seconds))
        else:
            done = latency(producer, topic, int(number), float(seconds), float(rest[0]))
    sys.stdout.write(json.dumps(done) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
