"""What an operator may tune of a worker. Stores, clocks and the driver's environment are components, passed separately."""

from dataclasses import dataclass
from typing import Final

from holdfast.kernel.session import SessionSettings
from holdfast.pipeline.sinks.roots import parse_roots
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_at_least, check_between

_ID_CHARS_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """One worker.

    `interval_ms`: how often it reconciles without a change. `lease_ttl_ms`: how long its slots and partitions stay its own after
    its last renewal. `no_leases`: every worker runs one instance of every started pipeline, and only partitions are shared. An
    empty `id` means the agent's.
    """

    id: str = ""
    interval_ms: int = 5_000
    lease_ttl_ms: int = 20_000
    no_leases: bool = False
    slots_per_pipeline_max: int = 16
    settle_ms: int = 10_000
    """How long the set of workers must be stable before slots are rebalanced, and how long a free slot still counts when
    partitions are assigned: it is moving from one worker to another."""
    margin_ms: int = 2_000
    """How long before its leases expire a worker stops acting on them."""
    alive_ms: int = 10_000
    """A driver without a heartbeat for this long is killed."""
    start_ms: int = 180_000
    """How long Spark may take to start."""
    idle_ms: int = 30_000
    """A driver without slots is stopped after this time."""
    halt_ms: int = 10_000
    """How long the current batch may take when a slot halts."""
    retry_base_ms: int = 1_000
    retry_max_ms: int = 60_000
    """Pauses before a driver that died, or a slot that failed, is restarted."""
    steady_ms: int = 60_000
    """The pauses start over for a driver that ran this long."""
    retired_interval_ms: int = 30_000
    """How often a worker looks for retired generations whose owner died."""
    leftovers_interval_ms: int = 3_600_000
    """How often a worker looks for files of streaming queries that are deleted or retired."""
    status_ms: int = 2_000
    """How often the status of a slot is written while it changes."""
    sink_roots: str = ""
    """Paths and URLs, separated by commas, below which sinks of files may write; empty: anywhere."""
    checkpoints: str = ""
    """A URL of Hadoop's file systems below which streaming queries keep checkpoints and state; empty: where objects are."""
    python_queries: bool = False
    """Whether a query may be a Python file. Its code runs in the driver, with the worker's rights."""

    def __post_init__(self) -> None:
        if len(self.id) > _ID_CHARS_MAX or "/" in self.id or not self.id.isprintable():
            raise InvalidError(
                "id", self.id[:_ID_CHARS_MAX], f"at most {_ID_CHARS_MAX} printable characters without '/'"
            )
        check_at_least("interval_ms", self.interval_ms, 10)
        if self.lease_ttl_ms < 2 * self.interval_ms:
            least = 2 * self.interval_ms
            allowed = f"at least {least}, twice the interval: otherwise one late renewal would lose the leases"
            raise InvalidError("lease_ttl_ms", self.lease_ttl_ms, allowed)
        check_between("slots_per_pipeline_max", self.slots_per_pipeline_max, 1, 1_000)
        check_at_least("settle_ms", self.settle_ms, 0)
        check_between("margin_ms", self.margin_ms, 0, self.lease_ttl_ms / 4)
        check_at_least("alive_ms", self.alive_ms, 100)
        check_at_least("start_ms", self.start_ms, 1_000)
        check_at_least("idle_ms", self.idle_ms, 0)
        check_at_least("halt_ms", self.halt_ms, 0)
        check_at_least("retry_base_ms", self.retry_base_ms, 1)
        check_at_least("retry_max_ms", self.retry_max_ms, self.retry_base_ms)
        check_at_least("steady_ms", self.steady_ms, 0)
        check_at_least("retired_interval_ms", self.retired_interval_ms, 100)
        check_at_least("leftovers_interval_ms", self.leftovers_interval_ms, 1_000)
        check_at_least("status_ms", self.status_ms, 10)
        parse_roots(self.sink_roots)

    @property
    def leases(self) -> bool:
        """Whether slots are leases."""
        return not self.no_leases

    @property
    def session(self) -> SessionSettings:
        """Its one session: renewed four times per TTL, unless the worker or its driver hangs."""
        return SessionSettings(
            ttl_ms=self.lease_ttl_ms,
            renew_ms=max(1, min(self.interval_ms, self.lease_ttl_ms // 4)),
            margin_ms=self.margin_ms,
            stall_ms=self.lease_ttl_ms,
            retry_ms=max(1, min(500, self.interval_ms)),
        )
