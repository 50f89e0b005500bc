"""A partition of a heap that may grow, or has: it knows how many partitions there are, and what earlier ones have enqueued.

Its rules: a partition that is new is not acknowledged before the heap's spine knows of it, and looks for a repeated enqueue where
its key belonged before. One that knows of a growth has it in its log, and from then on takes nothing for the smaller set.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import msgspec

from holdfast.heap.batch.messages import Prepare, Promised
from holdfast.heap.decisions import HeapRules
from holdfast.heap.growth.look_up import AskedHomes, Found, LookUp, decide_look_up, highest_numbers
from holdfast.heap.growth.partition_sets import PartitionSets, check_home, earlier_homes
from holdfast.heap.message_id import message_ids
from holdfast.heap.model import Enqueued, NewMessage
from holdfast.heap.partition import HeapPartition
from holdfast.heap.partition_state import HeapState
from holdfast.heap.payloads import PayloadCache
from holdfast.heap.records import PartitionCount, ProducerSequence
from holdfast.heap.settings import HeapSettings
from holdfast.heap.spine.leader_end import LeaderEnd
from holdfast.heap.spine.link import SpineLink
from holdfast.log.errors import NotLeaderError
from holdfast.log.owned_partition import OwnedPartition
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import gather_or_cancel

_NOBODY: Final = "this process reaches no other partition"


class EarlierPartitions(Protocol):
    """The leaders of a heap's partitions, wherever they are. Raises what the leader raises, or `UnavailableError`."""

    async def look_up(self, topic: str, partition: int, look_up: LookUp) -> Found:
        """What became of enqueues."""
        ...


class GrowingPartition(HeapPartition):
    """One partition during one leadership. `sets`: the partitions of its heap, as far as they are known here."""

    def __init__(
        self,
        log: OwnedPartition,
        state: HeapState,
        rules: HeapRules,
        *,
        sets: PartitionSets,
        earlier: EarlierPartitions | None,
        payloads: PayloadCache,
        settings: HeapSettings,
        clock: Clock,
        random: Random,
    ) -> None:
        self._sets, self._earlier, self._asked = sets, earlier, AskedHomes()
        super().__init__(log, state, rules, payloads=payloads, settings=settings, clock=clock, random=random)
        if self.number >= sets.created_with:
            self.link()

    # ── how many there are ──

    @property
    def created_with(self) -> int:
        """How many partitions the heap had at first."""
        return self._sets.created_with

    def grow(self, sets: PartitionSets) -> None:
        """The heap has these partitions now."""
        self._sets = sets
        self.log_partitions()

    def log_partitions(self) -> None:
        """Have it in the log that the heap has grown, if it has. Where nothing is taken just now, it is done later."""
        if self._is_outgrown(self._sets.partitions):
            try:
                self._journal.check()
            except (NotLeaderError, UnavailableError):
                return
            self._add((PartitionCount(self._sets.partitions),))

    def _is_outgrown(self, partitions: int) -> bool:
        """Whether the log does not know yet that there are so many."""
        return partitions > max(self.created_with, self.state.partitions)

    # ── producers ──

    async def enqueue(self, messages: Sequence[NewMessage]) -> list[Enqueued]:
        if self._is_as_created:
            return await super().enqueue(messages)
        known = await self._enqueued_before(messages)
        new = [message for at, message in enumerate(messages) if at not in known]
        self._check_homes(new)
        enqueued = await super().enqueue(new) if new else []
        return _merged(known, enqueued)

    async def prepare(self, prepare: Prepare) -> Promised:
        if self._is_as_created:
            return await super().prepare(prepare)
        known = await self._enqueued_before(prepare.messages)
        new = [message for at, message in enumerate(prepare.messages) if at not in known]
        self._check_homes(new)
        promised = await super().prepare(msgspec.structs.replace(prepare, messages=new))
        return msgspec.structs.replace(promised, enqueued=_merged(known, promised.enqueued))

    @property
    def _is_as_created(self) -> bool:
        return not self.state.partitions and self.number < self.created_with

    def _check_homes(self, messages: Iterable[NewMessage]) -> None:
        """`PartitionsGrownError`: one is looked for elsewhere. Called in the turn of the loop in which they are appended."""
        window_ms, now_ms = self.rules.config.dedup_window_ms, self._journal.now_ms()
        for message in messages:
            check_home(self.state, self.rules.topic, self.number, message, window_ms=window_ms, now_ms=now_ms)

    async def _enqueued_before(self, messages: Sequence[NewMessage]) -> dict[int, Enqueued]:
        """Those of the messages, by their place, that were enqueued in partitions that their keys belonged to before."""
        if self.number < self.created_with:
            return {}
        self._journal.check()
        window_ms, now_ms = self.rules.config.dedup_window_ms, self._journal.now_ms()
        asked: dict[int, list[tuple[int, ProducerSequence]]] = defaultdict(list)
        for at, message in enumerate(messages):
            key = message.producer
            if key is None or message.pinned or self.state.dedup.find(key) is not None:
                continue
            for home in earlier_homes(message, self.number, self._sets, window_ms=window_ms, now_ms=now_ms):
                if self._asked.must_ask(home, key):
                    asked[home].append((at, key))
        found = await gather_or_cancel(*(self._ask(home, [key for _, key in keys]) for home, keys in asked.items()))
        return {
            at: enqueued
            for keys, answer in zip(asked.values(), found, strict=True)
            for (at, _), enqueued in zip(keys, answer.enqueued, strict=True)
            if enqueued is not None
        }

    async def _ask(self, home: int, keys: list[ProducerSequence]) -> Found:
        what = f"partition {home} of heap {self.rules.topic}"
        if self._earlier is None:
            raise UnavailableError(what, _NOBODY)
        within_ms = self._settings.batch_wait_ms
        failpoints.reached("heap.look-up-begun")
        try:
            async with asyncio.timeout(within_ms / 1000):
                found = await self._earlier.look_up(self.rules.topic, home, LookUp(self._sets.partitions, keys))
        except TimeoutError:
            raise UnavailableError(what, f"no answer within {within_ms} ms") from None
        failpoints.reached("heap.look-up-answered")
        self._asked.answered(home, found.highest)
        return found

    async def look_up(self, request: LookUp) -> Found:
        """What became of enqueues whose keys belong to another partition by now; returns when that is durable, and stays so.

        Whoever asks answers its client with it: it waits for the spine as the enqueue itself does.

        `BatchAbortedError`, `ProducerFencedError`, `SequenceForgottenError`.
        """
        self._journal.check()
        if self._is_outgrown(request.partitions):
            failpoints.reached("heap.growth-noticed")
            self._add((PartitionCount(request.partitions),))
        now_ms, topic = self._journal.now_ms(), self.rules.topic
        window_ms = self.rules.config.dedup_window_ms
        known = decide_look_up(self.state, topic, request.keys, window_ms=window_ms, now_ms=now_ms)
        highest = highest_numbers(self.state, request.keys)
        await self._told(self._repeated([each.offset for each in known if each is not None]))
        failpoints.reached("heap.growth-logged")
        ids = iter(message_ids(self._topic_id, self.number, *_columns([each for each in known if each is not None])))
        enqueued = [None if each is None else Enqueued(next(ids), True, self.number) for each in known]
        return Found(enqueued, highest)

    # ── its spine ──

    def link(self) -> SpineLink:
        if self.spine is None and self.created_with == 1:  # they would know nothing of the other partitions
            self._pops.fail(UnavailableError(f"heap {self.rules.topic}", "it has more partitions by now"))
        return super().link()

    def _leader_end(self) -> LeaderEnd:
        return LeaderEnd(
            self.number,
            self.log.epoch,
            spine_epoch=self.state.spine_epoch,
            unknown_to_spines=self.number < self.created_with,
            partitions=self.state.partitions,
        )


def _columns(known: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [offset for offset, _ in known], [time_ms for _, time_ms in known]


def _merged(known: dict[int, Enqueued], new: Sequence[Enqueued]) -> list[Enqueued]:
    """Both in the order of the messages."""
    left = iter(new)
    return [known[at] if at in known else next(left) for at in range(len(known) + len(new))]
