"""Draining: partitions become clean, so that they can move. Clean means: everything is published, and nothing reserved. One whose
next leader is a replica moves with its tail, once those that stay have it.

The one rule: publish first, refuse afterwards. Most of a tail is uploaded while appends go on; only what came meanwhile is
published while they are refused, and that within a limit. So an object store that does not answer
costs time, and no producer is refused.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.log.partition.replicated_partition import ReplicatedPartition
from holdfast.log.settings import LeadershipSettings
from holdfast.vocabulary.errors import FencedError, UnavailableError

_CLOSE_ATTEMPTS_MAX: Final = 3


async def drain(partition: LeadingPartition, publisher: SegmentPublisher, settings: LeadershipSettings) -> None:
    """Make it clean; it accepts no more appends then. Whatever is raised, it accepts them as before.

    The scheduler publishes it, together with others that are drained at the same time. `UnavailableError`: not within the limits.
    """
    try:
        async with asyncio.timeout(settings.drain_publish_ms / 1000):
            await partition.wait_published()
    except TimeoutError:
        raise UnavailableError(
            f"partition {partition.partition_id}", f"it was not published within {settings.drain_publish_ms} ms"
        ) from None
    try:
        async with asyncio.timeout(settings.drain_refuse_ms / 1000):
            if lost := await close_together([partition], publisher):
                lease = lost[0].lease
                raise FencedError(lease.resource, lease.epoch, lease.epoch + 1)
    except TimeoutError:
        partition.resume_accepting()
        raise UnavailableError(
            f"partition {partition.partition_id}",
            f"its last records were not published within {settings.drain_refuse_ms} ms",
        ) from None
    except BaseException:
        partition.resume_accepting()
        raise


async def drain_to_replicas(
    partition: ReplicatedPartition, planned: Sequence[str], settings: LeadershipSettings
) -> bool:
    """Wait until the planned replicas that stay have everything; it accepts no more appends then. False: they do not in time.

    Whatever else is raised or returned, it accepts appends as before. The next leader seals the set and finds all of it there,
    without this agent (docs/replication.md): nothing need be published.
    """
    partition.stop_accepting()
    try:
        async with asyncio.timeout(settings.drain_refuse_ms / 1000):
            await partition.wait_replicated_to(planned)
    except TimeoutError:
        partition.resume_accepting()
        return False
    except BaseException:
        partition.resume_accepting()
        raise
    return True


async def close_together(partitions: Sequence[LeadingPartition], publisher: SegmentPublisher) -> list[LeadingPartition]:
    """Refuse appends and publish what is left: all are clean, but for those that turned out to be lost, which are returned."""
    for partition in partitions:
        partition.stop_accepting()
    for partition in partitions:
        await partition.wait_durable()
    lost: dict[LeadingPartition, None] = {}
    left = [each for each in partitions if not each.is_quiescent]
    for _ in range(_CLOSE_ATTEMPTS_MAX):
        if not left:
            return list(lost)
        lost |= dict.fromkeys(await publisher.publish(left, closing=True))
        left = [each for each in left if each not in lost and not each.record.clean]
    if left:
        raise UnavailableError(f"partition {left[0].partition_id}", "it could not be published completely")
    return list(lost)
