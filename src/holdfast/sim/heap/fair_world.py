"""The world of heaps with fairness keys: the shipped index says what is handed out next, and what limits hold back.

The one rule: a message is measured from when it may go and that was acknowledged. What a limit holds back is not, until a lease of
its key ends; that is an event like an enqueue, with the rank that the index names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from holdfast.heap.fairness.index import FairIndex
from holdfast.heap.fairness.rules import FairRules
from holdfast.sim.checker import Violation
from holdfast.sim.heap.history import MessageGone
from holdfast.sim.heap.partition import Kind, SimLeader, SimPartition, SimulatedRecord, View
from holdfast.sim.heap.variant import HeapVariant
from holdfast.sim.heap.world import HeapWorld
from holdfast.vocabulary.random import SeededRandom

_SEEDS_APART: Final = 1_000_003


@dataclass(slots=True)
class FairView(View):
    """What the records say, with the index of a fair partition."""

    fair: FairIndex = field(default_factory=lambda: FairIndex(FairRules(by_key=True)))
    keys: int = 1
    free: dict[int, int] = field(default_factory=dict)  # what could be granted after the last look: message → rank

    def apply(self, record: SimulatedRecord) -> None:
        """Take a record."""
        for message, rank in record.messages:
            known = message in self.fair or message in self.delayed or message in self.leased
            if not known:
                self.fair.assign(message, f"key {message % self.keys}", 0)
            if message in self.leased:
                self.fair.lease_ended(message)
            if record.kind is Kind.READY:
                self.fair.add(message, rank, again=known)
            elif record.kind is Kind.LEASED:
                self.fair.granted(message, 0)
            elif record.kind is Kind.GONE:
                self.fair.forget(message)
        View.apply(self, record)

    def best(self, count: int) -> list[tuple[int, int]]:
        """What would be granted, in order."""
        return self.fair.peek(count)

    def least_ranks(self, count: int) -> tuple[list[int], bool]:
        """What is told to the spine."""
        return self.fair.least_ranks(count)


class FairHeapWorld(HeapWorld):
    """One topic with fairness keys, and for most seeds a limit of leases for each."""

    def __init__(self, seed: int, variant: HeapVariant, *, tracing: bool, k: int | None) -> None:
        random = SeededRandom(seed + _SEEDS_APART).random
        self._keys = random.choice((1, 3, 10, 50))
        weights = tuple((f"key {number}", random.randint(1, 5)) for number in range(self._keys))
        self.rules = FairRules(by_key=True, key_leases_max=random.choice((0, 1, 1, 2, 5)), weights=weights)
        super().__init__(seed, variant, tracing=tracing, k=k)

    def _view(self) -> FairView:
        rules = self.rules if self._variant.keeps_key_limits else self.rules._replace(key_leases_max=0)
        return FairView(fair=FairIndex(rules), keys=self._keys)

    def _partition(self, number: int, *, unknown_to_spines: bool) -> SimPartition:
        return SimPartition(number, unknown_to_spines=unknown_to_spines, view=self._view)

    def _add_partitions(self, count: int, *, unknown_to_spines: bool) -> None:
        before = len(self._leaders)
        super()._add_partitions(count, unknown_to_spines=unknown_to_spines)
        for leader in self._leaders[before:]:
            _begin(leader)

    def _change_leader(self) -> None:
        before = list(self._leaders)
        super()._change_leader()
        for leader in self._leaders:
            if leader not in before:
                _begin(leader)

    def _make_ready(self, leader: SimLeader, message: int, rank: int, *, counted: bool = True) -> None:
        leader.append(Kind.READY, (message, rank))
        self._look(leader, {message: leader.end.ready(rank) if counted else 0})

    def _flush(self, leader: SimLeader) -> None:
        if leader.leads:
            self._look(leader, {})
        super()._flush(leader)

    def _cancel(self) -> None:
        super()._cancel()
        for leader in self._leaders:
            self._look(leader, {})

    def _tell(self) -> None:
        for leader in self._leaders if self._healing else ():
            for message, rank in [*leader.view.leased.items()]:  # nobody holds a lease for ever
                leader.append(Kind.GONE, (message, rank))
            self._flush(leader)
        super()._tell()

    def _look(self, leader: SimLeader, own: Mapping[int, int]) -> None:
        """What may go now and could not before, or the other way round. `own`: events of messages themselves."""
        view = _view_of(leader)
        opened = view.fair.take_opened()
        events = sorted(leader.end.ready(rank) if self._variant.counts_openings else 0 for rank in opened)
        free = {message: rank for rank, message in view.best(len(view.ready))}
        for message in view.free.keys() - free.keys():
            self._add(MessageGone(self._step, leader.partition.number, message))
            for event in [each for each, (waiting, _) in leader.waiting.items() if waiting == message]:
                del leader.waiting[event]
            self._lost[leader.partition.number].pop(message, None)
        for message in sorted(free.keys() - view.free.keys()):
            event = (
                own[message] if message in own else events.pop(0)
            )  # the strictest choice: what is acknowledged first
            if event:
                leader.waiting[event] = (message, free[message])
            else:
                self._count(leader.partition.number, message, free[message])
        view.free = free
        limit, out = self.rules.key_leases_max, [message % self._keys for message in view.leased]
        if limit and any(out.count(key) > limit for key in set(out)):
            what = f"p{leader.partition.number} has more than {limit} leases of a key"
            self.violations.append(Violation("key-limit", self._step, what, len(self.events)))


def _view_of(leader: SimLeader) -> FairView:
    assert isinstance(leader.view, FairView)
    return leader.view


def _begin(leader: SimLeader) -> None:
    view = _view_of(leader)
    view.fair.tells = True
    view.free = {message: rank for rank, message in view.best(len(view.ready))}
