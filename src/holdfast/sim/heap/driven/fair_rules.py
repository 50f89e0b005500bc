"""What fairness means for one partition's log, by rules of its own: whose turn it may be, and what limits hold back. Pure.

The one rule: it follows from records alone. Buckets are the formula of the docs, not the shipped index; a key that waits with the
best priority is passed over by another at most as often as their weights say, and once more for each end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.heap.fairness.rules import NO_KEY, NS_PER_MS, OFF, FairRules

_SLACK = 2  # a tag that was behind, and one that was ahead


class FairMessage(Protocol):
    """What is looked at of a message."""

    rank: int
    status: str
    key: str


@dataclass(slots=True)
class FairLog:
    """Rules, buckets, and how often which key was passed over, as of the last record."""

    rules: FairRules = OFF
    full_at_ns: dict[str, int] = field(default_factory=dict)
    all_full_at_ns: int = 0
    seen_ns: int = 0
    passed: dict[tuple[str, str], int] = field(default_factory=dict)  # (whose turn it was, who waited)

    def change_rules(self, rules: FairRules, now_ms: int) -> None:
        """A record with other rules. A bucket is never emptier than empty."""
        now_ns = now_ms * NS_PER_MS
        self.rules = rules
        self.all_full_at_ns = min(self.all_full_at_ns, now_ns + rules.burst * rules.interval_ns)
        for key, full_at_ns in self.full_at_ns.items():
            self.full_at_ns[key] = min(full_at_ns, now_ns + rules.key_burst * rules.key_interval_ns)
        self.passed.clear()

    def may_go(self, messages: Mapping[int, FairMessage]) -> list[int]:
        """The ready messages that no limit of leases holds back: of a key with room for n, the first n. None with a rate."""
        by_key: dict[str, list[tuple[int, int]]] = {}
        leased: dict[str, int] = {}
        for offset, message in messages.items():
            if message.status == "ready":
                by_key.setdefault(message.key, []).append((message.rank, offset))
            elif message.status == "leased":
                leased[message.key] = leased.get(message.key, 0) + 1
        found: list[int] = []
        limit = self.rules.key_leases_max
        for key, entries in by_key.items():
            if self._is_rated(key):
                continue
            room = len(entries) if not limit or key == NO_KEY else max(0, limit - leased.get(key, 0))
            found += [offset for _, offset in sorted(entries)[:room]]
        return found

    def _is_rated(self, key: str) -> bool:
        return bool(self.rules.interval_ns or (self.rules.key_interval_ns and key != NO_KEY))

    def broken_by(self, offset: int, messages: Mapping[int, FairMessage], now_ms: int) -> list[tuple[str, str]]:
        """What a grant of a ready message breaks: (rule, what). Called before `granted`."""
        broken: list[tuple[str, str]] = []
        rules, message = self.rules, messages[offset]
        key, now_ns = message.key, max(self.seen_ns, now_ms * NS_PER_MS)
        better = [other for other in self.may_go(messages) if messages[other].rank < message.rank]
        if better:
            broken.append(("best-first", f"the message at {offset} is granted before that at {better[0]}"))
        held = sum(other.status == "leased" and other.key == key for other in messages.values())
        if rules.key_leases_max and key != NO_KEY and held >= rules.key_leases_max:
            broken.append(("key-limit", f"key {key!r} has {held} leases, and one more"))
        opens_ns = [self.all_full_at_ns - (rules.burst - 1) * rules.interval_ns if rules.interval_ns else 0]
        if rules.key_interval_ns and key != NO_KEY:
            opens_ns.append(self.full_at_ns.get(key, 0) - (rules.key_burst - 1) * rules.key_interval_ns)
        if max(opens_ns) > now_ns:
            broken.append(("rate-kept", f"key {key!r} is {(max(opens_ns) - now_ns) // NS_PER_MS} ms too early"))
        for other, count in self._passed_by(offset, messages).items():
            most = self._weight(key) // self._weight(other) + _SLACK
            if count > most:
                broken.append(("fair-share", f"key {other!r} was passed over {count} times by {key!r}, at most {most}"))
        return broken

    def _passed_by(self, offset: int, messages: Mapping[int, FairMessage]) -> dict[str, int]:
        """The keys that a grant passes over, and how often its key has done that since it was their turn."""
        if self.rules.key_interval_ns or not self.rules.by_key:
            return {}
        message = messages[offset]
        others = {
            messages[each].key
            for each in (self.may_go(messages) if not self.rules.interval_ns else _ready(messages))
            if messages[each].rank == message.rank and messages[each].key != message.key
        }
        return {other: self.passed.get((message.key, other), 0) + 1 for other in others}

    def _weight(self, key: str) -> int:
        return dict(self.rules.weights).get(key, 1)

    def granted(self, offset: int, messages: Mapping[int, FairMessage], now_ms: int) -> None:
        """A ready message is leased: its key is charged."""
        rules, key = self.rules, messages[offset].key
        if rules.is_off:
            return
        now_ns = now_ms * NS_PER_MS
        for other, count in self._passed_by(offset, messages).items():
            self.passed[key, other] = count
        waiting = {message.key for at, message in messages.items() if message.status == "ready" and at != offset}
        self.passed = {pair: count for pair, count in self.passed.items() if pair[1] != key and pair[1] in waiting}
        self.seen_ns = max(self.seen_ns, now_ns)
        if rules.key_interval_ns and key != NO_KEY:
            self.full_at_ns[key] = max(self.full_at_ns.get(key, 0), now_ns) + rules.key_interval_ns
        if rules.interval_ns:
            self.all_full_at_ns = max(self.all_full_at_ns, now_ns) + rules.interval_ns


def _ready(messages: Mapping[int, FairMessage]) -> list[int]:
    return [offset for offset, message in messages.items() if message.status == "ready"]
