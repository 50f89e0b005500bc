"""Publishing what is due, together, and releasing what was reserved for nothing.

Only partitions that were marked or whose time has come are looked at: those at rest cost nothing. A publication that fails is
retried after a pause that doubles; meanwhile everything stays in tail and WAL. While object storage or the store does not answer,
one group is tried at a time, so that an outage costs the same however many partitions wait for its end. A partition that turns out
to be lost is left alone: the plan executor closes it.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from holdfast.log.partition.due_partitions import (
    DuePartitions,
    is_idle,
    largest_unpublished,
    publication_due_ms,
    publication_groups,
)
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.publication_failures import PublicationFailures
from holdfast.log.partition.publisher import SegmentPublisher, release_reservation
from holdfast.log.partition.resources import PartitionResources
from holdfast.log.partition.slow_publications import SlowPublications
from holdfast.log.settings import LeadershipCounters, LeadershipSettings
from holdfast.vocabulary.errors import ClosedError, ExpiredError, HoldfastError, OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import backoff_ms
from holdfast.vocabulary.tasks import gather_limited, task_group

_log: Final = logging.getLogger(__name__)

_PRESSURE_CHECK_MS: Final = 500  # how often all dirty partitions are looked at while a limit is exceeded
_RELEASES_MAX: Final = 256  # concurrent
_PLACED_AT_ONCE: Final = 1_000  # partitions
_SUSPECT_AFTER: Final = 3  # failures of a group while others are answered


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
        self._due = DuePartitions()
        self._ready: dict[LeadingPartition, None] = {}  # to be published, in the order in which they became due
        self._idle: dict[LeadingPartition, None] = {}  # whose reserved offsets are to be released
        self._busy: set[LeadingPartition] = set()
        self._publishing = 0  # groups
        self._pauses: dict[LeadingPartition, _Backoff] = {}
        self._outage: _Backoff | None = None  # object storage, or the store, does not answer
        self._pressure_checked_ms = 0
        self._slots = asyncio.Semaphore(settings.publications_max)
        self._slow = SlowPublications(settings.publish_slow_ms)
        self._failures = PublicationFailures()

    async def run(self) -> None:
        """Publish what is due, until cancelled. `ExpiredError`: the session has ended."""
        self._dirty_partitions.mark_all()
        async with task_group() as group:
            while True:
                await self._dirty_partitions.wait_ms(self._clock, self._log_settings.publish_tick_ms)
                self._session.check()
                self._log_if_slow()
                await self._place_changed()
                self._begin_what_is_due(group, self._clock.boot_ms())

    async def _place_changed(self) -> None:
        """Place what was marked and what is due, some at a time: tens of thousands must not hold up everybody else."""
        changed, now_ms = self._dirty_partitions.take_marked(), self._clock.boot_ms()
        while changed or self._due.is_due(now_ms):
            for partition in changed[:_PLACED_AT_ONCE] or self._due.take(now_ms, _PLACED_AT_ONCE):
                self._place(partition, now_ms)
            del changed[:_PLACED_AT_ONCE]
            if changed or self._due.is_due(now_ms):
                await self._clock.sleep_ms(0)

    def _begin_what_is_due(self, group: asyncio.TaskGroup, now_ms: int) -> None:
        self._relieve_pressure(now_ms)
        for together in self._take_ready(now_ms):
            self._busy.update(together)
            self._publishing += 1
            group.create_task(self._publish(together, probe=self._outage is not None))
        if idle := self._take_idle():
            self._busy.update(idle)
            group.create_task(self._release_reservations(idle))

    def _log_if_slow(self) -> None:
        if line := self._slow.line(self._clock.boot_ms()):
            budget = self._budget
            room = (
                f"; {budget.used_bytes} of at most {budget.bytes_max} bytes unpublished" if budget is not None else ""
            )
            _log.warning("%s%s", line, room)

    def _place(self, partition: LeadingPartition, now_ms: int) -> None:
        """Put it where it belongs: ready, idle, or due later."""
        self._ready.pop(partition, None)
        self._idle.pop(partition, None)
        self._due.discard(partition)
        if partition in self._busy:
            return  # placed again afterwards
        if self._dirty_partitions.drop_if_quiescent(partition):
            self._end_failures(partition)
            return
        pause = self._pauses.get(partition)
        if pause is not None and now_ms < pause.until_ms:
            self._due.put(partition, pause.until_ms)
            return
        at_ms = publication_due_ms(partition, object_interval_ms=self._log_settings.object_interval_ms)
        if at_ms is not None:
            if now_ms >= at_ms:
                self._ready[partition] = None
            else:
                self._due.put(partition, at_ms)
        elif is_idle(partition, now_ms, idle_ms=self._settings.idle_ms):
            self._idle[partition] = None
        else:
            since_ms = now_ms - partition.appended_at_ms
            self._due.put(
                partition, now_ms + max(self._settings.idle_ms - since_ms, self._log_settings.publish_tick_ms)
            )

    def _relieve_pressure(self, now_ms: int) -> None:
        """While RAM or the WAL is full, those that free most are ready before their time."""
        excess_bytes = self._budget.excess_bytes if self._budget is not None else 0
        wal_full = self._wal.live_bytes > self._settings.wal_bytes_max
        if not (excess_bytes or wal_full) or now_ms - self._pressure_checked_ms < _PRESSURE_CHECK_MS:
            return
        self._pressure_checked_ms = now_ms
        free = [each for each in self._dirty_partitions if each not in self._busy and self._may_retry(each, now_ms)]
        pinning = self._wal.holding_oldest() if wal_full else frozenset()
        largest = largest_unpublished(free, excess_bytes - sum(each.unpublished_bytes for each in self._busy))
        for each in free:
            if each in largest or (each.unpublished_bytes and each.wal_key in pinning):
                self._due.discard(each)
                self._ready[each] = None

    def _take_ready(self, now_ms: int) -> list[list[LeadingPartition]]:
        """What to publish now: everything, but one group only while nobody answers."""
        if not self._ready:
            if self._outage is not None and not self._busy and now_ms >= self._outage.until_ms:
                self._outage = None  # nobody is left to find out whether it is over
            return []
        if self._outage is not None and (self._busy or now_ms < self._outage.until_ms):
            return []
        if self._outage is not None:
            return [self._take_probe(self._outage.failures)]
        suspects = [each for each, pause in self._pauses.items() if pause.suspect and each in self._ready]
        unsuspected = (each for each in self._ready if each not in self._pauses or not self._pauses[each].suspect)
        # No more than are published at once: tens of thousands that become due together are begun bit by bit.
        free = max(0, self._settings.publications_max - self._publishing)
        groups = [*islice(publication_groups(unsuspected, self._settings), free), *([each] for each in suspects)]
        for group in groups:
            for each in group:
                del self._ready[each]
        return groups

    def _take_probe(self, failures: int) -> list[LeadingPartition]:
        """Some that became ready first, fewer after every failure: perhaps one of them is the only one that gets no answer."""
        size = max(1, self._settings.together_partitions_max >> failures)
        probe = next(publication_groups(islice(self._ready, size), self._settings))
        for each in probe:
            del self._ready[each]
        return probe

    def _take_idle(self) -> list[LeadingPartition]:
        if self._outage is not None:
            return []
        taken = list(islice(self._idle, self._settings.together_partitions_max))
        for each in taken:
            del self._idle[each]
        return taken

    def _may_retry(self, partition: LeadingPartition, now_ms: int) -> bool:
        pause = self._pauses.get(partition)
        return pause is None or now_ms >= pause.until_ms

    async def _publish(self, partitions: list[LeadingPartition], *, probe: bool) -> None:
        before = {each: (each.segments_published, each.unpublished_bytes) for each in partitions}
        try:
            async with self._slots:
                if self._outage is not None and not probe:
                    return  # somebody found out meanwhile that nobody answers
                self._slow.begin(partitions[0], self._clock.boot_ms())
                lost = await self._publisher.publish(partitions)
        except (ExpiredError, ClosedError):
            raise
        except HoldfastError as error:
            self._counters.publish_failures += 1
            if line := self._failures.failed(partitions, error, self._clock.boot_ms()):
                _log.warning("%s", line)
            self._failed(partitions, error)
        else:
            self._outage = None
            self._counters.publications += 1
            self._counters.lost_while_publishing += len(lost)
            self._pause(lost, suspect=False)
            for each in partitions:
                segments, size = before[each]
                if each.segments_published > segments:
                    self._end_failures(each)
                    self._counters.segments_published += each.segments_published - segments
                    self._counters.bytes_published += size - each.unpublished_bytes
        finally:
            self._slow.end(partitions[0])
            self._publishing -= 1
            self._release(partitions)
            if self._ready:
                self._dirty_partitions.notify()  # there is a slot for the next

    async def _release_reservations(self, partitions: list[LeadingPartition]) -> None:
        async def release(partition: LeadingPartition) -> HoldfastError | None:
            try:
                self._counters.bookings_returned += await release_reservation(partition)
            except (ExpiredError, ClosedError):
                raise
            except HoldfastError as error:
                self._pause([partition], suspect=False)
                return error
            return None

        try:
            failed = [each for each in await gather_limited(release, partitions, _RELEASES_MAX) if each is not None]
            if failed:
                _log.info("releasing reserved offsets of %d partitions failed, retrying: %s", len(failed), failed[0])
        finally:
            self._release(partitions)

    def _release(self, partitions: Sequence[LeadingPartition]) -> None:
        """They are not busy any more: look at those that still are dirty in the next round, and let go of the others."""
        self._busy.difference_update(partitions)
        for each in partitions:
            if each in self._dirty_partitions:
                self._dirty_partitions.mark_dirty(each)
            else:
                self._end_failures(each)

    def _end_failures(self, partition: LeadingPartition) -> None:
        self._pauses.pop(partition, None)
        if line := self._failures.ended((partition,), self._clock.boot_ms()):
            _log.info("%s", line)

    def _failed(self, partitions: Collection[LeadingPartition], error: HoldfastError) -> None:
        if not isinstance(error, (UnavailableError, OutcomeUnknownError)):
            self._pause(partitions, suspect=True)
            return
        if self._outage is None:
            # The others were answered: if that happens again and again, one of these may be the cause.
            for each in partitions:
                failures = self._pauses[each].failures if each in self._pauses else 0
                self._pause([each], suspect=failures + 1 >= _SUSPECT_AFTER)
        self._outage = self._backoff(self._outage, suspect=False)

    def _pause(self, partitions: Iterable[LeadingPartition], *, suspect: bool) -> None:
        for each in partitions:
            self._pauses[each] = self._backoff(self._pauses.get(each), suspect=suspect)

    def _backoff(self, before: _Backoff | None, *, suspect: bool) -> _Backoff:
        failures = before.failures + 1 if before is not None else 1
        pause_ms = backoff_ms(
            failures - 1,
            base_ms=self._log_settings.publish_retry_ms,
            max_ms=self._settings.publish_backoff_max_ms,
            random=self._random,
        )
        return _Backoff(failures, self._clock.boot_ms() + pause_ms, suspect)
