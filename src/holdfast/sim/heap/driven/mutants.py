"""Mutants of driven heaps: each leaves one rule of partitions, links or drivers out. The checker must notice every one of them.

The one rule: one variant, one mistake; everything else is the code that ships.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from holdfast.heap.errors import LeaseLostError
from holdfast.heap.growth.growing_partition import GrowingPartition
from holdfast.heap.journal import Journal
from holdfast.heap.lease_token import LeaseToken
from holdfast.heap.model import Enqueued, NewMessage, PoppedMessage
from holdfast.heap.records import Ack, Operation, SpineEpoch
from holdfast.heap.spine.driver import SpineDriver
from holdfast.heap.spine.messages import Granted, Pop
from holdfast.heap.spine.spine import Settled, Spine
from holdfast.heap.waiting_pops import POP_BYTES_MAX, WaitingPop
from holdfast.sim.heap.driven.feature_mutants import FEATURE_MUTANTS
from holdfast.sim.heap.driven.variant import DrivenVariant


class _SpineUntold(GrowingPartition):
    async def _answerable(self) -> None:
        await self._journal.durable()


class _SpineEpochsUnlogged(GrowingPartition):
    def add(self, operations: Sequence[Operation]) -> int:
        logged = [each for each in operations if not isinstance(each, SpineEpoch)]
        return super().add(logged) if logged else self.state.next_offset


class _DedupOff(GrowingPartition):
    async def enqueue(self, messages: Sequence[NewMessage]) -> list[Enqueued]:
        return await super().enqueue([msgspec.structs.replace(message, producer=None) for message in messages])


class _HastyJournal(Journal):
    """Takes what it is told to for durable."""

    is_hasty = False

    def durable(self) -> "asyncio.Future[None]":
        if not self.is_hasty:
            return super().durable()
        self.is_hasty = False
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class _Hasty(GrowingPartition):
    """Has a journal that may be hasty."""

    def _hurry(self) -> None:
        self._journal.__class__ = _HastyJournal
        assert isinstance(self._journal, _HastyJournal)
        self._journal.is_hasty = True


class _GrantsBeforeDurable(_Hasty):
    async def _granted(self, pop: WaitingPop, bytes_max: int = POP_BYTES_MAX) -> list[PoppedMessage]:
        self._hurry()
        return await super()._granted(pop, bytes_max)


class _AdvertsBeforeDurable(GrowingPartition):
    def removals_durable(self) -> "asyncio.Future[None]":
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class _AcksBeforeDurable(GrowingPartition):
    async def ack(self, tokens: Sequence[LeaseToken]) -> list[LeaseLostError | None]:
        held, results = self._current(tokens)
        if held:
            self._add((Ack(tuple(token.offset for token in held)),))
        return results


class _GoneBeforeDurable(GrowingPartition):
    async def ack(self, tokens: Sequence[LeaseToken]) -> list[LeaseLostError | None]:
        held, results = self._current(tokens)
        return await super().ack(tokens) if held else results


class _NeverLoses(SpineDriver):
    """The mistake: a leader that refuses is asked again."""

    def lost(self, partition: int) -> None:
        return


class _PopsAtOnce(Spine):
    """The mistake: pops of several partitions are as good as one after another."""

    def _reserved_elsewhere(self, partition: int) -> int:
        return 0


class _HandsOnLateGrants(Spine):
    """The mistake: what a leader granted must not be lost."""

    def take_granted(self, granted: Granted) -> Settled | None:
        settled = super().take_granted(granted)
        if settled is not None or granted.spine_epoch != self.epoch:
            return settled
        return Settled(granted.partition, granted.sequence, len(granted.ranks), self.bound.k)


class _LimitsOff(Spine):
    def _pop(self, partition: int, wanted: int) -> Pop:
        return msgspec.structs.replace(super()._pop(partition, wanted), limit=None)


_ALL: Final = (
    DrivenVariant(
        name="spine-untold", wrong="operations are answered before the spine is told", partition=_SpineUntold
    ),
    DrivenVariant(
        name="spine-epochs-unlogged",
        wrong="the next leader does not know that there is a spine",
        partition=_SpineEpochsUnlogged,
    ),
    DrivenVariant(name="dedup-off", wrong="an enqueue that is repeated is a second message", partition=_DedupOff),
    DrivenVariant(
        name="grants-before-durable", wrong="messages are handed out at once", partition=_GrantsBeforeDurable
    ),
    DrivenVariant(
        name="adverts-before-durable",
        wrong="the spine is told of a state without messages whose leases are not durable",
        partition=_AdvertsBeforeDurable,
    ),
    DrivenVariant(name="acks-before-durable", wrong="acks are answered at once", partition=_AcksBeforeDurable),
    DrivenVariant(
        name="gone-before-durable",
        wrong="that a message is gone is told before its ack is durable",
        partition=_GoneBeforeDurable,
    ),
    DrivenVariant(name="never-loses", wrong="a leader that refuses is not greeted again", driver=_NeverLoses),
    DrivenVariant(name="pops-at-once", wrong="any number is reserved at a time", spine=_PopsAtOnce),
    DrivenVariant(name="late-grants", wrong="what a lost leader granted is delivered", spine=_HandsOnLateGrants),
    DrivenVariant(name="limits-off", wrong="a leader grants what it has, however bad it is", spine=_LimitsOff),
)
DRIVEN_MUTANTS: Final = {
    variant.name: variant for variant in (*(replace(plain, features=False) for plain in _ALL), *FEATURE_MUTANTS)
}
