"""What an operator may tune of a worker. Stores, clocks and the driver's surroundings are components and are passed apart."""

from dataclasses import dataclass
from typing import Final

from holdfast.kernel.session import SessionSettings
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import check_at_least, check_between

_ID_CHARS_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """One worker.

    `interval_ms`: how often it looks, in case a watch told it nothing. `lease_ttl_ms`: how long its slots and partitions are
    its own after it was last heard of. `no_leases`: every worker runs one instance of every started pipeline, and only
    partitions are shared. `id` is empty if it is to be the agent's.
    """

    id: str = ""
    interval_ms: int = 5_000
    lease_ttl_ms: int = 20_000
    no_leases: bool = False
    slots_per_pipeline_max: int = 16
    settle_ms: int = 10_000
    """How long the others may come and go before slots are given back to even them out, and for how long a slot that
    nobody holds still counts when partitions are shared: it is on its way from one worker to another."""
    margin_ms: int = 2_000
    """How long before its leases end a worker stops to act on them."""
    alive_ms: int = 10_000
    """A driver that is silent for so long is killed."""
    start_ms: int = 180_000
    """How long Spark may take to start."""
    idle_ms: int = 30_000
    """A driver that has had no slot for so long is ended."""
    halt_ms: int = 10_000
    """How long what is under way may take when a slot stops."""
    retry_base_ms: int = 1_000
    retry_max_ms: int = 60_000
    """Pauses before a driver that died, or a slot that failed, is started again."""
    steady_ms: int = 60_000
    """A driver that lived for so long has earned a short pause again."""
    status_ms: int = 2_000
    """How often the status of a slot is written while it changes."""

    def __post_init__(self) -> None:
        if len(self.id) > _ID_CHARS_MAX or "/" in self.id or not self.id.isprintable():
            raise InvalidError(
                "id", self.id[:_ID_CHARS_MAX], f"at most {_ID_CHARS_MAX} printable characters without '/'"
            )
        check_at_least("interval_ms", self.interval_ms, 10)
        if self.lease_ttl_ms < 2 * self.interval_ms:
            least = 2 * self.interval_ms
            allowed = (
                f"at least {least}, twice the interval: a worker that looks once per lease loses it to a late look"
            )
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
        check_at_least("status_ms", self.status_ms, 10)

    @property
    def leases(self) -> bool:
        """Whether slots are leases."""
        return not self.no_leases

    @property
    def session(self) -> SessionSettings:
        """Its one session: renewed four times per TTL, as long as the worker and its driver are not hung."""
        return SessionSettings(
            ttl_ms=self.lease_ttl_ms,
            renew_ms=max(1, min(self.interval_ms, self.lease_ttl_ms // 4)),
            margin_ms=self.margin_ms,
            stall_ms=self.lease_ttl_ms,
            retry_ms=max(1, min(500, self.interval_ms)),
        )
