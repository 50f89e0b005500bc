"""Taking over a partition at `quorum`: the set that served last is sealed, its log replicated to the new set, and the epoch opened.
An agent that led the last epoch itself and ended it has its log: nobody has to be sealed.

Each by itself, side by side; those that are ready are committed together (`takeover_commit`). Before the commit is known to have
been made, nothing is appended, acknowledged, published or read above what is published (docs/replication.md).

The one rule: the tail and the producers are those of the chosen log, whatever this process knew of the partition before.
"""

import logging
from dataclasses import replace
from typing import Final

import msgspec

from holdfast.contracts.store import AtVersion, Conflict, Entry, Put, Store
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.keys import partition_from_resource
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.log.batches import RecordBatchLimits, split_batches
from holdfast.log.errors import EpochSpentError, ReplicasUnreachableError
from holdfast.log.gaps import gap_batches
from holdfast.log.keys import WALS
from holdfast.log.leader_epochs import epoch_at, with_epoch
from holdfast.log.metadata import PartitionRecord
from holdfast.log.partition.ended_logs import can_be_sealed, published_position
from holdfast.log.partition.replica_members import choose_members
from holdfast.log.partition.resources import PartitionResources, ReplicationResources
from holdfast.log.partition.tail import Tail, TailBatch
from holdfast.log.partition.takeover_recovery import RecoveredTakeover
from holdfast.log.promises_ahead import is_newest, store_behind_error
from holdfast.log.replica_sets import replicas_needed
from holdfast.log.replication.entry_log import EntryLog
from holdfast.log.replication.leader import Ended
from holdfast.log.replication.takeover import Phase, StoredState
from holdfast.log.replication.takeover import QuorumTakeover as ReplicatedLogTakeover
from holdfast.log.replication.takeover_run import TakeoverRun
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import FencedError, HoldfastError, UnavailableError

_log: Final = logging.getLogger(__name__)

_CONNECT_POLL_MS: Final = 10
_ALL_BYTES: Final = 1 << 62


async def replicate(recovered: RecoveredTakeover, resources: PartitionResources) -> RecoveredTakeover | HoldfastError:
    """What is left to commit, with the `run` that leads then; or why it cannot be opened."""
    try:
        return await _replicate(recovered, resources)
    except HoldfastError as error:
        return error


async def _replicate(recovered: RecoveredTakeover, resources: PartitionResources) -> RecoveredTakeover:
    takeover, record, replication = recovered.takeover, recovered.record, resources.replication
    partition, lease = str(takeover.partition_id), takeover.lease
    if replication is None:
        raise UnavailableError(f"partition {partition}", "this agent keeps no replicas")
    if record.opened_epoch >= lease.epoch:
        raise EpochSpentError(partition, lease.epoch, "it was opened")
    if replication.spent_epochs.get(lease.resource, 0) >= lease.epoch:
        raise EpochSpentError(partition, lease.epoch, "it was replicated, and not opened")
    if promised := replication.promises.barring(lease):
        if not takeover.config.unclean_takeover:
            raise store_behind_error(partition, lease.epoch, promised)
        raise EpochSpentError(partition, lease.epoch, f"a replica has promised epoch {promised}")

    def spend() -> None:
        replication.spent_epochs[lease.resource] = lease.epoch

    stored, own = _stored_state(record), EntryLog()
    members = await _reachable_members(recovered, replication, resources.clock)
    if takeover.ended is not None and takeover.ended.is_last(record):
        if len(members) >= replicas_needed(takeover.config):
            own = takeover.ended.log
            stored = replace(stored, handed_over=own.position)
        elif not stored.clean and not can_be_sealed(record, replication.network.is_connected):
            # Those before may still have what was acknowledged, on more disks than a set of these would.
            raise UnavailableError(f"partition {partition}", "too few replicas can be reached for its next epoch")
    run = TakeoverRun(
        ReplicatedLogTakeover(
            takeover.wal_key,
            lease.epoch,
            stored,
            members,
            own=own,
            min_insync=replicas_needed(takeover.config),
        ),
        replication.network,
        clock=resources.clock,
        on_replicating=spend,
    )
    try:
        await run.until_ready(replication.takeover_wait_ms)
        if run.takeover.ended is not None:
            raise await _ended_error(partition, lease, run.takeover.ended, replication, resources.store)
        if not run.ready and takeover.config.unclean_takeover and run.takeover.phase is Phase.SEALING:
            recovered = await _go_on_without_others(recovered, run, resources)
        if not run.ready:
            raise ReplicasUnreachableError(partition, *run.waits_for, unclean=takeover.config.unclean_takeover)
        return _opened(recovered, run)
    except BaseException:
        run.close("the takeover was given up")
        raise


async def _go_on_without_others(
    recovered: RecoveredTakeover, run: TakeoverRun, resources: PartitionResources
) -> RecoveredTakeover:
    """An operator lets the partition go on without replicas whose agents are gone. One whose agent lives is waited for.

    The record says so before anything is sent: if the epoch is not opened, its entries must not win over what those have.
    """
    store, replication = resources.store, resources.replication
    assert replication is not None
    _, needed, sealed, missing = run.waits_for
    live = {entry.key.removeprefix(WALS) for entry in (await store.scan(WALS, prefix_end(WALS))).entries}
    if live.intersection(missing):
        return recovered
    recovered = await _announce_unclean(recovered, resources)
    takeover, record = recovered.takeover, recovered.record
    _log.warning(
        "unclean takeover of partition %s: with %d of %d replicas that are needed (%s), at offset %d, without what only %s had",
        takeover.partition_id,
        len(sealed),
        needed,
        ", ".join(sealed) or "none",
        record.reserved,
        ", ".join(missing),
    )
    epoch = epoch_at(record.epochs, record.reserved - 1)

    def cover(start: int, end: int) -> list[bytes]:
        return gap_batches(start, end, epoch=epoch, bytes_max=_ALL_BYTES)

    await run.go_on_without_others(cover, replication.takeover_wait_ms)
    return recovered


async def _announce_unclean(recovered: RecoveredTakeover, resources: PartitionResources) -> RecoveredTakeover:
    takeover, entry = recovered.takeover, recovered.entry
    assert entry is not None  # an epoch was opened
    before = msgspec.json.decode(entry.value, type=PartitionRecord)
    if before.unclean_epoch:
        return recovered
    value = msgspec.json.encode(msgspec.structs.replace(before, unclean_epoch=takeover.lease.epoch))
    outcome = await commit_fenced(
        resources.store,
        takeover.lease,
        clock=resources.clock,
        random=resources.random,
        require=(AtVersion(entry.key, entry.version),),
        apply=(Put(entry.key, value),),
    )
    if isinstance(outcome, Conflict):
        raise UnavailableError(f"partition {takeover.partition_id}", "its record changed while it was opened")
    return replace(recovered, entry=Entry(entry.key, value, outcome.version))


async def _reachable_members(
    recovered: RecoveredTakeover, replication: ReplicationResources, clock: Clock
) -> tuple[str, ...]:
    """The planned set without those that cannot be reached. The plan and agents that have just started are waited for a moment;

    and longer, if the tail would have fewer copies than was promised without them.
    """
    takeover, network = recovered.takeover, replication.network
    which = partition_from_resource(takeover.lease.resource)
    began_ms = clock.boot_ms()
    while True:
        planned = replication.planned_replicas(which)
        wanted = choose_members(planned, network.wal_id, takeover.config.replicas)
        members = tuple(each for each in wanted if network.is_connected(each))
        is_planned_here = bool(planned) and planned[0] == network.wal_id
        few = not recovered.record.clean and len(members) < replicas_needed(takeover.config)
        wait_ms = max(replication.connect_wait_ms, replication.takeover_wait_ms if few else 0)
        if (is_planned_here and members == wanted and not few) or clock.boot_ms() >= began_ms + wait_ms:
            return members
        await clock.sleep_ms(_CONNECT_POLL_MS)


def _stored_state(record: PartitionRecord) -> StoredState:
    return StoredState(
        published=published_position(record),
        reserved=record.reserved,
        opened_epoch=record.opened_epoch,
        opened_replicas=record.opened_replicas,
        unclean_epoch=record.unclean_epoch,
    )


def _opened(recovered: RecoveredTakeover, run: TakeoverRun) -> RecoveredTakeover:
    """The open commit's record, and the tail: what the chosen log has."""
    commit, leader = run.takeover.open_commit, run.takeover.leader
    assert commit is not None
    assert leader is not None
    record = msgspec.structs.replace(
        recovered.record,
        published_epoch=leader.published.epoch,
        reserved=commit.start,
        epochs=with_epoch(recovered.record.epochs, commit.epoch, commit.start),
        opened_epoch=commit.epoch,
        opened_replicas=commit.replicas,
        in_sync=leader.matched,
        unclean_epoch=0,
    )
    return replace(recovered, record=record, tail=_tail_of(leader.log), run=run)


def _tail_of(log: EntryLog) -> Tail:
    tail = Tail(log.base.offset)
    for entry in log.entries:
        for part in entry.payload:
            for header, data in split_batches(part, limits=RecordBatchLimits(), stored=True):
                tail.append(TailBatch(header.base_offset, header.last_offset + 1, data, header))
    return tail


async def _ended_error(
    partition: str, lease: Lease, ended: Ended, replication: ReplicationResources, store: Store
) -> HoldfastError:
    """Why a takeover has ended: a newer epoch owns the partition, or the store has forgotten one, or this disk is full."""
    if not ended.promised:
        return EpochSpentError(partition, lease.epoch, ended.reason)
    if not await is_newest(store, lease):
        return FencedError(lease.resource, lease.epoch, ended.promised)
    replication.promises.refused(lease, ended.promised)
    return store_behind_error(partition, lease.epoch, ended.promised)
