"""Taking over partitions under new leases: read together, recovered one by one, committed together, led.

Every record is written under the fence of its own lease (`takeover_commit`). What is found and what follows from it is
`takeover_recovery`'s, and `replicated_takeover`'s where replicas have the tail.
"""

import asyncio
from collections.abc import Callable, Sequence

from holdfast.kernel.lease import Lease
from holdfast.log.errors import EpochSpentError
from holdfast.log.model import PartitionConfig, PartitionId
from holdfast.log.partition.fenced_record import FencedRecord
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.left_out_tails import set_aside_gaps
from holdfast.log.partition.partition_reads import read_partitions
from holdfast.log.partition.replicated_partition import ReplicatedPartition
from holdfast.log.partition.replicated_takeover import replicate
from holdfast.log.partition.resources import PartitionResources, RecoveredPartition
from holdfast.log.partition.takeover_commit import commit_takeovers
from holdfast.log.partition.takeover_recovery import FrameSource, PartitionTakeover, RecoveredTakeover, recover_all
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import HoldfastError

OnResult = Callable[[PartitionTakeover, LeadingPartition | HoldfastError], None]


async def open_partition(
    partition_id: PartitionId,
    lease: Lease,
    resources: PartitionResources,
    *,
    config: PartitionConfig | None = None,
    frames: FrameSource | None = None,
) -> LeadingPartition:
    """Recover a partition and take it over. `frames`: where its WAL frames are read from, by default what the WAL recovered.

    `TailNotLocalError`, `CorruptError`: it stays offline. `FencedError`: a newer epoch owns it.
    """
    takeover = PartitionTakeover(partition_id=partition_id, lease=lease, config=config or PartitionConfig())
    (opened,) = await open_partitions([takeover], resources, frames=frames)
    if isinstance(opened, HoldfastError):
        raise opened
    return opened


async def open_partitions(
    takeovers: Sequence[PartitionTakeover],
    resources: PartitionResources,
    *,
    frames: FrameSource | None = None,
    on_result: OnResult = lambda _, __: None,
) -> list[LeadingPartition | HoldfastError]:
    """`open_partition` for several (distinct) partitions, read together and taken over in as few commits as they fit into.

    In their order, each with its own error: one that cannot be opened affects no other. Those that replicas must be asked for are
    opened after the others, and may take longer: `on_result` is called for each as soon as it is open, or cannot be.
    """
    source = frames or resources.wal.recovered.of
    opened: dict[tuple[str, int], LeadingPartition | HoldfastError] = {}

    def note(takeover: PartitionTakeover, found: LeadingPartition | HoldfastError) -> None:
        opened[takeover.place] = found
        on_result(takeover, found)

    try:
        # The record and what it lists, as of one commit.
        entries = await read_partitions(resources.store, [each.place for each in takeovers])
    except HoldfastError as error:
        for each in takeovers:
            note(each, error)
        return [error for _ in takeovers]
    await resources.turns.next()
    recovered = await recover_all(takeovers, entries, resources, source)
    for takeover, found in zip(takeovers, recovered, strict=True):
        if isinstance(found, HoldfastError):
            note(takeover, found)
    ready = [each for each in recovered if isinstance(each, RecoveredTakeover)]
    await _commit_and_lead([each for each in ready if not each.replicated], resources, source, note)
    if replicated := [each for each in ready if each.replicated]:
        await _open_replicated(replicated, resources, source, note)
    return [opened[each.place] for each in takeovers]


async def _open_replicated(
    recovered: Sequence[RecoveredTakeover], resources: PartitionResources, source: FrameSource, note: OnResult
) -> None:
    """Side by side. Those that become ready while others are committed go together."""
    left = {asyncio.ensure_future(replicate(each, resources)): each.takeover for each in recovered}
    try:
        while left:
            done, _ = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            ready: list[RecoveredTakeover] = []
            for task in done:
                takeover, found = left.pop(task), task.result()
                if isinstance(found, HoldfastError):
                    note(takeover, found)
                else:
                    ready.append(found)
            await _commit_and_lead(ready, resources, source, note)
    finally:
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
            for task in left:
                if not task.cancelled() and isinstance(found := task.result(), RecoveredTakeover):
                    _give_up(found)


async def _commit_and_lead(
    ready: Sequence[RecoveredTakeover], resources: PartitionResources, source: FrameSource, note: OnResult
) -> None:
    led = 0
    try:
        versions = await commit_takeovers(ready, resources)
        await resources.turns.next()
        for each, version in zip(ready, versions, strict=True):
            found = await _lead(each, version, resources, source)
            led += 1
            if isinstance(found, HoldfastError):
                _give_up(each)
            note(each.takeover, found)
    finally:
        for each in ready[led:]:
            _give_up(each)


def _give_up(recovered: RecoveredTakeover) -> None:
    if recovered.run is not None:
        recovered.run.close("it was not opened")


async def _lead(
    recovered: RecoveredTakeover, version: int | HoldfastError, resources: PartitionResources, source: FrameSource
) -> LeadingPartition | HoldfastError:
    """The partition, whose record was committed as `version`, or why it was not."""
    if isinstance(version, HoldfastError):
        return version
    takeover, record = recovered.takeover, recovered.record
    partition_id, lease = takeover.partition_id, takeover.lease
    failpoints.reached("takeover.committed")
    if any(gap.wal == resources.wal_id for gap in record.gaps):  # before a publication releases the frames
        try:
            await set_aside_gaps(
                partition_id,
                record,
                source(*takeover.wal_key),
                directory=resources.wal.directory,
                wal_id=resources.wal_id,
                now_ms=resources.clock.now_ms(),
            )
        except HoldfastError as error:
            return error
    fenced = FencedRecord(
        partition_id, lease, record, version, store=resources.store, clock=resources.clock, random=resources.random
    )
    state = RecoveredPartition(record=fenced, segments=recovered.segments, tail=recovered.tail, config=takeover.config)
    run = recovered.run
    if run is None:
        if resources.replication is not None:  # before anything is written to this WAL that is not the replica's
            resources.replication.drop_log(takeover.wal_key, record)
        return LeadingPartition(partition_id, lease, state, resources)
    if run.takeover.ended is not None:
        return EpochSpentError(str(partition_id), lease.epoch, run.takeover.ended.reason)
    return ReplicatedPartition(partition_id, lease, state, resources, run)
