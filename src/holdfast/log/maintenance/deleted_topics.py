"""Deleted topics: what they left behind goes, partition by partition, in commits that any store takes.

    deleted/{topic id}     {"topic": …, "deleted_at_ms": …}

The topic's record went when the mark came. A partition's record goes with the first of its segments: from then on no agent can
publish to it. Objects go by way of the trash, so that readers finish in peace and shared objects stay for those who share them;
what was uploaded and never listed is an orphan like any other. The mark stays for a while, because an agent that has not seen it
yet may open a partition again; the next pass finds what it left.

Leases are named by the topic's name, not by its id: their epochs and transfers go when there is no topic of that name, by a commit
that lifts the floor of all epochs (`kernel.lease`). So a topic that is created again never sees an epoch that its name has had.
"""

from collections.abc import Sequence
from itertools import groupby

import msgspec

from holdfast.contracts.store import Absent, Committed, Delete, Entry, Operation
from holdfast.contracts.validation import next_key, prefix_end
from holdfast.kernel.keys import (
    EPOCH_FLOOR,
    EPOCHS,
    LOG_PARTITION,
    PLACED,
    holder_key,
    parse_placed_resource,
    workload_key,
)
from holdfast.kernel.lease import Lease, commit_fenced, forget_commit
from holdfast.log.keys import DELETED, LOGS, replica_sets_prefix, state_key, topic_key
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.maintenance.trash import to_trash
from holdfast.log.metadata import DeletedTopic
from holdfast.log.partition_snapshots import read_snapshot_list
from holdfast.log.segment_list import read_index, read_segment
from holdfast.vocabulary import failpoints

_PAGE = 500
_LEASES_PER_COMMIT = 18  # five operations each
_ENTRIES_PER_COMMIT = (
    45  # a key and its object each, and the partition's record; or two for a list of snapshots, whose record follows
)


async def purge_deleted(lease: Lease, context: MaintenanceContext) -> int:
    """Remove what deleted topics left in the store; how many keys. Resumable after a crash anywhere."""
    removed = 0
    for mark in (await context.store.scan(DELETED, prefix_end(DELETED))).entries:
        topic_id, before = mark.key.removeprefix(DELETED), removed
        prefix = f"{LOGS}{topic_id}/"
        while found := (await context.store.scan(prefix, prefix_end(prefix), limit=_ENTRIES_PER_COMMIT)).entries:
            operations = _unlink(found, context)
            await commit_fenced(context.store, lease, clock=context.clock, random=context.random, apply=operations)
            failpoints.reached("maintenance.topic-purged")
            removed += len(found)
        removed += await _forget_replica_sets(topic_id, lease, context)
        record = msgspec.json.decode(mark.value, type=DeletedTopic)
        if removed == before and context.clock.now_ms() - record.deleted_at_ms >= context.settings.deleted_keep_ms:
            await commit_fenced(
                context.store, lease, clock=context.clock, random=context.random, apply=(Delete(mark.key),)
            )
    return removed


async def forget_leases(lease: Lease, context: MaintenanceContext) -> int:
    """Remove epochs and transfers of partitions whose topic is no more; how many. What is still held is left for another time."""
    start, forgotten = EPOCHS + PLACED, 0
    while True:
        page = await context.store.scan(start, prefix_end(EPOCHS + PLACED), limit=_PAGE)
        for topic, entries in groupby(page.entries, key=_topic_of):
            if topic and await context.store.get(topic_key(topic)) is None:
                forgotten += await _forget(topic, list(entries), lease, context)
        if not page.more:
            return forgotten
        start = next_key(page.entries[-1].key)


async def _forget_replica_sets(topic_id: str, lease: Lease, context: MaintenanceContext) -> int:
    prefix, removed = replica_sets_prefix(topic_id), 0
    while found := (await context.store.scan(prefix, prefix_end(prefix), limit=_ENTRIES_PER_COMMIT)).entries:
        gone = [Delete(entry.key) for entry in found]
        await commit_fenced(context.store, lease, clock=context.clock, random=context.random, apply=gone)
        removed += len(found)
    return removed


def _topic_of(entry: Entry) -> str:
    """The topic of an epoch's key; "" for leases that are not partitions of topics."""
    kind, workload, _ = parse_placed_resource(entry.key.removeprefix(EPOCHS))
    return workload if kind == LOG_PARTITION else ""


async def _forget(topic: str, entries: Sequence[Entry], lease: Lease, context: MaintenanceContext) -> int:
    forgotten = 0
    for at in range(0, len(entries), _LEASES_PER_COMMIT):
        gone: dict[str, Entry] = {}
        for entry in entries[at : at + _LEASES_PER_COMMIT]:
            resource = entry.key.removeprefix(EPOCHS)
            if await context.store.get(holder_key(resource)) is None:
                gone[resource] = entry
        if not gone:
            continue
        forget = forget_commit(gone, await context.store.get(EPOCH_FLOOR))
        outcome = await commit_fenced(
            context.store,
            lease,
            clock=context.clock,
            random=context.random,
            require=(Absent(topic_key(topic)), Absent(workload_key(topic)), *forget.require),
            apply=forget.apply,
        )
        if isinstance(outcome, Committed):  # otherwise somebody uses the name again
            forgotten += len(gone)
    return forgotten


def _unlink(entries: tuple[Entry, ...], context: MaintenanceContext) -> list[Operation]:
    """Take these keys out, and put what they name into the trash."""
    due_ms = context.due_ms()
    states: dict[str, Operation] = {}
    trash: dict[str, Operation] = {}
    for entry in entries:
        topic_id, number, kind = entry.key.removeprefix(LOGS).split("/")[:3]
        state = state_key(topic_id, int(number))
        states[state] = Delete(state)
        if kind == "seg":
            put = to_trash(read_segment(entry).object, due_ms)
            trash[put.key] = put
        elif kind == "idx":
            put = to_trash(read_index(entry).object, due_ms, contents=True)
            trash[put.key] = put
        elif kind == "snapshots":
            for snapshot in read_snapshot_list(entry.value).snapshots:
                put = to_trash(snapshot.object, due_ms)
                trash[put.key] = put
    deleted: dict[str, Operation] = {entry.key: Delete(entry.key) for entry in entries}
    return list({**deleted, **states, **trash}.values())
