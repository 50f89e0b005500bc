"""A worker's slots when its mirrors lag behind what it did itself."""

from collections.abc import AsyncIterator
from typing import cast

import pytest

from holdfast.kernel.keys import holder_key
from holdfast.kernel.lease import Held, Lease, read_holder
from holdfast.kernel.session import HeldSession, SessionSettings
from holdfast.pipeline.catalog.worker_status import WorkerRecord
from holdfast.pipeline.workers.cluster_view import WorkerClusterView
from holdfast.pipeline.workers.held_slots import HeldSlots
from holdfast.pipeline.workers.settings import WorkerSettings
from holdfast.pipeline.workers.slot_assignment import SlotId
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.random import SeededRandom

SLOT = SlotId("p", 0)


class Shown:
    """A view that shows what a test sets."""

    def __init__(self) -> None:
        self.held: dict[SlotId, Held] = {}

    def holders(self) -> dict[SlotId, Held]:
        return self.held

    def name_of(self, pipeline_id: str) -> str:
        return "orders"

    def workers(self) -> dict[str, WorkerRecord]:
        return {}


class Office:
    def __init__(self, store: MemoryStore, clock: FakeClock, session: HeldSession) -> None:
        self.store, self.shown = store, Shown()
        self.slots = HeldSlots(
            store,
            worker_id="ann",
            session=session,
            view=cast(WorkerClusterView, self.shown),
            settings=WorkerSettings(),
            clock=clock,
            random=SeededRandom(3),
        )

    async def look(self) -> None:
        entry = await self.store.get(holder_key("slot/p/0"))
        self.shown.held = {} if entry is None else {SLOT: read_holder(entry)}

    async def release(self) -> None:
        self.slots.leave(SLOT, "a test asks for it")
        await self.slots.release(busy=())


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    clock = FakeClock()
    async with MemoryStore.open(clock=clock, random=SeededRandom(1)) as store:
        opened = await store.open_session(600_000)
        session = HeldSession(opened.id, opened.ttl_ms, opened_ms=0, clock=clock, settings=SessionSettings())
        yield Office(store, clock, session)


async def test_a_released_slot_does_not_come_back_from_a_mirror_that_lags(office: Office) -> None:
    await office.slots.assign({"p": 1}, able=True)
    await office.look()
    await office.release()
    await office.slots.assign({"p": 0}, able=True)
    assert office.slots.held == {}
    assert office.slots.held_by_others() == {}
    await office.slots.assign({"p": 1}, able=True)
    lease = office.slots.held[SLOT]
    assert lease is not None
    assert lease.epoch == 2, "acquired again, not adopted"


async def test_a_lease_whose_response_was_lost_is_adopted_with_its_fence(office: Office) -> None:
    await office.slots.assign({"p": 1}, able=True)
    taken = office.slots.held.pop(SLOT)
    await office.look()
    await office.slots.assign({"p": 1}, able=True)
    assert office.slots.held == {SLOT: taken}
    assert isinstance(taken, Lease)


async def test_a_slot_just_taken_is_held_although_no_mirror_shows_it(office: Office) -> None:
    await office.slots.assign({"p": 1}, able=True)
    await office.slots.assign({"p": 1}, able=True)
    assert [lease.epoch for lease in office.slots.held.values() if lease] == [1]


async def test_a_slot_counts_as_moving_for_a_while_after_its_release(office: Office) -> None:
    await office.slots.assign({"p": 1}, able=True)
    assert not office.slots.is_moving(SlotId("p", 1)), "one that nobody ever held"
    await office.release()
    assert office.slots.is_moving(SLOT)
    cast(FakeClock, office.slots._clock).advance_ms(WorkerSettings().settle_ms)
    assert not office.slots.is_moving(SLOT)
