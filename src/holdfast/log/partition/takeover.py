"""Taking over partitions under new leases: read together, recovered one by one, committed together, led.

Every record is written under the fence of its own lease (`takeover_commit`). What is found and what follows from it is
`takeover_recovery`'s.
"""

from collections.abc import Sequence

from holdfast.kernel.lease import Lease
from holdfast.log.model import PartitionConfig, PartitionId
from holdfast.log.partition.fenced_record import FencedRecord
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.left_out_tails import set_aside_gaps
from holdfast.log.partition.partition_reads import read_partitions
from holdfast.log.partition.resources import PartitionResources, RecoveredPartition
from holdfast.log.partition.takeover_commit import commit_takeovers
from holdfast.log.partition.takeover_recovery import FrameSource, RecoveredTakeover, Takeover, recover_all
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import HoldfastError


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
    takeover = Takeover(partition_id=partition_id, lease=lease, config=config or PartitionConfig())
    (opened,) = await open_partitions([takeover], resources, frames=frames)
    if isinstance(opened, HoldfastError):
        raise opened
    return opened


async def open_partitions(
    takeovers: Sequence[Takeover], resources: PartitionResources, *, frames: FrameSource | None = None
) -> list[LeadingPartition | HoldfastError]:
    """`open_partition` for several (distinct) partitions, read together and taken over in as few commits as they fit into.

    In their order, each with its own error: one that cannot be opened affects no other.
    """
    source = frames or resources.wal.recovered.of
    try:
        # The record and what it lists, as of one commit.
        entries = await read_partitions(resources.store, [each.place for each in takeovers])
    except HoldfastError as error:
        return [error for _ in takeovers]
    await resources.turns.next()
    recovered = await recover_all(takeovers, entries, resources, source)
    ready = [each for each in recovered if isinstance(each, RecoveredTakeover)]
    versions = iter(await commit_takeovers(ready, resources))
    await resources.turns.next()
    return [
        each if isinstance(each, HoldfastError) else await _lead(each, next(versions), resources, source)
        for each in recovered
    ]


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
    return LeadingPartition(partition_id, lease, state, resources)
