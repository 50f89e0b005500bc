"""The spine of one topic: what it knows of every partition, and which of them the next messages come from. Pure.

The one rule: a pop goes to the partition with the least known head, and is limited by the least head of all others; nothing is
popped while a partition is unknown, or has been popped to the end of an advert that was not complete. An advert is acknowledged
when no pop is under way that would have been decided otherwise.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import inf

from holdfast.heap.spine.messages import Advert, AdvertAck, Granted, Pop, Refill, SpineHello
from holdfast.heap.spine.rank_bound import RankBound

Rank = int | float  # inf: there is nothing


@dataclass(slots=True)
class _View:
    """A partition, as the spine knows it."""

    round: int = 0  # of the last hello
    advert: Advert | None = None  # None: unknown
    settled: int = 0  # the last pop whose messages were handed on
    grants: deque[tuple[int, int]] = field(default_factory=deque)  # (offset, messages) since the advert
    pop: Pop | None = None  # under way
    refill_asked: int = 0  # the number of the advert for which it was
    turn: int = 0  # when it was popped last
    unacknowledged: list[tuple[int, set[int]]] = field(default_factory=list)  # adverts, and the pops they wait for

    head: Rank = inf  # the least rank that was told and is neither granted nor reserved
    _next: int = 0  # its place in the advert

    @property
    def reserved(self) -> int:
        return 0 if self.pop is None else self.pop.count

    @property
    def known_ranks(self) -> Sequence[int]:
        """What is left of the advert."""
        return () if self.advert is None else self.advert.ranks[self._next :]

    @property
    def is_exhausted(self) -> bool:
        """Whether the next message may be one that the advert does not show."""
        return self.advert is not None and not self.advert.complete and self.head == inf

    def update(self) -> None:
        """Follow a change of the advert, the grants or the pop."""
        self._next = self.reserved + sum(count for _, count in self.grants)
        ranks = () if self.advert is None else self.advert.ranks
        self.head = ranks[self._next] if self._next < len(ranks) else inf


@dataclass(frozen=True, slots=True)
class Settled:
    """A pop was answered, and its messages go to whoever waits. `rank_bound`: theirs."""

    partition: int
    sequence: int
    count: int
    rank_bound: int


class Spine:
    """The spine of one lease. Messages go in, and come out of `plan` and `acks`; who sends them is the driver's business."""

    def __init__(self, epoch: int, bound: RankBound, *, fan_out: int) -> None:
        self.epoch, self.bound, self._fan_out = epoch, bound, fan_out
        self._counter = 0
        self._views = [_View() for _ in range(bound.partitions)]
        self._pops: dict[int, Pop] = {}  # those under way, by partition
        self._established = False

    @property
    def is_established(self) -> bool:
        """Whether every partition obeys this spine: until then no advert is acknowledged, since an older one may still pop."""
        return self._established

    def unknown(self) -> Sequence[int]:
        """The partitions without an advert: while there are any, pops wait."""
        return [partition for partition, view in enumerate(self._views) if view.advert is None]

    def hello(self, partition: int) -> SpineHello:
        """Introduce this spine to a leader, once it can be reached, and again whenever it was lost. What was under way is void."""
        self.lose(partition)
        self._counter += 1
        view = self._views[partition]
        view.round = self._counter
        return SpineHello(
            spine_epoch=self.epoch,
            round=view.round,
            budget=self.bound.budget,
            fan_out=self._fan_out,
            settled=view.settled,
            partitions=self.bound.partitions,
        )

    def lose(self, partition: int) -> None:
        """The leader cannot be reached, or is another one: its advert is unknown, and what it may still grant is not handed on."""
        view = self._views[partition]
        if view.pop is not None:
            del self._pops[partition]
            self._release(view.pop.sequence)
        settled, turn = view.settled, view.turn
        self._views[partition] = _View(settled=settled, turn=turn)

    def reconfigure(self, bound: RankBound) -> None:
        """Another bound, or more partitions: every leader needs a new hello, and no pop is sent before each has answered."""
        if bound.partitions < self.bound.partitions:
            raise ValueError("the number of partitions never falls")
        for partition in range(self.bound.partitions):
            self.lose(partition)
        self._views += [_View() for _ in range(bound.partitions - self.bound.partitions)]
        self.bound, self._established = bound, False

    def take_advert(self, advert: Advert) -> bool:
        """A leader has told what it has. False: it is of another round or epoch, or an older one."""
        if not self._is_current(advert):
            return False
        view = self._views[advert.partition]
        view.advert = advert
        while view.grants and view.grants[0][0] <= advert.offset:
            view.grants.popleft()
        view.update()
        head = advert.ranks[0] if advert.ranks else inf
        overtaken = {
            pop.sequence
            for pop in self._under_way(but=advert.partition)
            if head < (inf if pop.limit is None else pop.limit)
        }
        view.unacknowledged.append((advert.number, overtaken))
        if not self._established and not self.unknown():
            self._established = True
        return True

    def _is_current(self, advert: Advert) -> bool:
        if advert.partition >= len(self._views):
            return False
        view = self._views[advert.partition]
        if advert.spine_epoch != self.epoch or advert.round != view.round:
            return False
        known = view.advert
        return known is None or (advert.epoch == known.epoch and advert.number > known.number)

    def take_granted(self, granted: Granted) -> Settled | None:
        """A pop was answered. None: it is void, and its messages are not handed on; the leader releases them at the next hello."""
        view = self._views[granted.partition]
        pop = view.pop
        if pop is None or (granted.sequence, granted.epoch, granted.spine_epoch) != (
            pop.sequence,
            pop.epoch,
            self.epoch,
        ):
            return None
        view.pop = None
        del self._pops[granted.partition]
        view.settled = pop.sequence
        if view.advert is not None and granted.offset > view.advert.offset:
            view.grants.append((granted.offset, len(granted.ranks)))
        view.update()
        self._release(pop.sequence)
        if granted.advert is not None:
            self.take_advert(granted.advert)
        return Settled(granted.partition, pop.sequence, len(granted.ranks), pop.bound)

    def _release(self, sequence: int) -> None:
        for view in self._views:
            for _, overtaken in view.unacknowledged:
                overtaken.discard(sequence)

    def _under_way(self, *, but: int) -> Iterator[Pop]:
        return (pop for at, pop in self._pops.items() if at != but)

    def acks(self) -> Sequence[tuple[int, AdvertAck]]:
        """The acknowledgements that are due, by partition; each is returned once."""
        if not self._established:
            return ()
        due = []
        for partition, view in enumerate(self._views):
            number = 0
            while view.unacknowledged and not view.unacknowledged[0][1]:
                number, _ = view.unacknowledged.pop(0)
            if number and view.advert is not None:
                due.append((partition, AdvertAck(self.epoch, view.round, view.advert.epoch, number)))
        return due

    def plan(self, wanted: int) -> Sequence[tuple[int, Pop | Refill]]:
        """What to send now, so that `wanted` more messages come, by partition. Nothing: wait for what is under way, or unknown."""
        sent: list[tuple[int, Pop | Refill]] = []
        wanted -= sum([pop.count for pop in self._pops.values()])
        if wanted <= 0 or self.unknown() or not self._established:
            return ()
        while wanted > 0 and not self._refills_first():
            partition = self._least()
            if partition is None:
                break
            pop = self._pop(partition, wanted)
            self._views[partition].pop = self._pops[partition] = pop
            self._views[partition].update()
            wanted -= pop.count
            sent.append((partition, pop))
        if wanted > 0:
            sent += self._refills()
        return sent

    def _refills_first(self) -> bool:
        return any([view.head == inf and view.is_exhausted for view in self._views])  # noqa: C419 - a list is made faster

    def _refills(self) -> Iterator[tuple[int, Refill]]:
        """Ask those whose advert has run out; one that was complete is told of by its leader as soon as it has something again."""
        for partition, view in enumerate(self._views):
            advert = view.advert
            if advert is not None and view.head == inf and view.pop is None and view.refill_asked < advert.number:
                view.refill_asked = advert.number
                yield partition, Refill(self.epoch, view.round, advert.epoch, advert.number)

    def _least(self) -> int | None:
        """The partition to pop next: the least head, the one popped longest ago among equals. None: nothing, or not now."""
        partition, view = 0, self._views[0]
        for at, other in enumerate(self._views):
            if other.head < view.head or (other.head == view.head and other.turn < view.turn):
                partition, view = at, other
        if view.head == inf or view.pop is not None or self._reserved_elsewhere(partition) > self.bound.in_flight:
            return None
        return partition

    def _reserved_elsewhere(self, partition: int) -> int:
        return sum([pop.count for at, pop in self._pops.items() if at != partition])

    def _pop(self, partition: int, wanted: int) -> Pop:
        view = self._views[partition]
        if view.advert is None:
            raise RuntimeError("a partition without an advert is not popped")
        limit = min([other.head for other in self._views if other is not view], default=inf)
        count = 0
        for rank in view.known_ranks[:wanted]:
            if rank > limit:
                break
            count += 1
        self._counter += 1
        view.turn = self._counter
        return Pop(
            spine_epoch=self.epoch,
            epoch=view.advert.epoch,
            sequence=self._counter,
            count=count,
            limit=None if limit == inf else int(limit),
            bound=self.bound.of(self._reserved_elsewhere(partition)),
            basis=tuple([other.advert.offset if other.advert is not None else 0 for other in self._views]),
        )
