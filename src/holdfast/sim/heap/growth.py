"""The world of growing heaps: enqueues that are repeated by whoever knows of however many partitions, all from one seed.

The one rule: memory dies with a leadership; logs stay. A former leader goes on answering, and what it would append is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from holdfast.heap.batch.model import Prepared, Resolved
from holdfast.heap.batch.reservation import check_not_reserved
from holdfast.heap.decisions import known_enqueue
from holdfast.heap.errors import BatchAbortedError, PartitionsGrownError
from holdfast.heap.growth.look_up import AskedHomes, decide_look_up
from holdfast.heap.growth.partition_sets import PartitionSets
from holdfast.heap.model import NewMessage
from holdfast.heap.partition_state import HeapState
from holdfast.heap.records import (
    Encoded,
    Enqueue,
    Operation,
    PartitionCount,
    ProducerSequence,
    Reserve,
    decode_operation,
    encode_operation,
)
from holdfast.heap.routing import MessageRouter
from holdfast.sim.checker import Violation
from holdfast.sim.heap.batches import BatchEvent
from holdfast.sim.heap.growth_variant import CORRECT_GROWTH, NOW_MS, WINDOW_MS, GrowthVariant
from holdfast.vocabulary.random import SeededRandom

_NUMBERS: Final = 12
_STEPS_MAX: Final = 5_000
_PARTITIONS_MAX: Final = 12

GROWTH_RULES: Final = {
    "once": "a producer's number is enqueued once, in whichever partition",
    "same-answer": "whoever enqueues it again is told of the same message",
    "found": "what was answered is found by whoever enqueues it again at the end",
}


@dataclass(slots=True, eq=False)
class _Leader:
    """A leader of a partition. `partitions`: of the heap, as a leader whose growths are not in the log would remember."""

    partition: int
    epoch: int
    state: HeapState
    sets: PartitionSets
    asked: AskedHomes = field(default_factory=AskedHomes)


@dataclass(slots=True, eq=False)
class _Arrival:
    """An enqueue at a leader, which asks others first."""

    leader: _Leader
    message: NewMessage
    batched: bool
    waits_for: int = 0
    known: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class GrowthRun:
    """The result of one seed."""

    events: list[BatchEvent]
    violations: list[Violation]
    counts: dict[str, int]


class GrowthWorld:
    """One heap that grows, and clients that repeat themselves."""

    def __init__(self, seed: int, variant: GrowthVariant) -> None:
        self._random = SeededRandom(seed).random
        self._variant = variant
        self._sizes = [self._random.choice((1, 2, 3))]
        self._records: list[list[Encoded]] = []
        self._leaders: list[_Leader] = []
        self._former: list[_Leader | None] = []
        self._under_way: list[Callable[[], None]] = []
        self._router = MessageRouter()
        self._keys = [self._random.choice((None, "a", "b", "c", "d")) for _ in range(_NUMBERS)]
        self._answers: dict[int, set[tuple[int, int]]] = {}
        self._step = self._batches = 0
        self.events: list[BatchEvent] = []
        self._open_partitions()

    # ── running ──

    def run(self) -> list[Violation]:
        """Enqueues, growths and changes of leaders by chance, then everything once more; what was broken."""
        for _ in range(self._random.choice((100, 300, 600))):
            self._advance()
        self._settle()
        answered = {number: set(places) for number, places in self._answers.items()}
        for number in answered:
            self._arrive(number, self._sizes[-1], batched=False)
        self._settle()
        return self._check(answered)

    def _advance(self) -> None:
        chance, random = self._random.random(), self._random
        if chance < 0.15:
            size = self._sizes[-1] if random.random() < 0.5 else random.choice(self._sizes)
            self._arrive(random.randrange(_NUMBERS), size, batched=random.random() < 0.3)
        elif chance < 0.17 and self._sizes[-1] < _PARTITIONS_MAX:
            self._grow()
        elif chance < 0.22:
            self._change_leader(random.randrange(len(self._leaders)))
        elif chance < 0.25:
            self._notice(random.choice(self._leaders), self._sizes[-1])
        elif chance < 0.3:
            self._resolve(random.choice(self._leaders))
        elif self._under_way:
            self._take_step()

    def _settle(self) -> None:
        """Everything that is under way comes to its end."""
        for _ in range(_STEPS_MAX):
            if not self._under_way:
                break
            self._take_step()
        for leader in self._leaders:
            while leader.state.reserved.prepared:
                self._resolve(leader)

    def _take_step(self) -> None:
        self._step += 1
        self._under_way.pop(self._random.randrange(len(self._under_way)))()

    def _later(self, leader: _Leader, step: Callable[[], None], *, former: bool = False) -> None:
        """Something that a leader does next: nothing if it leads no more by then, unless a former one would do it, too."""

        def take() -> None:
            if former or self._leaders[leader.partition] is leader:
                step()

        self._under_way.append(take)

    def _note(self, who: str, text: str) -> None:
        self.events.append(BatchEvent(self._step, who, text))

    # ── partitions ──

    def _sets(self) -> PartitionSets:
        return PartitionSets(self._sizes[-1], tuple((size, NOW_MS) for size in self._sizes[:-1]))

    def _grow(self) -> None:
        self._sizes.append(self._sizes[-1] + self._random.choice((1, 2, 3)))
        self._note("heap", f"has {self._sizes[-1]} partitions")
        self._open_partitions()

    def _open_partitions(self) -> None:
        for partition in range(len(self._records), self._sizes[-1]):
            self._records.append([])
            self._former.append(None)
            self._leaders.append(_Leader(partition, 1, HeapState("min"), self._sets()))

    def _change_leader(self, partition: int) -> None:
        old = self._former[partition] = self._leaders[partition]
        state = HeapState("min")
        for offset, record in enumerate(self._records[partition]):
            state.apply(offset, NOW_MS, decode_operation(record.key, record.value, record.headers))
        self._leaders[partition] = _Leader(partition, old.epoch + 1, state, self._sets())
        self._note(f"p{partition}", f"has a leader at epoch {old.epoch + 1}")

    def _append(self, leader: _Leader, *records: Operation) -> int:
        log = self._records[leader.partition]
        first = len(log)
        for record in records:
            leader.state.apply(len(log), NOW_MS, record)
            log.append(encode_operation(record))
            self._note(f"p{leader.partition}", f"appends {record}")
        return first

    def _notice(self, leader: _Leader, partitions: int) -> bool:
        """A leader learns how many partitions there are; whether it has that in its log."""
        if partitions <= max(self._sizes[0], leader.state.partitions):
            return True
        if self._leaders[leader.partition] is not leader:
            return False
        if self._variant.logs_growth:
            self._append(leader, PartitionCount(partitions))
        else:
            leader.state.partitions = partitions
        return True

    # ── enqueues ──

    def _arrive(self, number: int, size: int, *, batched: bool) -> None:
        """A client enqueues a number, through a node that knows of so many partitions."""
        key = ProducerSequence("client", 0, number)
        message = NewMessage(payload=b"", partition_key=self._keys[number], producer=key)
        leader = self._leaders[self._router.partition(message, size)]
        self._later(leader, lambda: self._begin(_Arrival(leader, message, batched)))

    def _begin(self, arrival: _Arrival) -> None:
        leader, key = arrival.leader, _key(arrival.message)
        homes = []
        if leader.partition >= self._sizes[0] and leader.state.dedup.find(key) is None:
            homes = [
                home
                for home in self._variant.homes(arrival.message, leader.partition, leader.sets)
                if leader.asked.must_ask(home, key)
            ]
        arrival.waits_for = len(homes)
        for home in homes:
            self._ask(arrival, home)
        if not homes:
            self._enqueue(arrival)

    def _ask(self, arrival: _Arrival, home: int) -> None:
        former = self._former[home]
        asked = former if former is not None and self._random.random() < 0.2 else self._leaders[home]
        self._later(asked, lambda: self._look_up(asked, arrival), former=True)

    def _look_up(self, home: _Leader, arrival: _Arrival) -> None:
        """A home answers, if what it has to append lands."""
        key = _key(arrival.message)
        if not self._notice(home, arrival.leader.sets.partitions):
            return
        try:
            (known,) = decide_look_up(home.state, "t", [key], window_ms=WINDOW_MS, now_ms=NOW_MS)
        except BatchAbortedError:
            return  # the client tries again some time
        highest = self._variant.highest(home.state, [key])
        place = None if known is None else (home.partition, known.offset)
        self._later(arrival.leader, lambda: self._answered(arrival, home.partition, highest, place))

    def _answered(
        self, arrival: _Arrival, home: int, highest: list[tuple[str, int, int]], known: tuple[int, int] | None
    ) -> None:
        arrival.leader.asked.answered(home, highest)
        arrival.waits_for -= 1
        arrival.known = arrival.known or known
        if not arrival.waits_for:
            self._enqueue(arrival)

    def _enqueue(self, arrival: _Arrival) -> None:
        leader, message, key = arrival.leader, arrival.message, _key(arrival.message)
        if arrival.known is not None:
            self._answer(key.sequence, arrival.known)
            return
        try:
            self._variant.check_home(leader.state, leader.partition, message)
            check_not_reserved(leader.state, "t", key)
        except PartitionsGrownError as error:
            self._arrive(key.sequence, error.partitions, batched=arrival.batched)
            return
        except BatchAbortedError:
            return
        known = known_enqueue(leader.state, key, WINDOW_MS, NOW_MS)
        record = Enqueue(0, b"", producer=key, partition_key=message.partition_key)
        if known is not None:
            self._answer(key.sequence, (leader.partition, known.offset))
        elif arrival.batched:
            self._batches += 1
            name = f"b{self._batches}"
            prepared = Prepared(name, leader.partition, leader.epoch, leader.epoch, (leader.partition,))
            self._append(leader, Reserve(name, record), prepared)
        else:
            self._answer(key.sequence, (leader.partition, self._append(leader, record)))

    def _resolve(self, leader: _Leader) -> None:
        """A batch of a partition is decided."""
        for batch in [*leader.state.reserved.prepared][:1]:
            self._append(leader, Resolved(batch, self._random.random() < 0.7))

    def _answer(self, number: int, place: tuple[int, int]) -> None:
        self._note("client", f"is told that {number} is at {place}")
        self._answers.setdefault(number, set()).add(place)

    # ── rules ──

    def _check(self, answered: dict[int, set[tuple[int, int]]]) -> list[Violation]:
        broken: list[Violation] = []

        def say(rule: str, what: str) -> None:
            broken.append(Violation(rule, self._step, what, len(self.events) - 1))

        for number in range(_NUMBERS):
            key = ProducerSequence("client", 0, number)
            here = [leader.partition for leader in self._leaders if leader.state.dedup.find(key) is not None]
            if len(here) > 1:
                say("once", f"{number} was enqueued in {here}")
            places = self._answers.get(number, set())
            if len(places) > 1:
                say("same-answer", f"{number} is at {sorted(places)}")
            if number in answered and not places:
                say("found", f"{number} was at {sorted(answered[number])}")
        return broken


def _key(message: NewMessage) -> ProducerSequence:
    assert message.producer is not None
    return message.producer


def run_growth_seed(seed: int, *, variant: GrowthVariant = CORRECT_GROWTH, tracing: bool = False) -> GrowthRun:
    """Run one seed. Every step is in its events, traced or not."""
    world = GrowthWorld(seed, variant)
    violations = world.run()
    return GrowthRun(world.events, violations, {"partitions": world._sizes[-1], "answered": len(world._answers)})
