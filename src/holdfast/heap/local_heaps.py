"""The heap partitions this process leads: opened when the log opens them, ended when it closes them.

The one rule: a heap partition lives under the lease of its log partition, so there is one owner and one epoch. A view that ended
while the partition is still led is read from the log again. What cannot be opened affects no other.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from holdfast.heap.batch.local_batches import LocalBatches
from holdfast.heap.batch.resolver import BatchResolver
from holdfast.heap.config import UNLIMITED, HeapConfig, config_from_record
from holdfast.heap.decisions import HeapRules
from holdfast.heap.fairness.rules import rules_of
from holdfast.heap.figures import HeapFigures
from holdfast.heap.growth.growing_partition import EarlierPartitions, GrowingPartition
from holdfast.heap.growth.partition_sets import sets_of
from holdfast.heap.history import HistoryKeeper
from holdfast.heap.moves import Deliver, Mover
from holdfast.heap.payload_spill import SpillSpace
from holdfast.heap.payloads import PayloadCache
from holdfast.heap.recovery import recover
from holdfast.heap.settings import HeapSettings
from holdfast.heap.snapshots import SnapshotKeeper
from holdfast.log.errors import NotLeaderError
from holdfast.log.model import PartitionId
from holdfast.log.owned_partition import OwnedPartition
from holdfast.log.topics import Topic
from holdfast.vocabulary.clock import Clock, SteadyClock
from holdfast.vocabulary.errors import CorruptError, HoldfastError, UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import LoopTurns, Notify, background_tasks, task_group

_log: Final = logging.getLogger(__name__)

DLQ_SUFFIX: Final = ".dlq"
_CONFIG: Final = "heap_config"


def heap_rules(topic: Topic, number: int) -> HeapRules:
    """What a heap's record means for one of its partitions."""
    config = heap_config(topic)
    return HeapRules(
        topic=topic.name,
        config=config,
        inflight_max=config.inflight_max_of_partition(topic.partitions),
        fair=rules_of(config, topic.partitions),
        dead_letters=(topic.name + DLQ_SUFFIX, number) if config.dlq else None,
    )


def heap_config(topic: Topic) -> HeapConfig:
    """The settings of a heap, worked out once."""
    known: HeapConfig | None = topic.__dict__.get(_CONFIG)
    if known is None:
        known = topic.__dict__[_CONFIG] = config_from_record(topic.heap)
    return known


class LocalHeaps:
    """The heap partitions of one process. Implements `log.owned_partition.PartitionListener`.

    `directory`: where files of messages that are read ahead may be.
    """

    def __init__(
        self,
        settings: HeapSettings,
        *,
        topic: Callable[[str], Topic | None],
        clock: Clock,
        random: Random,
        directory: Path | None = None,
    ) -> None:
        self.settings = settings
        self.changed = Notify()  # partitions were opened or ended
        self.open: dict[PartitionId, GrowingPartition] = {}
        self.figures = HeapFigures(self.open, clock)
        self.histories: dict[PartitionId, HistoryKeeper] = {}  # of those that are open
        self.failures: dict[PartitionId, str] = {}
        self.deliver: Deliver | None = None  # where moved messages go; the service sets it
        self.batches: LocalBatches | None = None  # those over several partitions; set where there is an agent
        self.earlier: EarlierPartitions | None = None  # where enqueues of before a growth are looked up; the same
        self.knock: Callable[[str, int], None] = lambda topic, partition: None  # asks a spine to introduce itself
        self._topic, self._clock, self._random = topic, clock, random
        self._payloads = PayloadCache(
            settings.payload_cache_bytes_max,
            settings.read_ahead_bytes_max,
            SpillSpace(directory, settings.spill_bytes_max, settings.spill_idle_ms),
        )
        self._led: dict[PartitionId, OwnedPartition] = {}
        self._new: list[OwnedPartition] = []
        self._arrived = Notify()
        self._turns = LoopTurns()
        self._snapshot_turn = asyncio.Lock()

    def opened(self, topic: Topic, partition: OwnedPartition) -> None:
        if topic.is_heap:
            self._led[partition.partition_id] = partition
            self._new.append(partition)
            self._arrived.notify()

    def closed(self, partition_id: PartitionId) -> None:
        if self._led.pop(partition_id, None) is not None:
            self.failures.pop(partition_id, None)
            self._end(partition_id, "leadership has ended")

    def topics_changed(self, names: Collection[str]) -> None:
        """Apply changed settings."""
        for partition_id, view in self.open.items():
            topic = self._topic(partition_id.topic) if partition_id.topic in names else None
            if topic is not None and topic.id == partition_id.topic_id:
                view.rules = heap_rules(topic, partition_id.number)
                view.grow(sets_of(topic))

    def partition(self, topic: Topic, number: int) -> GrowingPartition:
        """The partition, if it is served here. `NotLeaderError`: it is led elsewhere, or not opened yet."""
        partition_id = PartitionId(topic=topic.name, topic_id=topic.id, number=number)
        view = self.open.get(partition_id)
        if view is None:
            reason = self.failures.get(partition_id, "")
            if not reason and partition_id in self._led:
                reason = "it is being recovered"
            raise NotLeaderError(topic.name, number, reason=reason)
        return view

    async def run(self) -> None:
        """Serve what the log opens, until cancelled."""
        async with task_group() as group:
            group.create_task(self._tell_spines())
            if self.batches is not None:
                group.create_task(self.batches.run())
            while True:
                new, self._new = self._new, []
                for partition in new:
                    group.create_task(self._serve(partition))
                await self._arrived.wait()

    async def _serve(self, log: OwnedPartition) -> None:
        """Serve a partition for as long as it is led under this epoch. Its views have one clock: deadlines hold across them."""
        clock = SteadyClock(self._clock)
        while self._led.get(log.partition_id) is log:
            try:
                await self._open_and_run(log, clock)
            except HoldfastError as error:
                self._failed(log, error)
            except Exception as error:  # of one partition: the others go on
                _log.exception("heap partition %s failed", log.partition_id)
                self._failed(log, error)
            if self._led.get(log.partition_id) is log:
                await self._clock.sleep_ms(self.settings.reopen_ms)

    async def _tell_spines(self) -> None:
        while True:
            await self._clock.sleep_ms(self.settings.tell_spine_ms)
            for partition_id, view in self.open.items():
                view.log_partitions()
                if view.spine is not None and not view.spine.tell():
                    self.knock(partition_id.topic, partition_id.number)

    async def _open_and_run(self, log: OwnedPartition, clock: Clock) -> None:
        which = log.partition_id
        topic = self._topic(which.topic)
        if topic is None or topic.id != which.topic_id:
            raise CorruptError(f"heap partition {which}", "its topic is not known")
        if which.number >= topic.partitions:
            raise UnavailableError(f"heap partition {which}", "its topic is not known to have it")
        state = await recover(log, heap_config(topic).mode, self._turns)
        if self._led.get(which) is not log:
            return
        topic = self._topic(which.topic) or topic
        view = GrowingPartition(
            log,
            state,
            heap_rules(topic, which.number),
            sets=sets_of(topic),
            earlier=self.earlier,
            payloads=self._payloads,
            settings=self.settings,
            clock=clock,
            random=self._random,
        )
        view.snapshots = SnapshotKeeper(
            view, self.settings, turn=self._snapshot_turn, clock=self._clock, random=self._random
        )
        history = self.histories[which] = HistoryKeeper(
            view,
            self.settings,
            keep_messages_ms=lambda: self._keep_messages_ms(which.topic),
            clock=self._clock,
            random=self._random,
        )
        view.log_rules()
        view.log_partitions()
        self.open[which] = view
        self.figures.opened(view)
        self.failures.pop(which, None)
        self.changed.notify()
        try:
            async with task_group() as group:
                if self.deliver is not None:
                    mover = Mover(view, self.deliver, clock=self._clock, retry_ms=self.settings.move_retry_ms)
                    group.create_task(mover.run())
                background = [view.snapshots.run(), history.run(), view.copy_backlog()]
                if self.batches is not None:
                    background.append(BatchResolver(view, self.batches).run())
                async with background_tasks(*background):
                    await view.run()
        finally:
            self._end(which, "its view has ended")

    def _keep_messages_ms(self, name: str) -> int:
        """How long messages of a heap stay: dead letters as the heap says that they are of, others until they are done."""
        source = self._topic(name.removesuffix(DLQ_SUFFIX)) if name.endswith(DLQ_SUFFIX) else None
        return UNLIMITED if source is None or not source.is_heap else heap_config(source).dlq_retention_ms

    def _end(self, which: PartitionId, reason: str) -> None:
        view = self.open.pop(which, None)
        self.histories.pop(which, None)
        if view is not None:
            self.figures.ended(view)
            view.end(NotLeaderError(which.topic, which.number, reason=reason))
            self.changed.notify()

    def _failed(self, log: OwnedPartition, error: Exception) -> None:
        if self._led.get(log.partition_id) is log:
            self.failures[log.partition_id] = f"the heap cannot be opened: {error}"
            _log.warning("heap partition %s cannot be served, retrying: %s", log.partition_id, error)
