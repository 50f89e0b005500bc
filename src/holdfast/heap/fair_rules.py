"""Limits of a fair heap, and token buckets as one number each. Pure: time is an argument, and only schedules."""

from dataclasses import dataclass

from holdfast.vocabulary.settings import check_at_least


@dataclass(frozen=True, slots=True, kw_only=True)
class FairRules:
    """Limits of keys, and of all of them together; 0 is none.

    `rate_per_key`, `rate`: messages a second; `burst`: how many may go at once after a pause.
    """

    leases_per_key_max: int = 0
    rate_per_key: float = 0
    rate: float = 0
    burst: int = 1

    def __post_init__(self) -> None:
        check_at_least("leases_per_key_max", self.leases_per_key_max, 0)
        check_at_least("rate_per_key", self.rate_per_key, 0)
        check_at_least("rate", self.rate, 0)
        check_at_least("burst", self.burst, 1)


def charged_ms(full_at_ms: float, rate: float, now_ms: float) -> float:
    """When a bucket is full again, after one more message went at `now_ms`."""
    return max(full_at_ms, now_ms) + 1_000 / rate if rate else full_at_ms


def opens_at_ms(full_at_ms: float, rate: float, burst: int) -> float:
    """When a bucket lets the next message through."""
    return full_at_ms - (burst - 1) * 1_000 / rate if rate else 0.0
