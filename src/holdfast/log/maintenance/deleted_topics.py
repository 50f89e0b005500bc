"""Deleted topics: what they left behind goes, partition by partition, in commits that any store takes.

    deleted/{topic id}     {"topic": …, "deleted_at_ms": …}

The topic's record went when the mark came. A partition's record goes with the first of its segments: from then on no agent can
publish to it. Objects go by way of the trash, so that readers finish in peace and shared objects stay for those who share them;
what was uploaded and never listed is an orphan like any other. The mark stays for a while, because an agent that has not seen it
yet may open a partition again; the next pass finds what it left.
"""

import msgspec

from holdfast.contracts.store import Delete, Entry, Operation
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.lease import Lease, commit_fenced
from holdfast.log.keys import DELETED, LOGS, state_key
from holdfast.log.maintenance.settings import MaintenanceContext
from holdfast.log.maintenance.trash import to_trash
from holdfast.log.metadata import DeletedTopic
from holdfast.log.segment_list import read_index, read_segment
from holdfast.vocabulary import failpoints

_ENTRIES_PER_COMMIT = 45  # a key and its object each, and the partition's record


async def purge_deleted(lease: Lease, context: MaintenanceContext) -> int:
    """Remove what deleted topics left in the store; how many keys. Resumable after a crash anywhere."""
    removed = 0
    for mark in (await context.store.scan(DELETED, prefix_end(DELETED))).entries:
        prefix = f"{LOGS}{mark.key.removeprefix(DELETED)}/"
        before = removed
        while found := (await context.store.scan(prefix, prefix_end(prefix), limit=_ENTRIES_PER_COMMIT)).entries:
            operations = _unlink(found, context)
            await commit_fenced(context.store, lease, clock=context.clock, random=context.random, apply=operations)
            failpoints.reached("maintenance.topic-purged")
            removed += len(found)
        record = msgspec.json.decode(mark.value, type=DeletedTopic)
        if removed == before and context.clock.now_ms() - record.deleted_at_ms >= context.settings.deleted_keep_ms:
            await commit_fenced(
                context.store, lease, clock=context.clock, random=context.random, apply=(Delete(mark.key),)
            )
    return removed


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
    deleted: dict[str, Operation] = {entry.key: Delete(entry.key) for entry in entries}
    return list({**deleted, **states, **trash}.values())
