"""What is removed behind a pipeline: recipes nobody needs, and everything of one that was deleted.

The one rule: a mark in the store says that a pipeline is gone before anything of it is removed, and goes last. Whoever comes by
finishes what a dead process began; to remove what is gone changes nothing.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import msgspec

from holdfast.contracts.checks import prefix_end
from holdfast.contracts.store import (
    Absent,
    AtVersion,
    Committed,
    Conflict,
    Delete,
    Operation,
    Put,
    Requirement,
    Store,
)
from holdfast.kernel.keys import EPOCHS, HOLDERS
from holdfast.kernel.registry import PartitionState
from holdfast.kernel.registry.keys import REGISTRIES
from holdfast.kernel.registry.keys import partitions as partitions_prefix
from holdfast.kernel.registry.records import partition_of, partition_value
from holdfast.pipeline.keys import (
    GONE,
    gone_key,
    parts_prefix,
    pipeline_key,
    recipes_prefix,
    replay_key,
    status_prefix,
)
from holdfast.pipeline.nouns import PIPELINE_REGISTRY, Intent, Pipeline, registry_of, slot_resource
from holdfast.pipeline.stored import ReplayRecord, read_replay
from holdfast.vocabulary.errors import CorruptError

Commit = Callable[[Sequence[Requirement], Sequence[Operation]], Awaitable[Committed | Conflict]]

_DELETES_MAX = 90  # of the hundred operations a commit takes
_PAGE = 500


def _registries(pipeline_id: str) -> str:
    """The prefix of the registries of all generations, see `nouns.registry_of`."""
    return f"{REGISTRIES}{PIPELINE_REGISTRY}{pipeline_id}-"


def _slots(pipeline_id: str) -> str:
    return slot_resource(pipeline_id, 0).rpartition("/")[0] + "/"


async def _partitions(store: Store, pipeline_id: str) -> list[PartitionState]:
    """The partitions of all generations, the retired ones included."""
    prefix = _registries(pipeline_id)
    entries = (await store.scan(prefix, prefix_end(prefix))).entries
    return [partition_of(entry) for entry in entries if "/partitions/" in entry.key]


async def busy(store: Store, pipeline_id: str) -> tuple[str, ...]:
    """Who still works for a pipeline, in words; nobody if empty."""
    holders = HOLDERS + _slots(pipeline_id)
    slots = [entry.key.rpartition("/")[2] for entry in (await store.scan(holders, prefix_end(holders))).entries]
    prefix = _registries(pipeline_id)
    entries = (await store.scan(prefix, prefix_end(prefix))).entries
    # A dead owner's name stays in the record until the next one claims it; of a stopped pipeline there is none.
    alive = {entry.key.replace("/beats/", "/partitions/") for entry in entries if "/beats/" in entry.key}
    owners = sorted({partition_of(entry).owner or "" for entry in entries if entry.key in alive} - {""})
    found = [f"slot {slot} is still held by a worker" for slot in slots]
    return (*found, *(f"partitions are still owned by {owner}" for owner in owners))


async def prune_recipes(store: Store, pipeline: Pipeline, *, kept: int, commit: Commit) -> None:
    """Remove all recipes but the newest `kept` and those that a begun range is to be finished by."""
    prefix = recipes_prefix(pipeline.id)
    if pipeline.recipe <= kept:
        return
    entries = (await store.scan(prefix, f"{prefix}{pipeline.recipe - kept + 1:08d}")).entries
    if not entries:
        return
    begun = {
        msgspec.json.decode(state.intent, type=Intent).recipe
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


async def forget_begun(store: Store, pipeline: Pipeline, *, commit: Commit) -> int:
    """Clear what was begun in retired generations and is owned by nobody: it is never finished, and would hold records back.

    How many there were. A partition that somebody takes meanwhile is left to him.
    """
    gone = [each.number for each in pipeline.generations if each.retired]
    cleared = 0
    for number in gone:
        prefix = partitions_prefix(registry_of(pipeline.id, number))
        for entry in (await store.scan(prefix, prefix_end(prefix))).entries:
            state = partition_of(entry)
            if state.intent is None or state.owner is not None:
                continue
            value = partition_value(replace(state, intent=None))
            outcome = await commit([AtVersion(entry.key, entry.version)], [Put(entry.key, value)])
            cleared += isinstance(outcome, Committed)
    return cleared


async def clear(store: Store, pipeline_id: str, *, commit: Commit) -> None:
    """Remove everything of a pipeline that is gone, and then its mark."""
    everything = (
        parts_prefix(pipeline_id),
        recipes_prefix(pipeline_id),
        status_prefix(pipeline_id),
        _registries(pipeline_id),
        EPOCHS + _slots(pipeline_id),
    )
    gone = Absent(pipeline_key(pipeline_id))
    for prefix in everything:
        while entries := (await store.scan(prefix, prefix_end(prefix), limit=_DELETES_MAX)).entries:
            if isinstance(await commit([gone], [Delete(entry.key) for entry in entries]), Conflict):
                raise CorruptError(gone_key(pipeline_id), "the pipeline is marked as gone and is there")
    await commit([], [Delete(replay_key(pipeline_id)), Delete(gone_key(pipeline_id))])


async def sweep(store: Store, *, commit: Commit) -> int:
    """Finish every removal that was begun; how many there were."""
    marks = (await store.scan(GONE, prefix_end(GONE), limit=_PAGE)).entries
    for mark in marks:
        await clear(store, mark.key.removeprefix(GONE), commit=commit)
    return len(marks)
