"""Maintenance reads the store page by page, on every engine."""

import msgspec
import pytest

from holdfast.contracts.store import Put, Store
from holdfast.kernel.keys import EPOCHS, placed_resource
from holdfast.kernel.lease import Lease, acquire, release
from holdfast.kernel.objects_owner import claim_objects
from holdfast.log.keys import deletion_mark_key
from holdfast.log.maintenance import (
    SWEEPER,
    MaintenanceContext,
    MaintenanceSettings,
    deleted_topics,
    expire_deletion_marks,
    forget_leases,
    orphan_sweeper,
    trash,
)
from holdfast.log.maintenance.orphan_sweeper import DeletionMark
from holdfast.log.maintenance.trash import in_trash, to_trash
from holdfast.log.settings import LogSettings
from holdfast.objects.memory import MemoryObjects
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

CLOCK, RANDOM = RealClock(), SystemRandom()


async def taken(store: Store, resource: str) -> Lease:
    session = await store.open_session(30_000)
    lease = await acquire(store, resource, holder="ann", session=session.id, clock=CLOCK, random=RANDOM)
    assert isinstance(lease, Lease)
    return lease


async def test_everything_that_is_read_in_pages_is_found(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (deleted_topics, orphan_sweeper, trash):
        monkeypatch.setattr(module, "_PAGE", 2)
    objects = MemoryObjects(clock=CLOCK)
    owner = await claim_objects(store, objects, clock=CLOCK, random=RANDOM)
    await owner.raise_mark(unproven_keep_ms=1)
    context = MaintenanceContext(
        store=store,
        objects=objects,
        owner=owner,
        clock=CLOCK,
        random=RANDOM,
        log=LogSettings(),
        settings=MaintenanceSettings(),
    )
    keys = [f"{owner.prefix}segments/t/0/{n}" for n in range(5)]
    mark = msgspec.json.encode(DeletionMark(at_ms=1, claims={"t": [(0, 1)]}))
    for key in keys:
        await store.commit(apply=[to_trash(key, 1), Put(deletion_mark_key(key), mark)])
    for number in range(5):
        lease = await taken(store, placed_resource("gone", number))
        await release(store, lease, clock=CLOCK, random=RANDOM)
    sweeper = await taken(store, SWEEPER)
    assert await in_trash(dict.fromkeys([*keys, "another"], ()), context) == set(keys)
    assert await expire_deletion_marks(sweeper, context) == 5
    assert await forget_leases(sweeper, context) == 5
    assert (await store.scan(f"{EPOCHS}partition/", f"{EPOCHS}partition0")).entries == ()
