"""Staged objects that no plan names: left by attempts that failed, or by a driver that died before it cleaned up.

The one rule (SAFETY 13, as for segments): deletion cannot race planning. First a commit says that nothing staged before an hour may
be named any more; every plan requires that commit as its planner saw it. Then the plans are read: what they name is spared.

A write without a name that was not finished within the grace never will be: its driver has stopped, and nobody else can ask for it.
"""

from typing import Final

import msgspec

from holdfast.contracts.objects import Missing, Objects
from holdfast.contracts.store import Committed, Delete, Put, Store
from holdfast.contracts.validation import prefix_end
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
"""So old must a staged object be: longer than any batch takes."""
_PAGE: Final = 500


async def sweep_if_due(
    *, store: Store, objects: Objects, clock: Clock, grace_ms: int = GRACE_MS, interval_ms: int = HOUR_MS
) -> int:
    """Sweep unless somebody did within the interval; the number of objects deleted."""
    entry = await store.get(SWEEP_MARK_KEY)
    swept, now_ms = decode_sweep_mark(entry), clock.now_ms()
    if swept.at_ms <= now_ms < swept.at_ms + interval_ms:
        return 0
    # Never back: a wall clock that stepped must not open a gate that others have seen shut.
    before_hour = max(swept.before_hour, hour_of(now_ms - grace_ms))
    mark = msgspec.json.encode(SweepMark(before_hour, now_ms))
    outcome = await store.commit(require=[unchanged(SWEEP_MARK_KEY, entry)], apply=[Put(SWEEP_MARK_KEY, mark)])
    if not isinstance(outcome, Committed):
        return 0  # somebody else sweeps
    return await _delete_unreferenced(
        before_hour, await _referenced_objects(store, objects, now_ms - grace_ms), objects
    )


async def _referenced_objects(store: Store, objects: Objects, once_before_ms: int) -> set[str]:
    """Every object that a plan under way names. Writes without a name from before `once_before_ms` are struck out."""
    named: set[str] = set()
    start, end = QUERY_PREFIX, prefix_end(QUERY_PREFIX)
    while True:
        page = await store.scan(start, end, limit=_PAGE)
        for entry in page.entries:
            ledger = decode_query_state(entry)
            if entry.key.startswith(QUERY_PREFIX + UNNAMED_WRITE_PREFIX) and ledger.changed_at_ms < once_before_ms:
                struck = await store.commit(require=[unchanged(entry.key, entry)], apply=[Delete(entry.key)])
                if isinstance(struck, Committed):
                    continue
            plan = ledger.plan
            if plan is None:
                continue
            if plan.list_key:
                named.add(plan.list_key)
                packed = await objects.get(plan.list_key)
                named.update(() if isinstance(packed, Missing) else unpack(bytes(packed)).keys)
            else:
                named.update(decode_piece_list(plan.listed).keys)
        if not page.more:
            return named
        start = page.entries[-1].key + "\0"


async def _delete_unreferenced(hour: int, named: set[str], objects: Objects) -> int:
    deleted = 0
    doomed: list[str] = []
    async for info in objects.list(STAGED_PREFIX):
        if hour_in(info.key) >= hour:
            break  # keys are in the order of their hours
        if info.key not in named:
            doomed.append(info.key)
        if len(doomed) == _PAGE:
            await objects.delete(doomed)
            deleted, doomed = deleted + len(doomed), []
    await objects.delete(doomed)
    return deleted + len(doomed)
