"""The upkeep of one agent: its partitions in turn, and, on one agent at a time, what belongs to nobody.

The one rule: upkeep never stops anything else. A partition that is lost, a store or object storage that is away, or one damaged
object is noted and passed over; the next round tries again. Only the end of the agent's session ends it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.kernel.lease import Held, Lease, hold
from holdfast.kernel.session import HeldSession
from holdfast.log.partition.leading import LeadingPartition
from holdfast.log.upkeep.compaction import compact
from holdfast.log.upkeep.indexing import fold
from holdfast.log.upkeep.purging import purge_deleted
from holdfast.log.upkeep.retention import retain
from holdfast.log.upkeep.settings import Kit, Policy
from holdfast.log.upkeep.sweeping import SWEEPER, forget_dooms, sweep_orphans
from holdfast.log.upkeep.trash import collect_trash
from holdfast.vocabulary.errors import ClosedError, CorruptError, ExpiredError, FencedError, HoldfastError
from holdfast.vocabulary.tasks import beside

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkept:
    """Whose upkeep it is. `partitions` and `policy` are asked every round; `protect` is where a pipeline has to read again."""

    agent: str
    session: HeldSession
    partitions: Callable[[], Iterable[LeadingPartition]]
    policy: Callable[[LeadingPartition], Policy]
    protect: Callable[[LeadingPartition], int | None] = lambda _: None


async def run_upkeep(upkept: Upkept, kit: Kit) -> None:
    """Keep the logs of one agent bounded, until cancelled. `ExpiredError`: the agent's session has ended."""
    settings = kit.settings

    async def folding(partition: LeadingPartition) -> None:
        await fold(partition, kit)

    async def retaining(partition: LeadingPartition) -> None:
        policy = upkept.policy(partition)
        kept = policy if policy.delete else _KEEP_ALL
        await retain(partition, kept, kit, protect=lambda: upkept.protect(partition))

    async def compacting(partition: LeadingPartition) -> None:
        policy = upkept.policy(partition)
        if policy.compact:
            await compact(partition, policy, kit, protect=lambda: upkept.protect(partition))

    async with beside(
        _rounds("fold", folding, settings.index_interval_ms, upkept, kit),
        _rounds("retention", retaining, settings.retention_interval_ms, upkept, kit),
        _rounds("compaction", compacting, settings.compaction_interval_ms, upkept, kit),
        _sweeper(upkept, kit),
    ):
        await asyncio.Event().wait()


# A compacted log keeps everything by age, but what `delete_records` cut off still has to go.
_KEEP_ALL: Final = Policy(retention_ms=None, retention_bytes=None)


async def _rounds(
    what: str, work: Callable[[LeadingPartition], Awaitable[None]], interval_ms: int, upkept: Upkept, kit: Kit
) -> None:
    """Do the work for every partition, again and again; agents that started together drift apart."""
    while True:
        await kit.clock.sleep_ms(kit.chance.jitter(interval_ms, share=kit.settings.jitter_share))
        for partition in list(upkept.partitions()):
            upkept.session.check()
            await _tried(f"{what} of {partition.place}", lambda: work(partition))  # noqa: B023 - awaited right here


async def _sweeper(upkept: Upkept, kit: Kit) -> None:
    """Be the sweeper, when nobody else is."""
    while True:
        upkept.session.check()
        await _tried("sweeping", lambda: _sweep_while_held(upkept, kit))
        await kit.clock.sleep_ms(kit.chance.jitter(kit.settings.lease_retry_ms, share=kit.settings.jitter_share))


async def _sweep_while_held(upkept: Upkept, kit: Kit) -> None:
    async with hold(
        kit.store, SWEEPER, holder=upkept.agent, session=upkept.session, clock=kit.clock, chance=kit.chance
    ) as lease:
        if isinstance(lease, Held):
            return
        orphans_due_ms = kit.clock.boot_ms()
        while True:
            upkept.session.check()
            await _once(lease, kit)
            if kit.clock.boot_ms() >= orphans_due_ms:
                orphans_due_ms = kit.clock.boot_ms() + kit.settings.orphan_interval_ms
                await sweep_orphans(lease, kit)
            await kit.clock.sleep_ms(kit.chance.jitter(kit.settings.trash_interval_ms, share=kit.settings.jitter_share))


async def _once(lease: Lease, kit: Kit) -> None:
    await purge_deleted(lease, kit)
    await collect_trash(lease, kit)
    await forget_dooms(lease, kit)


async def _tried(what: str, work: Callable[[], Awaitable[None]]) -> None:
    try:
        await work()
    except (ExpiredError, ClosedError):
        raise
    except FencedError as error:
        _log.info("%s ends: %s", what, error)
    except CorruptError:
        _log.exception("%s failed, and will until somebody has looked at it", what)
    except HoldfastError as error:
        _log.warning("%s is tried again later: %s", what, error)
