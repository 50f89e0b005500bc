"""What librdkafka wrote, we read; what we write is, byte for byte, what librdkafka writes, and it can read it."""

import asyncio
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from tests.log.batches.capture_golden import IDEMPOTENT, capture
from tests.log.batches.golden_records import RECORDS
from tests.support.tiny_broker import TOPIC, tiny_broker

from holdfast.log.batches import Record, RecordBatchLimits, decode, encode, split_batches, to_arrow, validate_records
from holdfast.log.batches.compression import CODECS
from holdfast.log.batches.kernels import BatchKernel

GOLDEN = Path(__file__).parent / "golden"
CASES = (*CODECS, IDEMPOTENT)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_of_librdkafka_is_sound_and_decodes_to_what_was_sent(name: str, kernel: BatchKernel) -> None:
    (batch,) = split_batches((GOLDEN / f"{name}.bin").read_bytes(), limits=RecordBatchLimits(), kernel=kernel)
    assert batch.header.compression == ("lz4" if name == IDEMPOTENT else name)
    assert batch.header.count == len(RECORDS)
    assert batch.header.max_timestamp == max(record.timestamp_ms for record in RECORDS)
    validate_records(batch, kernel=kernel)
    assert list(decode(batch, kernel=kernel)) == RECORDS
    rows = to_arrow([batch.data], include_headers=True, kernel=kernel).to_pylist()
    assert [(row["offset"], row["timestamp"], row["key"], row["value"]) for row in rows] == [r[:4] for r in RECORDS]
    assert [tuple((h["key"], h["value"]) for h in row["headers"]) for row in rows] == [r.headers for r in RECORDS]


def test_the_idempotent_producer_signed_its_batch(kernel: BatchKernel) -> None:
    (batch,) = split_batches((GOLDEN / f"{IDEMPOTENT}.bin").read_bytes(), limits=RecordBatchLimits(), kernel=kernel)
    assert (batch.header.producer_id, batch.header.producer_epoch) == (4_000_000_000, 7)
    assert batch.header.base_sequence == 0


def test_our_bytes_are_those_of_librdkafka(kernel: BatchKernel) -> None:
    assert encode(RECORDS, leader_epoch=0, kernel=kernel) == (GOLDEN / "none.bin").read_bytes()


async def test_the_golden_files_are_what_librdkafka_sends_today() -> None:
    (batch,) = await capture(**{"compression.type": "none"})
    assert batch == (GOLDEN / "none.bin").read_bytes()


def consume(address: str, count: int) -> list[Record]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "any", "check.crcs": True, "enable.auto.commit": False}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        found: list[Record] = []
        while len(found) < count:
            message = consumer.poll(20)
            assert message is not None, f"nothing came after {len(found)} records"
            assert message.error() is None, message.error()
            headers: Any = tuple(message.headers() or ())
            offset: Any = message.offset()
            found.append(Record(offset, message.timestamp()[1], message.key(), message.value(), headers))
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
async def test_librdkafka_reads_what_we_write(codec: str, kernel: BatchKernel) -> None:
    later = [record._replace(offset=record.offset + len(RECORDS)) for record in RECORDS]
    async with tiny_broker() as broker:
        broker.stored = encode(RECORDS, compression=codec, kernel=kernel)
        broker.stored += encode(later, base_offset=later[0].offset, compression=codec, leader_epoch=9, kernel=kernel)
        broker.end_offset = 2 * len(RECORDS)
        assert await asyncio.to_thread(consume, broker.address, 2 * len(RECORDS)) == RECORDS + later
