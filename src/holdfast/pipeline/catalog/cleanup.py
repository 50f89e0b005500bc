"""Removal of revisions that are no longer needed, and of the keys of deleted pipelines.

The one rule: a marker in the store is written before anything of a deleted pipeline is removed, and removed last. Any process
finishes what a dead one began; removal is idempotent.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from holdfast.contracts.store import Absent, Committed, Conflict, Delete, Entry, Operation, Requirement, Store
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.keys import EPOCHS, HOLDERS
from holdfast.pipeline.catalog.keys import (
    DELETED,
    deleted_key,
    parts_prefix,
    pipeline_key,
    replay_key,
    revisions_prefix,
    status_prefix,
)
from holdfast.pipeline.catalog.stored_parts import ReplayRecord, read_replay
from holdfast.pipeline.model.definition import (
    PIPELINE_REGISTRY,
    Pipeline,
    RangeIntent,
    active_generations,
    slot_resource,
)
from holdfast.registry.queries import clear_abandoned, deletions, live_owners, partitions_by_namespace, streams_of
from holdfast.vocabulary.errors import CorruptError

Commit = Callable[[Sequence[Requirement], Sequence[Operation]], Awaitable[Committed | Conflict]]

_DELETES_MAX = 90  # a commit takes a hundred operations
_PAGE = 500


def _registries(pipeline_id: str) -> str:
    """The prefix of the registry namespaces of all generations, see `registry_namespace`."""
    return f"{PIPELINE_REGISTRY}{pipeline_id}-"


def _slots(pipeline_id: str) -> str:
    return slot_resource(pipeline_id, 0).rpartition("/")[0] + "/"


async def active_owners(store: Store, pipeline_id: str) -> tuple[str, ...]:
    """Slots and partitions of a pipeline that are still owned, as reasons; empty if none."""
    holders = HOLDERS + _slots(pipeline_id)
    slots = [entry.key.rpartition("/")[2] for entry in (await store.scan(holders, prefix_end(holders))).entries]
    owners = await live_owners(store, _registries(pipeline_id))
    found = [f"slot {slot} is still held by a worker" for slot in slots]
    return (*found, *(f"partitions are still owned by {owner}" for owner in owners))


async def prune_revisions(store: Store, pipeline: Pipeline, *, kept: int, commit: Commit) -> None:
    """Remove all revisions but the newest `kept` and those that an unfinished range or replay needs."""
    prefix = revisions_prefix(pipeline.id)
    if pipeline.revision <= kept:
        return
    entries = (await store.scan(prefix, f"{prefix}{pipeline.revision - kept + 1:08d}")).entries
    if not entries:
        return
    needed = {
        msgspec.json.decode(state.intent, type=RangeIntent).revision
        for states in (await partitions_by_namespace(store, _registries(pipeline.id))).values()
        for state in states
        if state.intent is not None
    }
    needed.add(await _replay_revision(store, pipeline.id))
    needed |= {_begun_revision(entry) for entry in await streams_of(store, _registries(pipeline.id))}
    gone = [Delete(entry.key) for entry in entries if int(entry.key.rpartition("/")[2]) not in needed]
    for at in range(0, len(gone), _DELETES_MAX):
        await commit([], gone[at : at + _DELETES_MAX])


class _BegunBatch(msgspec.Struct, frozen=True):
    recipe: int = 0


class _StreamOfRevision(msgspec.Struct, frozen=True):
    intent: _BegunBatch | None = None


def _begun_revision(entry: Entry) -> int:
    """The revision of the batch that a query has begun; 0: none."""
    try:
        begun = msgspec.json.decode(entry.value, type=_StreamOfRevision).intent
    except msgspec.MsgspecError as error:
        raise CorruptError(entry.key, str(error)) from None
    return 0 if begun is None else begun.recipe


async def _replay_revision(store: Store, pipeline_id: str) -> int:
    """The revision of the replay under way; 0: none."""
    entry = await store.get(replay_key(pipeline_id))
    record = ReplayRecord() if entry is None else read_replay(entry)
    return 0 if record.pending is None else record.pending.revision


async def clear_retired(store: Store, pipeline: Pipeline, *, commit: Commit) -> None:
    """Adopt what the owners of retired generations left behind when they died: their claims, and intents that nobody finishes
    and that would hold back retention for ever. Of generations that the pipeline does not list any more, the keys are removed.

    `pipeline` may be outdated: a generation that is newer than all it knows is not touched, and no retired one comes back.
    """
    known = {each.number for each in pipeline.generations}
    active = {each.number for each in active_generations(pipeline)}
    for namespace in await partitions_by_namespace(store, _registries(pipeline.id)):
        number = int(namespace.rpartition("-")[2])
        if number in active or number > max(known):
            continue
        clear = await clear_abandoned(store, namespace, commit=commit)
        while clear and number not in known and (batch := await deletions(store, f"{namespace}/", limit=_DELETES_MAX)):
            await commit([], batch)


async def delete_keys(store: Store, pipeline_id: str, *, commit: Commit) -> None:
    """Remove the keys of a deleted pipeline, then its marker."""
    gone = Absent(pipeline_key(pipeline_id))

    async def delete(batch: Sequence[Delete]) -> None:
        if isinstance(await commit([gone], batch), Conflict):
            raise CorruptError(deleted_key(pipeline_id), "the pipeline is marked as deleted and exists")

    for prefix in (parts_prefix(pipeline_id), revisions_prefix(pipeline_id), status_prefix(pipeline_id)):
        while batch := await _deletions(store, prefix):
            await delete(batch)
    while batch := await deletions(store, _registries(pipeline_id), limit=_DELETES_MAX):
        await delete(batch)
    while batch := await _deletions(store, EPOCHS + _slots(pipeline_id)):
        await delete(batch)
    await commit([], [Delete(replay_key(pipeline_id)), Delete(deleted_key(pipeline_id))])


async def _deletions(store: Store, prefix: str) -> list[Delete]:
    return [Delete(entry.key) for entry in (await store.scan(prefix, prefix_end(prefix), limit=_DELETES_MAX)).entries]


async def sweep(store: Store, *, commit: Commit) -> int:
    """Finish every deletion that was begun; how many there were."""
    marks = (await store.scan(DELETED, prefix_end(DELETED), limit=_PAGE)).entries
    for mark in marks:
        await delete_keys(store, mark.key.removeprefix(DELETED), commit=commit)
    return len(marks)
