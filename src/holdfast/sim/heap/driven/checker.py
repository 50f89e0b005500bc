"""What must be true of every history of driven heaps. Pure: events in, violations out.

The one rule: the logs decide. Who holds which message is replayed from what was appended, by rules of its own; what callers were
told is compared with that. A message counts against pops from the answer to its enqueue, or to its nack, until it is granted; if
that grant is cut off, it counted all the time.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.heap.dedup import INTERNAL
from holdfast.heap.fairness.rules import FairRules
from holdfast.heap.records import Ack, Enqueue, Grant, Move, Moved, Op, Operation, Ready, Retry
from holdfast.sim.checker import Violation
from holdfast.sim.heap.driven.fair_rules import FairLog
from holdfast.sim.heap.driven.features import NO_FEATURES, Features
from holdfast.sim.heap.driven.history import (
    AckAnswered,
    AdvertAcknowledged,
    CodeFailed,
    DrivenEvent,
    EnqueueAnswered,
    LeaderStarted,
    MessageDelivered,
    NackAnswered,
    PopFailed,
    RecordsAppended,
    SnapshotListed,
    StateRecovered,
    TailCut,
    WorldEnded,
)
from holdfast.sim.heap.driven.moved import MovedMessages
from holdfast.sim.heap.driven.topic import LETTERS

DRIVEN_RULES: Final = {
    "rank-bound": "a message that a consumer gets has at most the rank that is said",
    "topic-bound": "what is said is within the topic's bound",
    "granted-once": "a message is granted while it is ready, and to one consumer at a time",
    "delivered-logged": "what a consumer has is granted in the log, and stays granted there",
    "delivered-live": "what a consumer gets was not given back before by the leader",
    "enqueued-once": "an enqueue that is repeated is one message",
    "acked-once": "a message is not granted after a consumer was told that it is done",
    "nothing-lost": "every message whose enqueue was answered is acknowledged in the end",
    "best-first": "a partition grants the best of what may go, and never a worse one",
    "key-limit": "a fairness key has at most so many leases in a partition",
    "rate-kept": "no key and no partition is handed out faster than its rate",
    "fair-share": "a key that waits is passed over no more often than weights say",
    "rules-logged": "in the end every log has the limits of its heap",
    "retries-kept": "a message goes to the dead letters when its retries are spent, and not before",
    "moved-once": "a message that moves is in its destination, once, and nothing else comes from there",
    "pops-wait": "while a spine serves, its pops wait and do not fail",
    "recovered-as-logged": "a leader that begins with a snapshot knows what the whole log says",
    "snapshots-fenced": "a snapshot is listed by the leader of the newest epoch, and none below one that is listed",
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
    status: str  # ready, delayed, leased, moved or done
    key: str = ""  # of fairness
    failures: int = 0
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

    operations: list[tuple[Operation, int]] = field(default_factory=list)  # with their times
    messages: dict[int, _Message] = field(default_factory=dict)
    grants: dict[int, _Granted] = field(default_factory=dict)  # by offset
    released: set[tuple[int, int]] = field(default_factory=set)  # grants that were given back, and their messages
    has_failed: bool = False  # its disk, and nothing was appended since
    fair: FairLog = field(default_factory=FairLog)
    opened: dict[int, int] = field(
        default_factory=dict
    )  # what may go, and since which record of others, -1: of its own
    told: int = -1  # the spine knows the log below
    epoch: int = 0
    listed: int = -1  # the newest snapshot


class DrivenChecker:
    """Follows a history event by event."""

    def __init__(self, *, k: int, mode: str, partitions: int, features: Features = NO_FEATURES) -> None:
        self.violations: list[Violation] = []
        self.ranks: list[int] = []  # of every message that was delivered with a bound
        self._k, self._sign = k, 1 if mode == "min" else -1
        self._features = features
        self._logs: defaultdict[int, _Log] = defaultdict(_Log, {place: _Log() for place in range(partitions)})
        self._moved = MovedMessages(features.letters, self._broken)
        self._places: dict[bytes, tuple[int, int]] = {}  # of messages that clients enqueued
        self._candidates: set[tuple[int, int]] = set()  # that count as soon as no limit holds them back
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
                times = event.times or (0,) * len(event.operations)
                for operation, time_ms in zip(event.operations, times, strict=True):
                    self._append(event.partition, operation, time_ms)
                self._logs[event.partition].has_failed = False
            case TailCut():
                self._cut(event.partition, event.offset)
                self._logs[event.partition].has_failed = True
            case LeaderStarted():
                self._logs[event.partition].has_failed = False
                self._logs[event.partition].epoch = event.epoch
            case AdvertAcknowledged():
                log = self._logs[event.partition]
                log.told = max(log.told, min(event.offset, len(log.operations)))
                self._recount(event.partition)
            case StateRecovered(as_logged=False):
                self._broken("recovered-as-logged", f"p{event.partition}.{event.epoch} at {event.offset}")
            case SnapshotListed():
                self._list_snapshot(event)
            case PopFailed():
                self._broken("pops-wait", f"{event.consumer}: {event.error}")
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

    def _append(self, partition: int, operation: Operation, time_ms: int) -> None:
        log = self._logs[partition]
        at = len(log.operations)
        log.operations.append((operation, time_ms))
        if isinstance(operation, Grant):
            self._grant(partition, at, operation, time_ms)
        elif isinstance(operation, Enqueue):
            self._enqueue(partition, at, operation)
        elif isinstance(operation, Move | Retry):
            self._check_retries(partition, operation)
            if isinstance(operation, Move):
                payload = log.messages[operation.offset].payload if operation.offset in log.messages else b""
                self._moved.left(partition, at, operation, payload)
        elif isinstance(operation, Moved):
            self._moved.told(partition, operation.offsets)
        self._apply(log, at, operation, time_ms)
        self._recount(partition)

    def _enqueue(self, partition: int, at: int, operation: Enqueue) -> None:
        if operation.producer is not None and operation.producer.producer.startswith(INTERNAL):
            self._moved.arrived(partition, at, operation)
            return
        if partition >= LETTERS:
            self._broken(
                "moved-once", f"message {operation.payload.decode()} is at {at} of p{partition}, and of no mover"
            )
            return
        place = self._places.setdefault(operation.payload, (partition, at))
        if place != (partition, at):
            what = f"message {operation.payload.decode()} is at {place[1]} of p{place[0]} and at {at} of p{partition}"
            self._broken("enqueued-once", what)

    def _check_retries(self, partition: int, operation: Move | Retry) -> None:
        features, log = self._features, self._logs[partition]
        if partition >= LETTERS or not features.has_dead_letters or log.has_failed:
            return
        offsets = (operation.offset,) if isinstance(operation, Move) else tuple(each for each, _ in operation.entries)
        for message in (log.messages[each] for each in offsets if each in log.messages):
            name = message.payload.decode()
            if message.status == "leased" and isinstance(operation, Move):
                if message.failures != features.max_retries:
                    self._broken("retries-kept", f"message {name} moves after {message.failures} failures before")
            elif isinstance(operation, Move):
                self._broken("retries-kept", f"message {name} moves, and is {message.status}")
            elif operation.op is not Op.RELEASE and message.failures >= features.max_retries:
                self._broken("retries-kept", f"message {name} is tried again after {message.failures + 1} failures")

    def _grant(self, partition: int, at: int, grant: Grant, time_ms: int) -> None:
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
            for rule, what in log.fair.broken_by(offset, log.messages, time_ms):
                self._broken(rule, f"p{partition}: {what}")
            log.fair.granted(offset, log.messages, time_ms)
            granted.ranks[offset] = 1 + bisect_left(self._waiting, message.rank)
            if (partition, offset) in self._counted:
                granted.counted[offset] = message.rank
                self._take_away(partition, offset)
            self._candidates.discard((partition, offset))
            message.status, message.granted_at = "leased", at
            self._reopen(log, at, ())
            self._recount(partition)

    def _apply(self, log: _Log, at: int, operation: Operation, time_ms: int) -> None:
        messages, own = log.messages, list[int]()
        match operation:
            case Enqueue():
                status = "delayed" if operation.not_before_ms else "ready"
                key = operation.fairness_key or ""
                messages[at] = _Message(operation.payload, self._sign * operation.priority, status, key)
                own = [at]
            case Grant():
                for offset, _ in operation.entries:
                    if offset in messages and messages[offset].status == "ready":
                        log.fair.granted(offset, messages, time_ms)
                        messages[offset].status, messages[offset].granted_at = "leased", at
            case Ack():
                for offset in operation.offsets:
                    if offset in messages:
                        messages[offset].status = "done"
            case Move():
                if operation.offset in messages:
                    messages[operation.offset].status = "moved"
            case FairRules():
                log.fair.change_rules(operation, time_ms)
            case Ready():
                own = [offset for offset, _ in operation.entries]
                for offset, _ in operation.entries:
                    if offset in messages and messages[offset].status == "delayed":
                        messages[offset].status, messages[offset].ready_by = "ready", _BY_TIMER
            case Retry():
                own = [offset for offset, _ in operation.entries]
                for offset, ready_ms in operation.entries:
                    message = messages.get(offset)
                    if message is None or message.status != "leased":
                        continue
                    message.status = "delayed" if ready_ms else "ready"
                    message.failures += operation.op is not Op.RELEASE
                    message.ready_by = message.granted_at if operation.op is Op.NACK else _BY_TIMER
                    if operation.op is Op.RELEASE:
                        log.released.add((message.granted_at, offset))
        self._reopen(log, at, own)

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
        log.operations, log.messages, log.released, log.opened, log.fair = kept, {}, set(), {}, FairLog()
        log.told = min(log.told, offset)
        self._places = {each: at for each, at in self._places.items() if at[0] != partition or at[1] < offset}
        self._moved.cut(partition, offset)
        for at, (operation, time_ms) in enumerate(kept):
            self._apply(log, at, operation, time_ms)
        for _, granted in undone:
            for message, rank in granted.counted.items():
                self._count_again(partition, message, rank, since=granted.number)
        self._recount(partition)

    # ── ranks ──

    def _count(self, partition: int, offset: int, ready_by: int) -> None:
        """What is answered counts from here on, unless it is not ready any more, or by something else since."""
        message = self._logs[partition].messages.get(offset)
        place = partition, offset
        if message is None or message.status != "ready" or message.ready_by != ready_by or place in self._counted:
            return
        if self._features.has_limits:
            self._candidates.add(place)
            self._recount(partition)
            return
        self._counted[place] = message.rank
        insort(self._waiting, message.rank)

    def _count_again(self, partition: int, offset: int, rank: int, *, since: int) -> None:
        """A message was granted to nobody: those that were granted elsewhere since then were behind it."""
        for number, log in self._logs.items():
            for granted in [each for each in log.grants.values() if each.number > since]:
                for behind in [each for each in granted.ranks if log.messages[each].rank > rank]:
                    granted.ranks[behind] += 1
                    self._check_rank(number, behind, granted)
        message, place = self._logs[partition].messages.get(offset), (partition, offset)
        if message is not None and message.status == "ready" and place not in self._counted:
            self._counted[place] = rank
            self._candidates.add(place)
            insort(self._waiting, rank)

    def _reopen(self, log: _Log, at: int, own: Sequence[int]) -> None:
        """Behind the record at `at`: what no limit holds back by now. `own`: the messages that the record made ready itself."""
        if self._features.has_limits:
            since = log.opened
            log.opened = {
                offset: since.get(offset, -1 if offset in own else at) for offset in log.fair.may_go(log.messages)
            }

    def _recount(self, partition: int) -> None:
        """Of the messages that were answered, those count that may go, and that the spine knows of if another record let them."""
        if not self._features.has_limits or partition >= LETTERS:
            return
        log = self._logs[partition]
        counts = {
            (partition, offset): log.messages[offset].rank
            for offset, since in log.opened.items()
            if (partition, offset) in self._candidates and since < log.told
        }
        for place in [each for each in self._counted if each[0] == partition and each not in counts]:
            self._take_away(*place)
        for place, rank in counts.items():
            if place not in self._counted:
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
        if event.partition < LETTERS:
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

    def _list_snapshot(self, event: SnapshotListed) -> None:
        log = self._logs[event.partition]
        if event.epoch != log.epoch or event.offset <= log.listed:
            what = (
                f"p{event.partition}.{event.epoch} lists one at {event.offset}, epoch {log.epoch}, above {log.listed}"
            )
            self._broken("snapshots-fenced", what)
        log.listed = max(log.listed, event.offset)

    def _end(self, event: WorldEnded) -> None:
        if event.left:
            self._broken("goes-on", f"{event.left} messages or calls are left")
            return
        self._moved.end()
        for place, log in self._logs.items():
            if place < LETTERS and log.fair.rules.key_leases_max != self._features.key_leases_max:
                self._broken("rules-logged", f"p{place} has {log.fair.rules}")
        for (partition, offset), payload in self._answered.items():
            if self._logs[partition].messages[offset].status not in ("done", "moved"):
                self._broken("nothing-lost", f"message {payload.decode()} is not acknowledged")
        for partition, offset in sorted(self._acked):
            message = self._logs[partition].messages.get(offset)
            if message is None or message.status != "done":
                self._broken("acked-once", f"the message at {offset} of p{partition} is not done in the log")
