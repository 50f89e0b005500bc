"""What must be true of every history of driven heaps. Pure: events in, violations out.

The one rule: the logs decide. Who holds which message is replayed from what was appended, by rules of its own; what callers were
told is compared with that. A message counts against pops from the answer to its enqueue, or to its nack, until it is granted; if
that grant is cut off, it counted all the time.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from holdfast.heap.records import Ack, Enqueue, Grant, Op, Operation, Ready, Retry
from holdfast.sim.checker import Violation
from holdfast.sim.heap.driven.history import (
    AckAnswered,
    CodeFailed,
    DrivenEvent,
    EnqueueAnswered,
    LeaderStarted,
    MessageDelivered,
    NackAnswered,
    RecordsAppended,
    TailCut,
    WorldEnded,
)

DRIVEN_RULES: Final = {
    "rank-bound": "a message that a consumer gets has at most the rank that is said",
    "topic-bound": "what is said is within the topic's bound",
    "granted-once": "a message is granted while it is ready, and to one consumer at a time",
    "delivered-logged": "what a consumer has is granted in the log, and stays granted there",
    "delivered-live": "what a consumer gets was not given back before by the leader",
    "enqueued-once": "an enqueue that is repeated is one message",
    "acked-once": "a message is not granted after a consumer was told that it is done",
    "nothing-lost": "every message whose enqueue was answered is acknowledged in the end",
    "goes-on": "once faults end, every call is answered and every message handed out",
    "no-surprise": "no code fails in a way that is not part of its contract; nothing spins or waits for ever",
}

_BY_ENQUEUE: Final = -1
_BY_TIMER: Final = -2


@dataclass(slots=True)
class _Message:
    """A message by its log. `ready_by`: what made it ready last, an enqueue, a timer, or the end of the lease granted there."""

    payload: bytes
    rank: int
    status: str  # ready, delayed, leased or done
    ready_by: int = _BY_ENQUEUE
    granted_at: int = -1


@dataclass(slots=True)
class _Granted:
    """A GRANT, the `number`th of all logs. By message: its true rank, what it `counted` as before, its bound once delivered."""

    epoch: int
    number: int
    ranks: dict[int, int] = field(default_factory=dict)
    counted: dict[int, int] = field(default_factory=dict)
    bounds: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Log:
    """A partition's log, and what it says."""

    operations: list[Operation] = field(default_factory=list)
    messages: dict[int, _Message] = field(default_factory=dict)
    grants: dict[int, _Granted] = field(default_factory=dict)  # by offset
    released: set[tuple[int, int]] = field(default_factory=set)  # grants that were given back, and their messages
    has_failed: bool = False  # its disk, and nothing was appended since


class DrivenChecker:
    """Follows a history event by event."""

    def __init__(self, *, k: int, mode: str, partitions: int) -> None:
        self.violations: list[Violation] = []
        self.ranks: list[int] = []  # of every message that was delivered with a bound
        self._k, self._sign = k, 1 if mode == "min" else -1
        self._logs = [_Log() for _ in range(partitions)]
        self._counted: dict[tuple[int, int], int] = {}  # rank by partition and offset
        self._waiting: list[int] = []  # the same ranks, sorted
        self._answered: dict[tuple[int, int], bytes] = {}
        self._acked: set[tuple[int, int]] = set()
        self._delivered: set[tuple[int, int]] = set()  # partition and offset of grants
        self._index, self._at_ms, self._grants = -1, 0.0, 0

    def check(self, history: Iterable[DrivenEvent]) -> list[Violation]:
        """Every violation, in the order they happened."""
        for event in history:
            self._index += 1
            self._at_ms = event.at_ms
            self._take(event)
        return self.violations

    def _broken(self, rule: str, what: str) -> None:
        self.violations.append(Violation(rule, self._at_ms, what, self._index))

    def _take(self, event: DrivenEvent) -> None:
        match event:
            case RecordsAppended(forked=False):
                for operation in event.operations:
                    self._append(event.partition, operation)
                self._logs[event.partition].has_failed = False
            case TailCut():
                self._cut(event.partition, event.offset)
                self._logs[event.partition].has_failed = True
            case LeaderStarted():
                self._logs[event.partition].has_failed = False
            case EnqueueAnswered():
                self._enqueued(event)
            case NackAnswered():
                self._count(event.partition, event.offset, event.granted_at)
            case MessageDelivered():
                self._deliver(event)
            case AckAnswered():
                self._acked.add((event.partition, event.offset))
            case CodeFailed():
                self._broken("no-surprise", f"{event.who}: {event.error}")
            case WorldEnded():
                self._end(event)

    # ── logs ──

    def _append(self, partition: int, operation: Operation) -> None:
        log = self._logs[partition]
        at = len(log.operations)
        log.operations.append(operation)
        if isinstance(operation, Grant):
            self._grant(partition, at, operation)
        elif isinstance(operation, Enqueue):
            same = [offset for offset, known in log.messages.items() if known.payload == operation.payload]
            if same:
                self._broken("enqueued-once", f"message {operation.payload.decode()} is at {same[0]} and {at}")
        self._apply(log, at, operation)

    def _grant(self, partition: int, at: int, grant: Grant) -> None:
        log = self._logs[partition]
        self._grants += 1
        granted = log.grants[at] = _Granted(grant.epoch, self._grants)
        for offset, _ in grant.entries:
            message = log.messages.get(offset)
            if message is None or message.status != "ready":
                if log.has_failed:
                    # The batch waited for room while what it follows was undone: it has another place than its leader thought,
                    # whose view ends by that. Such a grant is void, and `delivered-logged` is broken if anybody gets it.
                    continue
                status = "unknown" if message is None else message.status
                self._broken("granted-once", f"the message at {offset} of p{partition} is {status}")
                continue
            if (partition, offset) in self._acked:
                self._broken("acked-once", f"the message at {offset} of p{partition} is granted again")
            granted.ranks[offset] = 1 + bisect_left(self._waiting, message.rank)
            if (partition, offset) in self._counted:
                granted.counted[offset] = message.rank
                self._take_away(partition, offset)

    def _apply(self, log: _Log, at: int, operation: Operation) -> None:
        messages = log.messages
        match operation:
            case Enqueue():
                status = "delayed" if operation.not_before_ms else "ready"
                messages[at] = _Message(operation.payload, self._sign * operation.priority, status)
            case Grant():
                for offset, _ in operation.entries:
                    if offset in messages and messages[offset].status == "ready":
                        messages[offset].status, messages[offset].granted_at = "leased", at
            case Ack():
                for offset in operation.offsets:
                    if offset in messages:
                        messages[offset].status = "done"
            case Ready():
                for offset, _ in operation.entries:
                    if offset in messages and messages[offset].status == "delayed":
                        messages[offset].status, messages[offset].ready_by = "ready", _BY_TIMER
            case Retry():
                for offset, ready_ms in operation.entries:
                    message = messages.get(offset)
                    if message is None or message.status != "leased":
                        continue
                    message.status = "delayed" if ready_ms else "ready"
                    message.ready_by = message.granted_at if operation.op is Op.NACK else _BY_TIMER
                    if operation.op is Op.RELEASE:
                        log.released.add((message.granted_at, offset))

    def _cut(self, partition: int, offset: int) -> None:
        log = self._logs[partition]
        kept = log.operations[:offset]
        undone = [(at, log.grants.pop(at)) for at in [*log.grants] if at >= offset]
        for at, _ in undone:
            if (partition, at) in self._delivered:
                self._broken("delivered-logged", f"the grant at {at} of p{partition} is gone, and was delivered")
        for place in [place for place in self._answered if place[0] == partition and place[1] >= offset]:
            self._broken("nothing-lost", f"message {self._answered.pop(place).decode()} is gone, and was answered")
            self._take_away(*place)
        log.operations, log.messages, log.released = kept, {}, set()
        for at, operation in enumerate(kept):
            self._apply(log, at, operation)
        for _, granted in undone:
            for message, rank in granted.counted.items():
                self._count_again(partition, message, rank, since=granted.number)

    # ── ranks ──

    def _count(self, partition: int, offset: int, ready_by: int) -> None:
        """What is answered counts from here on, unless it is not ready any more, or by something else since."""
        message = self._logs[partition].messages.get(offset)
        place = partition, offset
        if message is None or message.status != "ready" or message.ready_by != ready_by or place in self._counted:
            return
        self._counted[place] = message.rank
        insort(self._waiting, message.rank)

    def _count_again(self, partition: int, offset: int, rank: int, *, since: int) -> None:
        """A message was granted to nobody: those that were granted elsewhere since then were behind it."""
        for number, log in enumerate(self._logs):
            for granted in [each for each in log.grants.values() if each.number > since]:
                for behind in [each for each in granted.ranks if log.messages[each].rank > rank]:
                    granted.ranks[behind] += 1
                    self._check_rank(number, behind, granted)
        message, place = self._logs[partition].messages.get(offset), (partition, offset)
        if message is not None and message.status == "ready" and place not in self._counted:
            self._counted[place] = rank
            insort(self._waiting, rank)

    def _check_rank(self, partition: int, offset: int, granted: _Granted) -> None:
        rank, bound = granted.ranks[offset], granted.bounds.get(offset, 0)
        if bound and rank > bound:
            self._broken("rank-bound", f"rank {rank} of the message at {offset} of p{partition}, bound {bound}")

    def _take_away(self, partition: int, offset: int) -> None:
        rank = self._counted.pop((partition, offset), None)
        if rank is not None:
            del self._waiting[bisect_left(self._waiting, rank)]

    # ── what callers were told ──

    def _enqueued(self, event: EnqueueAnswered) -> None:
        message = self._logs[event.partition].messages.get(event.offset)
        if message is None or message.payload != event.message:
            self._broken("nothing-lost", f"message {event.message.decode()} is not at {event.offset}")
            return
        self._answered[event.partition, event.offset] = event.message
        self._count(event.partition, event.offset, _BY_ENQUEUE)

    def _deliver(self, event: MessageDelivered) -> None:
        log = self._logs[event.partition]
        granted = log.grants.get(event.granted_at, _Granted(-1, 0))
        if (event.granted_at, event.offset) in log.released:
            what = f"the grant at {event.granted_at} of p{event.partition} was released"
            self._broken("delivered-live", what)
        rank = granted.ranks.get(event.offset) if granted.epoch == event.epoch else None
        self._delivered.add((event.partition, event.granted_at))
        if rank is None:
            what = f"p{event.partition} has no grant of {event.offset} at {event.granted_at}, epoch {event.epoch}"
            self._broken("delivered-logged", what)
        elif event.rank_bound:
            self.ranks.append(rank)
            granted.bounds[event.offset] = event.rank_bound
            self._check_rank(event.partition, event.offset, granted)
            if event.rank_bound > self._k:
                self._broken("topic-bound", f"{event.rank_bound} of {self._k}")

    def _end(self, event: WorldEnded) -> None:
        if event.left:
            self._broken("goes-on", f"{event.left} messages or calls are left")
            return
        for (partition, offset), payload in self._answered.items():
            if self._logs[partition].messages[offset].status != "done":
                self._broken("nothing-lost", f"message {payload.decode()} is not acknowledged")
        for partition, offset in sorted(self._acked):
            message = self._logs[partition].messages.get(offset)
            if message is None or message.status != "done":
                self._broken("acked-once", f"the message at {offset} of p{partition} is not done in the log")
