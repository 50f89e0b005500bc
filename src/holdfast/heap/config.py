"""What can be set per heap: names, defaults and limits. docs/heaps.md is the table for people.

The one rule: a heap stores only what was set. What decides the order of messages (`mode`) is fixed when it is created.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import MIB, check_at_least, check_between, check_one_of, settings_from

MODES: Final = ("min", "max")
COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PRIORITY_MIN: Final = -(1 << 63)
PRIORITY_MAX: Final = (1 << 63) - 1
PAYLOAD_BYTES_MAX: Final = 16 * MIB

FAIRNESS_KEY_CHARS_MAX: Final = 255
WEIGHT_MAX: Final = 1_000
WEIGHTS_MAX: Final = 1_000
RATE_MIN: Final = 0.001  # messages a second
RATE_MAX: Final = 1_000_000

UNLIMITED: Final = -1

_SECOND_MS: Final = 1_000
_DAY_MS: Final = 86_400_000
_YEAR_MS: Final = 366 * _DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapConfig:
    """A heap's settings. docs/heaps.md explains them."""

    mode: str = "min"
    top_k_bound: int = 1
    visibility_timeout_ms: int = 30 * _SECOND_MS
    lease_ms_max: int = _DAY_MS
    max_retries: int = 3
    backoff_base_ms: int = _SECOND_MS
    backoff_cap_ms: int = 300 * _SECOND_MS
    backoff_jitter: float = 0.2
    payload_bytes_max: int = MIB
    compression: str = "none"
    inflight_max: int = 100_000
    leases_per_consumer_max: int = 10_000
    dedup_window_ms: int = _DAY_MS
    dlq: bool = True
    dlq_retention_ms: int = UNLIMITED
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = UNLIMITED
    fairness: bool = False
    fairness_weights: str = ""
    fairness_keys_max: int = 10_000
    key_leases_max: int = 0
    key_rate_per_s: float = 0.0
    rate_per_s: float = 0.0
    rate_burst: int = 0

    def __post_init__(self) -> None:
        check_one_of("mode", self.mode, MODES)
        check_between("top_k_bound", self.top_k_bound, 1, 1_000_000)
        check_between("visibility_timeout_ms", self.visibility_timeout_ms, 100, _YEAR_MS)
        check_between("lease_ms_max", self.lease_ms_max, self.visibility_timeout_ms, _YEAR_MS)
        check_between("max_retries", self.max_retries, 0, 1_000_000)
        check_between("backoff_base_ms", self.backoff_base_ms, 0, _DAY_MS)
        check_between("backoff_cap_ms", self.backoff_cap_ms, self.backoff_base_ms, _YEAR_MS)
        check_between("backoff_jitter", self.backoff_jitter, 0, 1)
        check_between("payload_bytes_max", self.payload_bytes_max, 1, PAYLOAD_BYTES_MAX)
        check_one_of("compression", self.compression, COMPRESSIONS)
        check_between("inflight_max", self.inflight_max, 1, 1_000_000)
        check_between("leases_per_consumer_max", self.leases_per_consumer_max, 1, 1_000_000)
        check_between("dedup_window_ms", self.dedup_window_ms, 0, 31 * _DAY_MS)
        check_at_least("dlq_retention_ms", self.dlq_retention_ms, UNLIMITED)
        check_at_least("retention_ms", self.retention_ms, UNLIMITED)
        check_at_least("retention_bytes", self.retention_bytes, UNLIMITED)
        read_weights(self.fairness_weights)
        check_between("fairness_keys_max", self.fairness_keys_max, 1, 1_000_000)
        check_between("key_leases_max", self.key_leases_max, 0, 1_000_000)
        check_rate("key_rate_per_s", self.key_rate_per_s)
        check_rate("rate_per_s", self.rate_per_s)
        check_between("rate_burst", self.rate_burst, 0, 1_000_000)
        if not self.fairness and (self.key_leases_max or self.key_rate_per_s or self.fairness_weights):
            what = "fairness_weights, key_leases_max and key_rate_per_s"
            raise InvalidError("fairness", False, f"true where {what} are set")

    def inflight_max_of_partition(self, partitions: int) -> int:
        """The part of `inflight_max` that one of so many partitions may lease out."""
        return -(-self.inflight_max // partitions)


def read_weights(text: str) -> dict[str, int]:
    """The weights of `fairness_weights`: `key=weight`, with commas between. `InvalidError`."""
    weights: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        key, _, weight = part.strip().rpartition("=")
        if not 1 <= len(key) <= FAIRNESS_KEY_CHARS_MAX or not weight.isdecimal():
            raise InvalidError("fairness_weights", text[:60], "key=weight, with commas between")
        check_between(f"weight of {key}", int(weight[:9]), 1, WEIGHT_MAX)
        weights[key] = int(weight)
    check_between("number of fairness_weights", len(weights), 0, WEIGHTS_MAX)
    return weights


def check_rate(what: str, rate_per_s: float) -> None:
    """Refuse a rate that is neither 0 nor one that can be kept."""
    if rate_per_s and not RATE_MIN <= rate_per_s <= RATE_MAX:
        raise InvalidError(what, rate_per_s, f"0, or between {RATE_MIN} and {RATE_MAX}")


NAMES: Final = tuple(field.name for field in fields(HeapConfig))
FIXED: Final = frozenset({"mode"})


def read_heap_config(given: Mapping[str, object]) -> HeapConfig:
    """Settings from text or typed values. An unknown name or a value that does not fit is an `InvalidError`."""
    return settings_from(HeapConfig, given)


def stored_heap_config(given: Mapping[str, object]) -> dict[str, object]:
    """Only what was given, with the types it is stored with."""
    config = read_heap_config(given)
    return {name: getattr(config, name) for name in given}


def changed_heap_config(stored: Mapping[str, object], changes: Mapping[str, object | None]) -> dict[str, object]:
    """The stored settings after changes; None takes one back to its default. `InvalidError`: not all of them are possible."""
    before = config_from_record(stored)
    for name in FIXED & changes.keys():
        if changes[name] != getattr(before, name):
            raise InvalidError(name, changes[name], f"{getattr(before, name)}, as the heap was created with")
    kept = {name: value for name, value in stored.items() if name not in changes or name in FIXED}
    given = {name: value for name, value in changes.items() if value is not None}
    known = {name: value for name, value in kept.items() if name in NAMES}
    return {**kept, **stored_heap_config({**known, **given})}


def config_from_record(stored: Mapping[str, object]) -> HeapConfig:
    """The settings in a topic's record. Those of a newer release are not looked at."""
    return read_heap_config({name: value for name, value in stored.items() if name in NAMES})
