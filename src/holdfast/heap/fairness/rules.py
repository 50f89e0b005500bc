"""The rules of a fair partition, as a FAIRNESS record has them, and token buckets as one number each. Pure.

The one rule: whatever a setting decides about fairness is in the log before it counts, so that a replay charges keys as the leader
did. Times are whole nanoseconds: sums of them are the same everywhere.
"""

import struct
from typing import Final, NamedTuple

from holdfast.heap.config import HeapConfig, read_weights

NO_KEY: Final = ""  # of messages without a key: a share of its own, and no limits per key
OTHER_KEYS: Final = "\0"  # of all keys beyond those that are tracked, together
NS_PER_MS: Final = 1_000_000
_NS_PER_S: Final = 1_000_000_000
_RULES: Final = struct.Struct(">BIQIQII")
_KEY: Final = struct.Struct(">HH")
_BY_KEY: Final = 1


class FairRules(NamedTuple):
    """A FAIRNESS record: the rules from here on. Limits that are 0 are none; without `by_key` all messages are of one key.

    `…interval_ns`: between two messages; `…burst`: how many may go at once after a pause; `keys_max`: how many keys are told apart.
    """

    by_key: bool = False
    key_leases_max: int = 0
    key_interval_ns: int = 0
    key_burst: int = 1
    interval_ns: int = 0
    burst: int = 1
    keys_max: int = 10_000
    weights: tuple[tuple[str, int], ...] = ()

    @property
    def is_off(self) -> bool:
        """Whether messages are handed out by their priority alone."""
        return not (self.by_key or self.has_limits)

    @property
    def has_limits(self) -> bool:
        """Whether a message that is ready may have to wait for others."""
        return bool(self.key_leases_max or self.key_interval_ns or self.interval_ns)


OFF: Final = FairRules()


def rules_of(config: HeapConfig, partitions: int) -> FairRules:
    """What a heap's settings mean for one of its partitions: its share of the heap's rate, and limits per key as they are."""
    if not config.fairness and not config.rate_per_s:
        return OFF
    share = config.rate_per_s / partitions
    return FairRules(
        by_key=config.fairness,
        key_leases_max=config.key_leases_max,
        key_interval_ns=_interval_ns(config.key_rate_per_s),
        key_burst=_burst(config.key_rate_per_s, config.rate_burst),
        interval_ns=_interval_ns(share),
        burst=_burst(share, -(-config.rate_burst // partitions)),
        keys_max=config.fairness_keys_max,
        weights=tuple(sorted(read_weights(config.fairness_weights).items())),
    )


def _interval_ns(rate_per_s: float) -> int:
    return round(_NS_PER_S / rate_per_s) if rate_per_s else 0


def _burst(rate_per_s: float, burst: int) -> int:
    """What was set, or what the rate gives in a second."""
    return max(1, burst or int(rate_per_s))


def charged_ns(full_at_ns: int, interval_ns: int, now_ns: int) -> int:
    """When a bucket is full again, after one more message went."""
    return max(full_at_ns, now_ns) + interval_ns


def opens_at_ns(full_at_ns: int, interval_ns: int, burst: int) -> int:
    """When a bucket lets the next message through."""
    return full_at_ns - (burst - 1) * interval_ns


def emptied_ns(full_at_ns: int, interval_ns: int, burst: int, now_ns: int) -> int:
    """A bucket of a clock that was ahead of this one is empty, and not worse than empty."""
    return min(full_at_ns, now_ns + burst * interval_ns)


def encode_rules(rules: FairRules) -> bytes:
    """The value of a FAIRNESS record."""
    numbers = rules[1:7]
    parts = [_RULES.pack(_BY_KEY if rules.by_key else 0, *numbers)]
    for key, weight in rules.weights:
        name = key.encode()
        parts.append(_KEY.pack(weight, len(name)) + name)
    return b"".join(parts)


def decode_rules(value: bytes) -> FairRules:
    """The rules of a record. `struct.error`, `IndexError`, `UnicodeDecodeError`: it is none."""
    flags, leases, key_interval_ns, key_burst, interval_ns, burst, keys = _RULES.unpack_from(value)
    at, weights = _RULES.size, []
    while at < len(value):
        weight, length = _KEY.unpack_from(value, at)
        at += _KEY.size
        if at + length > len(value):
            raise IndexError(f"a key of {length} bytes at {at}")
        weights.append((value[at : at + length].decode(), weight))
        at += length
    numbers = leases, key_interval_ns, key_burst, interval_ns, burst, keys
    return FairRules(bool(flags & _BY_KEY), *numbers, tuple(weights))
