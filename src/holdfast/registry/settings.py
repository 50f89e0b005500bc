"""Settings of a registry and of its consumers. Stores, clocks and handlers are components, passed separately."""

from dataclasses import dataclass
from typing import Final

from holdfast.registry.keys import check_name
from holdfast.vocabulary.settings import check_at_least, check_between, check_one_of

PARTITIONS_MAX: Final = 100_000  # ids are five digits, so that key order is number order


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """One registry: all who share it must agree on `namespace` and `partitions`.

    `ttl_ms`: how long a partition survives without a heartbeat, and a consumer without its process.
    `rebalance_interval_ms`: the safety net; watches make most rebalances happen at once.
    `settle_ms`: how long a coordinator collects changes before it plans.
    """

    partitions: int = 16
    ttl_ms: int = 10_000
    rebalance_interval_ms: int = 10_000
    namespace: str = "pxrs"
    plan: str = "sticky"
    settle_ms: int = 100

    def __post_init__(self) -> None:
        check_between("partitions", self.partitions, 1, PARTITIONS_MAX)
        check_at_least("ttl_ms", self.ttl_ms, 100)
        check_at_least("rebalance_interval_ms", self.rebalance_interval_ms, 10)
        check_name("registry namespace", self.namespace)
        check_one_of("plan", self.plan, ("sticky", "contiguous"))
        check_at_least("settle_ms", self.settle_ms, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How one consumer treats its handler.

    `drain_ms`: how long a revoked handler may take to finish its message.
    `attempts_max`: how often a message is tried before the partition is given up to another consumer.
    """

    drain_ms: int = 1_000
    attempts_max: int = 5
    retry_base_ms: int = 100
    retry_max_ms: int = 5_000

    def __post_init__(self) -> None:
        check_at_least("drain_ms", self.drain_ms, 0)
        check_at_least("attempts_max", self.attempts_max, 1)
        check_at_least("retry_base_ms", self.retry_base_ms, 1)
        check_at_least("retry_max_ms", self.retry_max_ms, self.retry_base_ms)
