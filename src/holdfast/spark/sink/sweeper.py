"""Deletes staged objects that no plan refers to: left by failed attempts, or by a driver that died before it cleaned up.

The one rule (docs/safety.md, rule 13, as for segments): deletion cannot race planning. First a commit moves the sweep mark: no plan
may refer to anything staged before that hour, and every plan requires the mark as its planner read it. Then the plans are read, and
what they refer to is kept.

An unnamed write that was not finished within the grace period never will be: its driver has stopped, and no other process can
continue it.
"""

from typing import Final

import msgspec

from holdfast.contracts.objects import Missing, Objects
from holdfast.contracts.store import Committed, Delete, Put, Store
from holdfast.contracts.validation import next_key, prefix_end
from holdfast.kernel.objects_owner import ObjectsOwner
from holdfast.spark.sink.pieces import HOUR_MS, STAGED_PREFIX, hour_in, hour_of, unpack
from holdfast.spark.sink.query_state import (
    QUERY_PREFIX,
    SWEEP_MARK_KEY,
    UNNAMED_WRITE_PREFIX,
    SweepMark,
    decode_piece_list,
    decode_query_state,
    decode_sweep_mark,
    unchanged,
)
from holdfast.vocabulary.clock import Clock

GRACE_MS: Final = 48 * HOUR_MS
"""The minimum age of a deleted object: longer than any batch takes."""
_PAGE: Final = 500


async def sweep_if_due(
    *,
    store: Store,
    objects: Objects,
    owner: ObjectsOwner,
    clock: Clock,
    grace_ms: int = GRACE_MS,
    interval_ms: int = HOUR_MS,
) -> int:
    """Sweep unless another process did within the interval; the number of objects deleted. `NotOwnerError`: they are not ours."""
    entry = await store.get(SWEEP_MARK_KEY)
    swept, now_ms = decode_sweep_mark(entry), clock.now_ms()
    if swept.at_ms <= now_ms < swept.at_ms + interval_ms:
        return 0
    await owner.check()
    # Never backwards: a wall clock that stepped back must not allow plans that others rely on being refused.
    before_hour = max(swept.before_hour, hour_of(now_ms - grace_ms))
    mark = msgspec.json.encode(SweepMark(before_hour, now_ms))
    outcome = await store.commit(require=[unchanged(SWEEP_MARK_KEY, entry)], apply=[Put(SWEEP_MARK_KEY, mark)])
    if not isinstance(outcome, Committed):
        return 0  # another process is sweeping
    return await _delete_unreferenced(
        before_hour, await _referenced_objects(store, objects, now_ms - grace_ms), objects, owner
    )


async def _referenced_objects(store: Store, objects: Objects, unnamed_before_ms: int) -> set[str]:
    """Every object that a plan refers to. The states of unnamed writes from before `unnamed_before_ms` are deleted."""
    referenced: set[str] = set()
    start, end = QUERY_PREFIX, prefix_end(QUERY_PREFIX)
    while True:
        page = await store.scan(start, end, limit=_PAGE)
        for entry in page.entries:
            state = decode_query_state(entry)
            if entry.key.startswith(QUERY_PREFIX + UNNAMED_WRITE_PREFIX) and state.changed_at_ms < unnamed_before_ms:
                deleted = await store.commit(require=[unchanged(entry.key, entry)], apply=[Delete(entry.key)])
                if isinstance(deleted, Committed):
                    continue
            plan = state.plan
            if plan is None:
                continue
            if plan.list_key:
                referenced.add(plan.list_key)
                packed = await objects.get(plan.list_key)
                referenced.update(() if isinstance(packed, Missing) else unpack(bytes(packed)).keys)
            else:
                referenced.update(decode_piece_list(plan.listed).keys)
        if not page.more:
            return referenced
        start = next_key(page.entries[-1].key)


async def _delete_unreferenced(hour: int, referenced: set[str], objects: Objects, owner: ObjectsOwner) -> int:
    deleted = 0
    unreferenced: list[str] = []
    async for info in objects.list(owner.prefix + STAGED_PREFIX):
        if hour_in(info.key) >= hour:
            break  # keys are in the order of their hours
        if info.key not in referenced:
            unreferenced.append(info.key)
        if len(unreferenced) == _PAGE:
            await owner.delete(unreferenced)
            deleted, unreferenced = deleted + len(unreferenced), []
    await owner.delete(unreferenced)
    return deleted + len(unreferenced)
