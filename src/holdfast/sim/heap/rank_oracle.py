"""The true rank of every pop, by replay of what the logs say. Pure; it knows nothing of how spines decide.

The one rule: a pop that a consumer got is measured, at the moment of its grant, against every message whose readiness was
acknowledged before. Grants that nobody was given count as taken, and are not measured.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final, NamedTuple

from holdfast.sim.checker import Violation
from holdfast.sim.heap.history import (
    FaultsEnded,
    HeapEvent,
    MessageCounted,
    MessageGone,
    MessagesGranted,
    PopDelivered,
)

HEAP_RULES: Final = {
    "rank-bound": "a message that is popped has at most the rank that was said",
    "topic-bound": "what was said is within the topic's bound",
    "granted-once": "a message is granted once while it is ready",
    "key-limit": "no more messages of a fairness key are leased at once than its limit",
    "goes-on": "once faults end, every message is handed out",
}


class RankedPop(NamedTuple):
    """A message that a consumer got. `event`: its grant's place in the history."""

    event: int
    at_ms: float
    partition: int
    rank: int
    bound: int


class Ranks(NamedTuple):
    """Every pop with its true rank, and the rules that were broken."""

    pops: list[RankedPop]
    violations: list[Violation]


def rank_pops(history: Iterable[HeapEvent], k: int) -> Ranks:
    """Replay a history of a topic with bound `k`."""
    events = list(history)
    delivered = {(event.spine_epoch, event.sequence) for event in events if isinstance(event, PopDelivered)}
    waiting: list[int] = []  # ranks, sorted
    by_message: dict[int, int] = {}
    pops: list[RankedPop] = []
    violations: list[Violation] = []

    def take(message: int) -> None:
        rank = by_message.pop(message, None)
        if rank is not None:
            del waiting[bisect_left(waiting, rank)]

    for index, event in enumerate(events):
        match event:
            case MessageCounted():
                if event.message in by_message:
                    violations.append(Violation("granted-once", event.at_ms, f"message {event.message}", index))
                    continue
                by_message[event.message] = event.rank
                insort(waiting, event.rank)
            case MessageGone():
                take(event.message)
            case MessagesGranted():
                for message, rank in zip(event.messages, event.ranks, strict=True):
                    true_rank = 1 + bisect_left(waiting, rank)
                    take(message)
                    if (event.spine_epoch, event.sequence) not in delivered:
                        continue
                    pops.append(RankedPop(index, event.at_ms, event.partition, true_rank, event.bound))
                    if true_rank > event.bound:
                        what = f"rank {true_rank} of message {message}, bound {event.bound}"
                        violations.append(Violation("rank-bound", event.at_ms, what, index))
                if event.bound > k:
                    violations.append(Violation("topic-bound", event.at_ms, f"{event.bound} of {k}", index))
            case FaultsEnded(left=left) if left:
                violations.append(Violation("goes-on", event.at_ms, f"{left} messages wait", index))
    return Ranks(pops, violations)
