"""Mutants of a cluster: the shipped code with one mistake each, for the run of one seed. Every one of them must be caught."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Protocol

from holdfast.contracts.store import Requirement
from holdfast.kafka.special_offsets import NO_EPOCH
from holdfast.log import follower_reads, reader
from holdfast.log.errors import OffsetOutOfRangeError
from holdfast.log.maintenance import orphan_sweeper
from holdfast.log.metadata import PartitionRecord
from holdfast.log.partition import takeover_recovery
from holdfast.log.partition.fenced_record import FencedRecord
from holdfast.log.partition.follower_partition import FollowerPartition
from holdfast.log.partition.producer_recovery import ProducerRecovery
from holdfast.log.partition.visible_log import VisibleLog
from holdfast.log.partition_read import PartitionRead
from holdfast.log.replication import takeover as replication_takeover
from holdfast.log.replication.leader import Leader
from holdfast.log.replication.takeover import QuorumTakeover
from holdfast.log.service import LogService
from holdfast.log.wal import writer


class _Plant(Protocol):
    def __call__(self) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterVariant:
    """Which code a world of agents runs: `planted` puts a mistake into it for the body."""

    name: str
    wrong: str = ""
    planted: _Plant = nullcontext


CORRECT: Final = ClusterVariant(name="correct")


@contextmanager
def _replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _require_nothing(_: FencedRecord) -> Sequence[Requirement]:
    """The mistake: we lead the partition, so its epoch and its record must be ours."""
    return ()


def _sync_later(*_: object) -> None:
    """The mistake: the system will write it soon."""


def _go_on_at_published(_: object, record: PartitionRecord, __: object) -> PartitionRecord:
    """The mistake: what is not published does not exist."""
    return record


async def _mark_nothing(*_: object) -> None:
    """The mistake: an object that no partition lists now will not be listed."""


async def _forget_producers(recovery: ProducerRecovery) -> None:
    """The mistake: the tail has all that matters of the producers."""
    recovery._apply()


def _end_of_tail(log: VisibleLog) -> int:
    """The mistake: what was appended will be durable in a moment."""
    return log.tail.end


def _one_is_enough(leader: Leader, min_insync: int) -> None:
    """The mistake: the others will have it soon."""
    leader.needed = 1


def _out_of_range(follower: FollowerPartition) -> PartitionRead:
    """The mistake: what this replica does not have is not there."""
    start, end = follower.published.start_offset, follower.high_watermark
    raise OffsetOutOfRangeError(str(follower.partition_id), end + 1, start, end)


def _seal_one(_: int) -> int:
    """The mistake: whoever answers first has everything."""
    return 1


def _longest(takeover: QuorumTakeover, replica: str) -> tuple[int, int]:
    """The mistake: more records are better records."""
    epoch, offset = takeover._sealed[replica]
    return offset, epoch


async def _end_it_knows(
    service: LogService, topic: str, partition: int, epoch: int, *, leader_epoch: int = NO_EPOCH
) -> tuple[int, int]:
    """The mistake: whoever led an epoch knows where it ended."""
    return reader.end_of_epoch(await service._readable(topic, partition, leader_epoch), epoch)


_MUTANT_LIST: Final = (
    ClusterVariant(
        name="publish-unfenced",
        wrong="a publication does not require the epoch",
        planted=lambda: _replaced(FencedRecord, "require", _require_nothing),
    ),
    ClusterVariant(
        name="ack-before-fsync",
        wrong="appends are acknowledged before they are synced",
        planted=lambda: _replaced(writer, "sync_or_stop", _sync_later),
    ),
    ClusterVariant(
        name="offsets-reused",
        wrong="a takeover goes on where the published part ends, whatever was handed out",
        planted=lambda: _replaced(takeover_recovery, "_skip_tail", _go_on_at_published),
    ),
    ClusterVariant(
        name="sweeper-without-doom",
        wrong="the sweeper deletes orphans without marking them first",
        planted=lambda: _replaced(orphan_sweeper, "_mark_for_deletion", _mark_nothing),
    ),
    ClusterVariant(
        name="producers-forgotten",
        wrong="a takeover does not read the producers of the last footer",
        planted=lambda: _replaced(ProducerRecovery, "_read", _forget_producers),
    ),
    ClusterVariant(
        name="visible-before-durable",
        wrong="records are visible before they are durable at the topic's level",
        planted=lambda: _replaced(VisibleLog, "high_watermark", property(_end_of_tail)),
    ),
    ClusterVariant(
        name="ack-before-majority",
        wrong="an append at quorum is acknowledged when one replica has it",
        planted=lambda: _replaced(Leader, "require", _one_is_enough),
    ),
    ClusterVariant(
        name="serve-before-seal",
        wrong="a new leader serves when one replica has promised its epoch",
        planted=lambda: _replaced(replication_takeover, "seal_quorum", _seal_one),
    ),
    ClusterVariant(
        name="longest-tail",
        wrong="a new leader takes the longest log instead of the one of the highest epoch",
        planted=lambda: _replaced(QuorumTakeover, "_rank", _longest),
    ),
    ClusterVariant(
        name="replica-out-of-range",
        wrong="a replica tells a reader that is ahead of it that its offset is out of range",
        planted=lambda: _replaced(follower_reads, "_nothing", _out_of_range),
    ),
    ClusterVariant(
        name="epoch-end-of-former-leader",
        wrong="a former leader names the end it knows of its own epoch",
        planted=lambda: _replaced(LogService, "end_of_epoch", _end_it_knows),
    ),
)
CLUSTER_MUTANTS: Final = {variant.name: variant for variant in _MUTANT_LIST}
