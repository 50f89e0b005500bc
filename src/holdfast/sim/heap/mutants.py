"""Mutants of the spine protocol: each leaves one of its rules out. The oracle must notice every one of them.

The one rule: one variant, one mistake; everything else is the code that ships.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.heap.spine.leader_end import LeaderEnd
from holdfast.heap.spine.messages import Advert, AdvertAck, Granted, Pop, Refill, Refused, SpineHello
from holdfast.heap.spine.rank_bound import RankBound
from holdfast.heap.spine.ready_budget import ReadyBudget
from holdfast.heap.spine.spine import Settled, Spine
from holdfast.sim.heap.variant import HeapVariant


class _NoRefill(Spine):
    def _refills_first(self) -> bool:
        return False


class _EarlyAcks(Spine):
    def take_advert(self, advert: Advert) -> bool:
        taken = super().take_advert(advert)
        for _, overtaken in self._views[advert.partition].unacknowledged if taken else ():
            overtaken.clear()
        return taken


class _ServesBeforeAllObey(Spine):
    def acks(self) -> Sequence[tuple[int, AdvertAck]]:
        established, self._established = self._established, True
        try:
            return super().acks()
        finally:
            self._established = established


class _PopsWhileUnknown(Spine):
    def unknown(self) -> Sequence[int]:
        return [at for at in super().unknown() if not self._established]


class _IgnoresReservations(Spine):
    def _reserved_elsewhere(self, partition: int) -> int:
        return 0


class _TakesLateAdverts(Spine):
    def _is_current(self, advert: Advert) -> bool:
        return advert.partition < len(self._views) and advert.spine_epoch == self.epoch


class _GrowsAtOnce(Spine):
    def reconfigure(self, bound: RankBound) -> None:
        kept, pops, established = list(self._views), dict(self._pops), self._established
        super().reconfigure(bound)
        self._views[: len(kept)], self._pops = kept, pops
        self._established = established


class _HandsOnLateGrants(Spine):
    """The mistake: what a leader granted must not be lost."""

    def take_granted(self, granted: Granted) -> Settled | None:
        settled = super().take_granted(granted)
        if settled is not None or granted.spine_epoch != self.epoch:
            return settled
        return Settled(granted.partition, granted.sequence, len(granted.ranks), self.bound.k)


class _NoBudgetCount(ReadyBudget):
    def ready(self, event: int, rank: int) -> bool:
        super().ready(event, rank)
        return True


class _CountsAcknowledgedAdverts(ReadyBudget):
    """The mistake: the spine uses what it has acknowledged."""

    def ready(self, event: int, rank: int) -> bool:
        acknowledged = self._acknowledged
        free = acknowledged is not None and (
            (acknowledged.tail is not None and rank >= acknowledged.tail) or acknowledged.silent < self.budget
        )
        return super().ready(event, rank) or free


class _NoBudget(LeaderEnd):
    def adopt(self, hello: SpineHello) -> bool:
        void = super().adopt(hello)
        self._budget = _NoBudgetCount(hello.budget)
        return void


class _AcknowledgedBudget(LeaderEnd):
    def adopt(self, hello: SpineHello) -> bool:
        void = super().adopt(hello)
        waiting, self._budget = self._budget.waiting, _CountsAcknowledgedAdverts(hello.budget)
        for event in waiting:
            self._budget.wait(event)
        return void


class _ObeysEverySpine(LeaderEnd):
    def refuses(self, message: SpineHello | AdvertAck | Refill | Pop) -> Refused | None:
        return None

    def begin(self, pop: Pop) -> Refused | None:
        return self._refusal() if self._hello is None or pop.epoch != self.epoch else None


class _ObeysWhoKnowsFewer(LeaderEnd):
    def _knows_too_few(self, hello: SpineHello) -> bool:
        return False


class _NewServesAtOnce(LeaderEnd):
    """The mistake: no spine has ever been here, so nobody has to be told."""

    def __init__(
        self, partition: int, epoch: int, *, spine_epoch: int, unknown_to_spines: bool, partitions: int = 0
    ) -> None:
        super().__init__(partition, epoch, spine_epoch=spine_epoch, unknown_to_spines=True, partitions=partitions)


class _ServesBeforeHello(LeaderEnd):
    """The mistake: a new leader has not used anything of its budget."""

    def ready(self, rank: int) -> int:
        return 0 if self._hello is None else super().ready(rank)


_ALL: Final = (
    HeapVariant(name="refill-off", wrong="pops go on past the end of an advert that was not complete", spine=_NoRefill),
    HeapVariant(name="budget-off", wrong="every ready event is acknowledged at once", leader_end=_NoBudget),
    HeapVariant(
        name="budget-of-acknowledged",
        wrong="events are counted against the acknowledged advert alone, while the spine uses a newer one",
        leader_end=_AcknowledgedBudget,
    ),
    HeapVariant(name="timers-uncounted", wrong="delays, expiries and nacks are no ready events", counts_timers=False),
    HeapVariant(name="early-acks", wrong="an advert is acknowledged while older pops are under way", spine=_EarlyAcks),
    HeapVariant(
        name="serves-before-all-obey",
        wrong="a new spine acknowledges while an older one pops",
        spine=_ServesBeforeAllObey,
    ),
    HeapVariant(name="pops-while-unknown", wrong="partitions that are away are left out", spine=_PopsWhileUnknown),
    HeapVariant(name="reservations-uncounted", wrong="any number is reserved at a time", spine=_IgnoresReservations),
    HeapVariant(name="late-adverts", wrong="adverts of former leaders and rounds are taken", spine=_TakesLateAdverts),
    HeapVariant(name="grows-at-once", wrong="new partitions are not waited for by the old ones", spine=_GrowsAtOnce),
    HeapVariant(
        name="fewer-partitions-obeyed",
        wrong="leaders obey a spine that does not know of new partitions",
        leader_end=_ObeysWhoKnowsFewer,
    ),
    HeapVariant(
        name="new-serves-at-once",
        wrong="a new partition acknowledges before the spine knows of it",
        leader_end=_NewServesAtOnce,
    ),
    HeapVariant(name="epochs-off", wrong="leaders obey every spine", leader_end=_ObeysEverySpine),
    HeapVariant(name="spine-epochs-unlogged", wrong="a new leader does not know whom to obey", logs_spine_epochs=False),
    HeapVariant(
        name="serves-before-hello",
        wrong="a new leader acknowledges before the spine knows it",
        leader_end=_ServesBeforeHello,
    ),
    HeapVariant(name="limits-off", wrong="a leader grants what it has, however bad it is", keeps_limits=False),
    HeapVariant(name="late-grants", wrong="what a lost leader granted is delivered", spine=_HandsOnLateGrants),
)
FAIR_MUTANTS: Final = {
    variant.name: variant
    for variant in (
        HeapVariant(
            name="openings-uncounted",
            wrong="what may go because a lease of its key ended is no ready event",
            counts_openings=False,
        ),
        HeapVariant(name="key-limits-off", wrong="a key's limit of leases is not looked at", keeps_key_limits=False),
    )
}
HEAP_MUTANTS: Final = {variant.name: variant for variant in _ALL}
