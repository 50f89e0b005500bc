"""What is removed behind a pipeline: recipes nobody needs, and everything of one that was deleted.

The one rule: a mark in the store says that a pipeline is gone before anything of it is removed, and goes last. Whoever comes by
finishes what a dead process began; to remove what is gone changes nothing.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import msgspec

from holdfast.contracts.store import Absent, AtVersion, Committed, Conflict, Delete, Operation, Put, Requirement, Store
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.keys import EPOCHS, HOLDERS
from holdfast.pipeline.catalog.encoding import ReplayRecord, read_replay
from holdfast.pipeline.catalog.keys import (
    DELETED,
    deleted_key,
    parts_prefix,
    pipeline_key,
    replay_key,
    revisions_prefix,
    status_prefix,
)
from holdfast.pipeline.model.definition import (
    PIPELINE_REGISTRY,
    Pipeline,
    RangeIntent,
    registry_namespace,
    slot_resource,
)
from holdfast.registry import PartitionState
from holdfast.registry.keys import REGISTRIES
from holdfast.registry.keys import partitions as partitions_prefix
from holdfast.registry.records import decode_partition, encode_partition
from holdfast.vocabulary.errors import CorruptError

Commit = Callable[[Sequence[Requirement], Sequence[Operation]], Awaitable[Committed | Conflict]]

_DELETES_MAX = 90  # of the hundred operations a commit takes
_PAGE = 500


def _registries(pipeline_id: str) -> str:
    """The prefix of the registries of all generations, see `nouns.registry_namespace`."""
    return f"{REGISTRIES}{PIPELINE_REGISTRY}{pipeline_id}-"


def _slots(pipeline_id: str) -> str:
    return slot_resource(pipeline_id, 0).rpartition("/")[0] + "/"


async def _partitions(store: Store, pipeline_id: str) -> list[PartitionState]:
    """The partitions of all generations, the retired ones included."""
    prefix = _registries(pipeline_id)
    entries = (await store.scan(prefix, prefix_end(prefix))).entries
    return [decode_partition(entry) for entry in entries if "/partitions/" in entry.key]


async def active_owners(store: Store, pipeline_id: str) -> tuple[str, ...]:
    """Who still works for a pipeline, in words; nobody if empty."""
    holders = HOLDERS + _slots(pipeline_id)
    slots = [entry.key.rpartition("/")[2] for entry in (await store.scan(holders, prefix_end(holders))).entries]
    prefix = _registries(pipeline_id)
    entries = (await store.scan(prefix, prefix_end(prefix))).entries
    # A dead owner's name stays in the record until the next one claims it; of a stopped pipeline there is none.
    alive = {entry.key.replace("/beats/", "/partitions/") for entry in entries if "/beats/" in entry.key}
    owners = sorted({decode_partition(entry).owner or "" for entry in entries if entry.key in alive} - {""})
    found = [f"slot {slot} is still held by a worker" for slot in slots]
    return (*found, *(f"partitions are still owned by {owner}" for owner in owners))


async def prune_revisions(store: Store, pipeline: Pipeline, *, kept: int, commit: Commit) -> None:
    """Remove all recipes but the newest `kept` and those that a begun range is to be finished by."""
    prefix = revisions_prefix(pipeline.id)
    if pipeline.recipe <= kept:
        return
    entries = (await store.scan(prefix, f"{prefix}{pipeline.recipe - kept + 1:08d}")).entries
    if not entries:
        return
    begun = {
        msgspec.json.decode(state.intent, type=RangeIntent).recipe
        for state in await _partitions(store, pipeline.id)
        if state.intent is not None
    }
    begun.add(await _replaying(store, pipeline.id))
    gone = [Delete(entry.key) for entry in entries if int(entry.key.rpartition("/")[2]) not in begun]
    for at in range(0, len(gone), _DELETES_MAX):
        await commit([], gone[at : at + _DELETES_MAX])


async def _replaying(store: Store, pipeline_id: str) -> int:
    """The recipe a replay is under way with; 0: none."""
    entry = await store.get(replay_key(pipeline_id))
    record = ReplayRecord() if entry is None else read_replay(entry)
    return 0 if record.pending is None else record.pending.recipe


async def clear_intents(store: Store, pipeline: Pipeline, *, commit: Commit) -> int:
    """Clear what was begun in retired generations and is owned by nobody: it is never finished, and would hold records back.

    How many there were. A partition that somebody takes meanwhile is left to him.
    """
    gone = [each.number for each in pipeline.generations if each.retired]
    cleared = 0
    for number in gone:
        prefix = partitions_prefix(registry_namespace(pipeline.id, number))
        for entry in (await store.scan(prefix, prefix_end(prefix))).entries:
            state = decode_partition(entry)
            if state.intent is None or state.owner is not None:
                continue
            value = encode_partition(replace(state, intent=None))
            outcome = await commit([AtVersion(entry.key, entry.version)], [Put(entry.key, value)])
            cleared += isinstance(outcome, Committed)
    return cleared


async def delete_keys(store: Store, pipeline_id: str, *, commit: Commit) -> None:
    """Remove everything of a pipeline that is gone, and then its mark."""
    everything = (
        parts_prefix(pipeline_id),
        revisions_prefix(pipeline_id),
        status_prefix(pipeline_id),
        _registries(pipeline_id),
        EPOCHS + _slots(pipeline_id),
    )
    gone = Absent(pipeline_key(pipeline_id))
    for prefix in everything:
        while entries := (await store.scan(prefix, prefix_end(prefix), limit=_DELETES_MAX)).entries:
            if isinstance(await commit([gone], [Delete(entry.key) for entry in entries]), Conflict):
                raise CorruptError(deleted_key(pipeline_id), "the pipeline is marked as gone and is there")
    await commit([], [Delete(replay_key(pipeline_id)), Delete(deleted_key(pipeline_id))])


async def sweep(store: Store, *, commit: Commit) -> int:
    """Finish every removal that was begun; how many there were."""
    marks = (await store.scan(DELETED, prefix_end(DELETED), limit=_PAGE)).entries
    for mark in marks:
        await delete_keys(store, mark.key.removeprefix(DELETED), commit=commit)
    return len(marks)
