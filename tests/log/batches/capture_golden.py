"""Write the golden files again: `python -m tests.log.batches.capture_golden`.

Each file is one record batch exactly as librdkafka sent it, for each codec and once from an idempotent producer.
"""

import asyncio
from pathlib import Path

import confluent_kafka
from tests.log.batches.golden_records import RECORDS
from tests.support.tiny_broker import TOPIC, tiny_broker

from holdfast.log.batches.compression import CODECS

GOLDEN = Path(__file__).parent / "golden"
IDEMPOTENT = "idempotent"


def produce(address: str, **options: object) -> None:
    """Send all records as one batch and wait until it is answered."""
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "linger.ms": 500, **options})
    for record in RECORDS:
        producer.produce(
            TOPIC,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            partition=0,
            timestamp=record.timestamp_ms,
        )
    assert producer.flush(20) == 0


async def capture(**options: object) -> list[bytes]:
    """The payloads of all produce requests."""
    async with tiny_broker() as broker:
        await asyncio.to_thread(produce, broker.address, **options)
        return broker.produced


async def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    cases: dict[str, dict[str, object]] = {codec: {"compression.type": codec} for codec in CODECS}
    cases[IDEMPOTENT] = {"enable.idempotence": True, "compression.type": "lz4"}
    for name, options in cases.items():
        (batch,) = await capture(**options)
        (GOLDEN / f"{name}.bin").write_bytes(batch)
        print(name, len(batch), "bytes, librdkafka", confluent_kafka.libversion()[0])


if __name__ == "__main__":
    asyncio.run(main())
