"""The maintenance of one agent: its partitions in turn, and, on one agent of the cluster at a time, objects without an owner.

The one rule: maintenance never stops anything else. A partition that is lost, a store or object storage that is unavailable, or one
damaged object is logged and skipped; the next round tries again. Only the end of the agent's session ends it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.kernel.lease import Held, Lease, hold_lease
from holdfast.kernel.session import HeldSession
from holdfast.log.maintenance.compaction import compact
from holdfast.log.maintenance.deleted_topics import forget_leases, purge_deleted
from holdfast.log.maintenance.departed_agents import forget_departed
from holdfast.log.maintenance.index_rollup import roll_up_segment_keys
from holdfast.log.maintenance.orphan_sweeper import SWEEPER, expire_deletion_marks, sweep_orphans
from holdfast.log.maintenance.retention import apply_retention, may_have_expired
from holdfast.log.maintenance.segment_merge import lists_enough, may_merge, merge_segments
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.maintenance.trash import collect_trash
from holdfast.log.model import CleanupPolicy
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.vocabulary.errors import (
    ClosedError,
    CorruptError,
    ExpiredError,
    FencedError,
    HoldfastError,
    OutcomeUnknownError,
    UnavailableError,
)
from holdfast.vocabulary.tasks import background_tasks

_log: Final = logging.getLogger(__name__)

_BREATHER_EVERY: Final = 500  # partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintainedAgent:
    """The agent to maintain. `partitions` and `policy` are called every round; `protect`: the offset a pipeline may read from."""

    agent: str
    session: HeldSession
    partitions: Callable[[], Iterable[LeadingPartition]]
    policy: Callable[[LeadingPartition], CleanupPolicy]
    protect: Callable[[LeadingPartition], int | None] = lambda _: None


async def run_maintenance(maintained: MaintainedAgent, context: MaintenanceContext) -> None:
    """Keep the logs of one agent bounded, until cancelled. `ExpiredError`: the agent's session has ended."""
    settings = context.settings

    async def rolling_up(partition: LeadingPartition) -> None:
        await roll_up_segment_keys(partition, context)

    async def merging(partition: LeadingPartition) -> None:
        await merge_segments(partition, maintained.policy(partition), context)

    async def retaining(partition: LeadingPartition) -> None:
        policy = maintained.policy(partition)
        kept = policy if policy.delete else _KEEP_ALL
        await apply_retention(partition, kept, context, protect=lambda: maintained.protect(partition))

    async def compacting(partition: LeadingPartition) -> None:
        policy = maintained.policy(partition)
        await compact(partition, policy, context, protect=lambda: maintained.protect(partition))

    def has_many_keys(partition: LeadingPartition) -> bool:
        return len(partition.segments.recent) > context.log.segment_keys_max

    def may_be_merged(partition: LeadingPartition) -> bool:
        return lists_enough(partition) and may_merge(partition, maintained.policy(partition), context)

    def is_compacted(partition: LeadingPartition) -> bool:
        return _has_segments(partition) and maintained.policy(partition).compact

    def may_retain_less(partition: LeadingPartition) -> bool:
        policy = maintained.policy(partition)
        return may_have_expired(partition, policy if policy.delete else _KEEP_ALL, context.clock.now_ms())

    async with background_tasks(
        _rounds("segment key roll-up", rolling_up, has_many_keys, settings.index_interval_ms, maintained, context),
        _rounds("merging", merging, may_be_merged, settings.merge_interval_ms, maintained, context),
        _rounds("retention", retaining, may_retain_less, settings.retention_interval_ms, maintained, context),
        _rounds("compaction", compacting, is_compacted, settings.compaction_interval_ms, maintained, context),
        _sweeper(maintained, context),
    ):
        await asyncio.Event().wait()


# A compacted log keeps everything by age, but what `delete_records` cut off still has to go.
_KEEP_ALL: Final = CleanupPolicy(retention_ms=None, retention_bytes=None)


def _has_segments(partition: LeadingPartition) -> bool:
    return bool(partition.segments.recent or partition.segments.indexes)


async def _rounds(
    what: str,
    work: Callable[[LeadingPartition], Awaitable[None]],
    needed: Callable[[LeadingPartition], bool],
    interval_ms: int,
    maintained: MaintainedAgent,
    context: MaintenanceContext,
) -> None:
    """Do the work for every partition that needs it, again and again; agents that started together drift apart.

    `needed` is quick and may say yes in vain. With thousands of partitions a round makes way for others now and then.
    """
    failures = _Failures(what)
    while True:
        await context.clock.sleep_ms(context.random.jitter(interval_ms, share=context.settings.jitter_share))
        failures.begin_round()
        for number, partition in enumerate(list(maintained.partitions()), 1):
            if number % _BREATHER_EVERY == 0:
                await context.clock.sleep_ms(1)
            if not needed(partition):
                continue
            maintained.session.check()
            try:
                await work(partition)
            except (ExpiredError, ClosedError):
                raise
            except HoldfastError as error:
                failures.add(str(partition.partition_id), error)
        failures.end_round()


class _Failures:
    """Failures of one kind of work, told once: an outage for all partitions, and what is wrong with one for that one."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._unavailable: list[HoldfastError] = []
        self._in_outage = False
        self._told: dict[str, str] = {}  # what was said of a partition the last time
        self._failed: set[str] = set()  # in this round

    def begin_round(self) -> None:
        self._unavailable.clear()
        self._failed.clear()

    def add(self, partition: str, error: HoldfastError) -> None:
        """The work has failed for this partition."""
        if isinstance(error, (UnavailableError, OutcomeUnknownError)):
            self._unavailable.append(error)
            return
        self._failed.add(partition)
        if self._told.get(partition) != str(error):
            self._told[partition] = str(error)
            _log_failure(f"{self._what} of {partition}", error)

    def end_round(self) -> None:
        """Tell what was not told yet."""
        if self._unavailable and not self._in_outage:
            count = len(self._unavailable)
            partitions = f"{count} partition{'s' if count != 1 else ''}"
            _log.warning("%s of %s failed, retrying later: %s", self._what, partitions, self._unavailable[0])
        self._in_outage = bool(self._unavailable)
        if not self._in_outage:
            self._told = {partition: said for partition, said in self._told.items() if partition in self._failed}


async def _sweeper(maintained: MaintainedAgent, context: MaintenanceContext) -> None:
    """Be the sweeper, when no other agent is."""
    while True:
        maintained.session.check()
        await _attempt("sweeping", lambda: _sweep_while_held(maintained, context))
        await context.clock.sleep_ms(
            context.random.jitter(context.settings.lease_retry_ms, share=context.settings.jitter_share)
        )


async def _sweep_while_held(maintained: MaintainedAgent, context: MaintenanceContext) -> None:
    async with hold_lease(
        context.store,
        SWEEPER,
        holder=maintained.agent,
        session=maintained.session,
        clock=context.clock,
        random=context.random,
    ) as lease:
        if isinstance(lease, Held):
            return
        orphans_due_ms = context.clock.boot_ms()
        while True:
            maintained.session.check()
            await _once(lease, context)
            if context.clock.boot_ms() >= orphans_due_ms:
                orphans_due_ms = context.clock.boot_ms() + context.settings.orphan_interval_ms
                await forget_leases(lease, context)
                await forget_departed(lease, context)
                await sweep_orphans(lease, context)
            await context.clock.sleep_ms(
                context.random.jitter(context.settings.trash_interval_ms, share=context.settings.jitter_share)
            )


async def _once(lease: Lease, context: MaintenanceContext) -> None:
    # Before anything is deleted: what is published from now on is safe from an earlier state of the store.
    await context.owner.raise_mark(unproven_keep_ms=context.settings.unproven_keep_ms)
    await purge_deleted(lease, context)
    await collect_trash(lease, context)
    await expire_deletion_marks(lease, context)


async def _attempt(what: str, work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except (ExpiredError, ClosedError):
        raise
    except HoldfastError as error:
        _log_failure(what, error)


def _log_failure(what: str, error: HoldfastError) -> None:
    if isinstance(error, FencedError):
        _log.info("%s stopped: %s", what, error)
    elif isinstance(error, CorruptError):
        _log.error("%s failed, and will fail until the damage is repaired", what, exc_info=error)
    else:
        _log.warning("%s failed, retrying later: %s", what, error)
