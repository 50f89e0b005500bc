"""What can be tuned in producers and consumers: frozen values, checked when they are made.

The defaults are safe ones: idempotent writes that every replica has acknowledged, and reads of committed records alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between, check_one_of

COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_QUEUE_RECORDS_MAX: Final = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How records are batched and how many may be unacknowledged.

    `linger_ms`: how long a batch waits for more records. `batch_bytes`: when it is full. `buffer_bytes_max`, `buffer_records_max`:
    what may be unacknowledged before `send` waits. `delivery_timeout_ms`: after this, a record without acknowledgement has failed
    with an unknown outcome. `idempotent`: off, a retry may append a record twice or out of order.
    """

    linger_ms: int = 5
    batch_bytes: int = 256 * KIB
    compression: str = "lz4"
    idempotent: bool = True
    buffer_bytes_max: int = 32 * MIB
    buffer_records_max: int = 100_000
    record_bytes_max: int = 1 * MIB
    delivery_timeout_ms: int = 120_000

    def __post_init__(self) -> None:
        check_between("linger_ms", self.linger_ms, 0, 900_000)
        check_between("batch_bytes", self.batch_bytes, 1 * KIB, 100 * MIB)
        check_one_of("compression", self.compression, COMPRESSIONS)
        check_at_least("buffer_records_max", self.buffer_records_max, 1)
        check_between("buffer_bytes_max", self.buffer_bytes_max, 1 * KIB, 2 << 30)
        check_between("record_bytes_max", self.record_bytes_max, 1 * KIB, 1000 * MIB)
        check_at_least("delivery_timeout_ms", self.delivery_timeout_ms, 1_000)

    def properties(self) -> dict[str, Any]:
        """librdkafka's names for them. Its own queue is larger than ours: `send` waits before it is full."""
        return {
            "acks": "all",
            "enable.idempotence": self.idempotent,
            "linger.ms": self.linger_ms,
            "batch.size": self.batch_bytes,
            "compression.type": self.compression,
            "message.max.bytes": self.record_bytes_max,
            "message.timeout.ms": self.delivery_timeout_ms,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": min(_QUEUE_RECORDS_MAX, 2 * self.buffer_records_max),
            "queue.buffering.max.kbytes": 2 * (self.buffer_bytes_max + self.record_bytes_max) // KIB,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How records are fetched and when offsets are committed.

    `auto_commit_interval_ms`: how often processed offsets are committed; 0: only by `commit()`. `max_poll_interval_ms`: a consumer
    that asks for nothing for so long loses its partitions. `isolation`: `read_committed` hides records of open and aborted
    transactions.
    """

    auto_commit_interval_ms: int = 5_000
    max_poll_interval_ms: int = 300_000
    session_timeout_ms: int = 45_000
    fetch_wait_ms: int = 500
    fetch_bytes_min: int = 1
    prefetch_bytes_max: int = 32 * MIB
    isolation: str = "read_committed"

    def __post_init__(self) -> None:
        check_at_least("auto_commit_interval_ms", self.auto_commit_interval_ms, 0)
        check_at_least("session_timeout_ms", self.session_timeout_ms, 100)
        check_at_least("max_poll_interval_ms", self.max_poll_interval_ms, self.session_timeout_ms)
        check_between("fetch_wait_ms", self.fetch_wait_ms, 0, 300_000)
        check_at_least("fetch_bytes_min", self.fetch_bytes_min, 1)
        check_between("prefetch_bytes_max", self.prefetch_bytes_max, 1 * KIB, 2 << 30)
        check_one_of("isolation", self.isolation, ("read_committed", "read_uncommitted"))

    def properties(self) -> Mapping[str, Any]:
        """librdkafka's names for them. Offsets are committed by us, once records are processed."""
        return {
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "max.poll.interval.ms": self.max_poll_interval_ms,
            "session.timeout.ms": self.session_timeout_ms,
            "heartbeat.interval.ms": max(50, min(3_000, self.session_timeout_ms // 3)),
            "fetch.wait.max.ms": self.fetch_wait_ms,
            "fetch.min.bytes": self.fetch_bytes_min,
            "queued.max.messages.kbytes": max(1, self.prefetch_bytes_max // KIB),
            "isolation.level": self.isolation,
        }
