"""Which partitions are due for publication, and publishing them together.

`is_due` is pure. A publication that fails is retried after a pause that doubles; meanwhile everything stays in tail and WAL. A
partition that turns out to be lost is left alone: the plan executor closes it.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.publisher import SegmentPublisher, release_reservation
from holdfast.log.partition.resources import PartitionResources
from holdfast.log.partition.slow_publications import SlowPublications
from holdfast.log.settings import LeadershipCounters, LeadershipSettings
from holdfast.vocabulary.errors import ClosedError, ExpiredError, HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import backoff_ms
from holdfast.vocabulary.tasks import task_group

_log: Final = logging.getLogger(__name__)


def is_due(partition: LeadingPartition, now_ms: int, *, object_interval_ms: int) -> bool:
    """Whether it is time to publish: enough bytes, old enough, or requested."""
    oldest_ms = partition.oldest_unpublished_ms
    if oldest_ms is None:
        return False
    waits_ms = partition.partition_config.roll_ms if partition.level == "local" else object_interval_ms
    return (
        partition.publish_requested
        or partition.unpublished_bytes >= partition.partition_config.roll_bytes
        or now_ms - oldest_ms >= waits_ms
    )


def largest_unpublished(partitions: Iterable[LeadingPartition], excess_bytes: int) -> set[LeadingPartition]:
    """The fewest partitions whose publication frees `excess_bytes`."""
    chosen: set[LeadingPartition] = set()
    if excess_bytes > 0:
        for each in sorted(partitions, key=lambda partition: -partition.unpublished_bytes):
            if excess_bytes <= 0 or not each.unpublished_bytes:
                break
            chosen.add(each)
            excess_bytes -= each.unpublished_bytes
    return chosen


def is_idle(partition: LeadingPartition, now_ms: int, *, idle_ms: int) -> bool:
    """Whether reserved offsets should be released: everything is published, and nothing was appended for a while."""
    record = partition.record
    return record.reserved > record.published == partition.next_offset and now_ms - partition.appended_at_ms >= idle_ms


@dataclass(slots=True)
class _Backoff:
    """After failures: how many there were, until when to wait, and whether this partition may be the cause."""

    failures: int
    until_ms: float
    suspect: bool


class PublishScheduler:
    """Publishes the partitions of one session of an agent."""

    def __init__(
        self,
        publisher: SegmentPublisher,
        resources: PartitionResources,
        *,
        settings: LeadershipSettings,
        counters: LeadershipCounters,
    ) -> None:
        self._publisher, self._wal, self._session = publisher, resources.wal, resources.session
        self._clock, self._random, self._log_settings = resources.clock, resources.random, resources.settings
        self._dirty_partitions, self._budget = resources.dirty_partitions, resources.budget
        self._settings, self._counters = settings, counters
        self._busy: set[LeadingPartition] = set()
        self._pauses: dict[LeadingPartition, _Backoff] = {}
        self._slots = asyncio.Semaphore(settings.publications_max)
        self._slow = SlowPublications(settings.publish_slow_ms)

    async def run(self) -> None:
        """Publish what is due, until cancelled. `ExpiredError`: the session has ended."""
        async with task_group() as group:
            while True:
                await self._dirty_partitions.wait_ms(self._clock, self._log_settings.publish_tick_ms)
                self._session.check()
                self._log_if_slow()
                dirty = self._dirty_partitions.dirty()
                for together in self._grouped(self._choose(dirty)):
                    self._busy.update(together)
                    group.create_task(self._publish(together))
                for partition in self._idle(dirty):
                    self._busy.add(partition)
                    group.create_task(self._release_reservation(partition))

    def _log_if_slow(self) -> None:
        if line := self._slow.line(self._clock.boot_ms()):
            budget = self._budget
            room = (
                f"; {budget.used_bytes} of at most {budget.bytes_max} bytes unpublished" if budget is not None else ""
            )
            _log.warning("%s%s", line, room)

    def _choose(self, dirty: list[LeadingPartition]) -> list[LeadingPartition]:
        now_ms = self._clock.boot_ms()
        pinning = self._wal.holding_oldest() if self._wal.live_bytes > self._settings.wal_bytes_max else frozenset()
        interval_ms = self._log_settings.object_interval_ms
        self._pauses = {each: pause for each, pause in self._pauses.items() if each in dirty}
        excess_bytes = self._budget.excess_bytes if self._budget is not None else 0
        largest = largest_unpublished(dirty, excess_bytes)
        return [
            each
            for each in dirty
            if each not in self._busy
            and self._may_retry(each, now_ms)
            and (is_due(each, now_ms, object_interval_ms=interval_ms) or _key(each) in pinning or each in largest)
        ]

    def _grouped(self, chosen: list[LeadingPartition]) -> list[list[LeadingPartition]]:
        """Together up to a size, except for those that may have made a publication with others fail."""
        suspects = [each for each in chosen if each in self._pauses and self._pauses[each].suspect]
        groups: list[list[LeadingPartition]] = [[each] for each in suspects]
        size = self._settings.together_bytes_max  # so that the first of the rest opens a group
        for each in chosen:
            if each not in suspects:
                if size + each.unpublished_bytes > self._settings.together_bytes_max:
                    groups.append([])
                    size = 0
                groups[-1].append(each)
                size += each.unpublished_bytes
        return groups

    def _idle(self, dirty: list[LeadingPartition]) -> list[LeadingPartition]:
        now_ms, idle_ms = self._clock.boot_ms(), self._settings.idle_ms
        idle = (
            each
            for each in dirty
            if each not in self._busy and is_idle(each, now_ms, idle_ms=idle_ms) and self._may_retry(each, now_ms)
        )
        return [each for _, each in zip(range(self._settings.publications_max), idle, strict=False)]

    def _may_retry(self, partition: LeadingPartition, now_ms: int) -> bool:
        pause = self._pauses.get(partition)
        return pause is None or now_ms >= pause.until_ms

    async def _publish(self, partitions: list[LeadingPartition]) -> None:
        before = {each: (each.segments_published, each.unpublished_bytes) for each in partitions}
        try:
            async with self._slots:
                self._slow.begin(partitions[0], self._clock.boot_ms())
                lost = await self._publisher.publish(partitions)
        except (ExpiredError, ClosedError):
            raise
        except HoldfastError as error:
            self._counters.publish_failures += 1
            _log.warning("publishing %d partitions failed, retrying: %s", len(partitions), error)
            self._pause(partitions, suspect=not isinstance(error, (UnavailableError, OutcomeUnknownError)))
        else:
            self._counters.publications += 1
            self._counters.lost_while_publishing += len(lost)
            self._pause(lost, suspect=False)
            for each in partitions:
                segments, size = before[each]
                if each.segments_published > segments:
                    self._pauses.pop(each, None)
                    self._counters.segments_published += each.segments_published - segments
                    self._counters.bytes_published += size - each.unpublished_bytes
        finally:
            self._slow.end(partitions[0])
            self._busy.difference_update(partitions)

    async def _release_reservation(self, partition: LeadingPartition) -> None:
        try:
            async with self._slots:
                self._counters.bookings_returned += await release_reservation(partition)
        except (ExpiredError, ClosedError):
            raise
        except HoldfastError as error:
            _log.info("releasing reserved offsets of %s failed, retrying: %s", partition.partition_id, error)
            self._pause([partition], suspect=False)
        finally:
            self._busy.discard(partition)

    def _pause(self, partitions: Iterable[LeadingPartition], *, suspect: bool) -> None:
        settings = self._settings
        for each in partitions:
            failures = self._pauses[each].failures + 1 if each in self._pauses else 1
            pause_ms = backoff_ms(
                failures - 1,
                base_ms=self._log_settings.publish_retry_ms,
                max_ms=settings.publish_backoff_max_ms,
                random=self._random,
            )
            self._pauses[each] = _Backoff(failures, self._clock.boot_ms() + pause_ms, suspect)


def _key(partition: LeadingPartition) -> tuple[bytes, int]:
    return bytes.fromhex(partition.partition_id.topic_id), partition.partition_id.number
