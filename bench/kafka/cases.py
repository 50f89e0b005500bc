"""What is asked of every target, and what is aimed at. Names are what `--only` takes."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.kafka import nats_target, targets
from bench.kafka.targets import Target

OURS: Final = "holdfast"


@dataclass(frozen=True)
class System:
    """One column. Partitions it does not know, and reading it cannot do at length, are not asked of it."""

    name: str
    title: str
    serving: Callable[[Path], AbstractContextManager[Target]]
    partitions_max: int = 12
    reads: bool = True


SYSTEMS: Final = (
    System(OURS, "Holdfast\nfdatasync", targets.holdfast),
    System("kafka", "Apache Kafka\ndefault flush", targets.apache_kafka),
    System("kafka-flush", "Apache Kafka\nflush each", partial(targets.apache_kafka, log_flush_interval_messages="1")),
    System("mock", "librdkafka's\nmock", targets.mock, reads=False),  # it keeps 5 MB of a partition
    System("ceiling", "loopback\nceiling", targets.discard),
    System("jetstream", "JetStream\nsync always", partial(nats_target.jetstream, window=1024), partitions_max=1),
    System("jetstream-single", "JetStream\none by one", partial(nats_target.jetstream, window=1), 1, reads=False),
)


@dataclass(frozen=True)
class Case:
    """Produce as fast as possible, then read all of it. `settings` are for the producing client."""

    name: str
    size: int
    partitions: int
    settings: tuple[str, ...] = ()
    reads: bool = True


CASES: Final = (
    Case("100B-1", 100, 1),
    Case("100B-12", 100, 12),
    Case("1KiB-1", 1024, 1),
    Case("1KiB-12", 1024, 12),
    # Not everywhere: with five requests in flight librdkafka spins while it waits, and takes the CPU a slow server needs.
    Case("1KiB-1-idempotent", 1024, 1, ("enable.idempotence=true",), reads=False),
)
LATENCY: Final = "latency"
LATENCY_SIZE: Final = 1024
LATENCY_PER_SECOND: Final = 1_000


@dataclass(frozen=True)
class Aim:
    """`metric` of ours is at least `ratio_min` of what `system` does, in cases of that value size (0: all)."""

    metric: str
    system: str
    ratio_min: float
    size: int = 0


AIMS: Final = (
    Aim("produce", "kafka", 1.0),
    Aim("produce", "kafka-flush", 3.0),
    Aim("produce", "mock", 0.9, 100),
    Aim("produce", "mock", 0.7, 1024),
    Aim("consume", "kafka", 1.0),
)
PRODUCE_CPU_MAX_S_PER_GIB: Final = 1.0
LATENCY_P99_MAX_US: Final = 1_000.0
LATENCY_P99_MAX_TIMES_DISK: Final = 3.0
