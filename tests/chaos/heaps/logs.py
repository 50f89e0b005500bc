"""The logs of a heap's partitions, read by a Kafka client from their first record to their end, kept as JSON lines."""

import base64
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.chaos.heaps.ledger import LogRecord
from tests.support.waiting import until

from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import decode_operation
from holdfast.vocabulary.clock import RealClock

LOG_FILE: Final = "heap-log.jsonl"
Logs = dict[tuple[str, int], list[LogRecord]]


def read_logs(bootstrap: str, partitions: Mapping[str, int], path: Path, *, within_s: float) -> None:
    """Write every record of these topics (name → partitions) to a file. `AssertionError`: that took too long."""
    wanted = [TopicPartition(topic, number, 0) for topic, count in partitions.items() for number in range(count)]
    client = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "heap-log",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        ends = _ends(client, wanted, within_s)
        client.assign(wanted)
        clock, pending = RealClock(), {name for name, end in ends.items() if end > 0}
        deadline_ms = clock.boot_ms() + within_s * 1000
        with path.open("w") as file:
            while pending:
                assert clock.boot_ms() < deadline_ms, f"the logs of {sorted(pending)} are not read to the end"
                for message in client.consume(500, timeout=0.5):
                    if message.error() is None:
                        file.write(json.dumps(_fields(message)) + "\n")
                for each in client.position([part for part in wanted if (part.topic, part.partition) in pending]):
                    if each.offset >= ends[each.topic, each.partition]:
                        pending.discard((each.topic, each.partition))
    finally:
        client.close()


def _ends(client: Consumer, wanted: Iterable[TopicPartition], within_s: float) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}

    def known() -> bool:
        for each in wanted:
            if (each.topic, each.partition) not in found:
                try:
                    end = client.get_watermark_offsets(TopicPartition(each.topic, each.partition), timeout=5)[1]
                except KafkaException:
                    return False
                found[each.topic, each.partition] = end
        return True

    until(known, what="every partition has a leader that names its end", within_s=within_s)
    return found


def _fields(message: object) -> list[object]:
    key, value, headers = message.key(), message.value(), message.headers()  # type: ignore[attr-defined]
    place = (message.topic(), message.partition(), message.offset(), message.timestamp()[1])  # type: ignore[attr-defined]
    return [*place, _text(key), _text(value), [[name, _text(each)] for name, each in headers or ()]]


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def load_logs(path: Path) -> Logs:
    """The records of a file, by topic and partition, in order."""
    logs: Logs = {}
    with path.open() as lines:
        for line in lines:
            topic, partition, offset, timestamp_ms, key, value, headers = json.loads(line)
            told = tuple((name, _bytes(each)) for name, each in headers)
            operation = decode_operation(_bytes(key), _bytes(value), told)
            logs.setdefault((topic, partition), []).append(LogRecord(offset, timestamp_ms, operation))
    for records in logs.values():
        records.sort()
    return logs


def replayed_counters(records: Iterable[LogRecord], mode: str = "min") -> dict[str, int]:
    """What a leader that applied all of them would count."""
    state = HeapState(mode)
    for record in records:
        state.apply(*record)
    return msgspec.structs.asdict(state.counters)
