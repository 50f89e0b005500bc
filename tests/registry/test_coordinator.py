"""Push assignment, on every engine: the order of calls, no call for nothing, several coordinators at once."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from tests.support.registry import RecordingConsumer, RegistryWorld

from holdfast.registry import RegistryStore
from holdfast.vocabulary.errors import InvalidError

Calls = list[tuple[str, str, int, int]]


async def recorder(registry: RegistryStore, consumer: str, calls: Calls) -> RecordingConsumer:
    return RecordingConsumer(await registry.register(consumer), calls)


async def test_the_first_tick_assigns_with_epochs(world: RegistryWorld, registry: RegistryStore) -> None:
    calls: Calls = []
    coordinator = world.coordinator(registry)
    for name in ("A", "B"):
        await coordinator.add_consumer(await recorder(registry, name, calls))
    await coordinator.tick()
    assert calls == [("assign", "A" if number < 4 else "B", number, 1) for number in range(8)]


async def test_revoke_precedes_assign(world: RegistryWorld, registry: RegistryStore) -> None:
    calls: Calls = []
    coordinator = world.coordinator(registry)
    await coordinator.add_consumer(await recorder(registry, "B", calls))
    await coordinator.tick()
    calls.clear()
    await coordinator.add_consumer(await recorder(registry, "A", calls))  # sorts first, so its assigns could come first
    await coordinator.tick()
    assert [call[0] for call in calls] == ["revoke"] * 4 + ["assign"] * 4
    assert {call[2] for call in calls[:4]} == {call[2] for call in calls[4:]}
    assert {call[3] for call in calls[4:]} == {3}


async def test_a_leaving_partition_is_revoked_while_its_claim_still_holds(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    """So that the engine can checkpoint the message in its hands."""
    held: list[bool] = []

    class Asking(RecordingConsumer):
        async def revoke(self, assignment: object, *, lost: bool) -> None:
            partition, epoch = assignment.partition, assignment.epoch  # type: ignore[attr-defined]
            held.append(not lost and await registry.update_checkpoint(partition, self.consumer, 5, epoch))

    coordinator = world.coordinator(registry)
    await coordinator.add_consumer(Asking(await registry.register("A"), []))
    await coordinator.tick()
    await coordinator.add_consumer(await recorder(registry, "B", []))
    await coordinator.tick()
    assert held == [True] * 4
    assert [each.checkpoint for each in await registry.owned_by("B")] == [5] * 4


async def test_no_call_for_what_did_not_change(world: RegistryWorld, registry: RegistryStore) -> None:
    calls: Calls = []
    coordinator = world.coordinator(registry)
    for name in ("A", "B", "C"):
        await coordinator.add_consumer(await recorder(registry, name, calls))
    await coordinator.tick()
    calls.clear()
    for _ in range(3):
        assert await coordinator.tick() == ()
    assert calls == []
    await registry.deregister("C")
    await coordinator.tick()
    assert {call[2] for call in calls if call[0] == "assign"} == {6, 7}
    assert {call[:3] for call in calls if call[0] != "assign"} == {("lost", "C", 6), ("lost", "C", 7)}


async def test_a_partition_lost_and_won_back_is_revoked_and_assigned(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    calls: Calls = []
    coordinator = world.coordinator(registry)
    await coordinator.add_consumer(await recorder(registry, "A", calls))
    await coordinator.tick()
    calls.clear()
    await registry.expire_claim(5, 1)
    await coordinator.tick()
    assert calls == [("lost", "A", 5, 1), ("assign", "A", 5, 3)]


async def test_a_removed_consumer_is_told_to_leave_and_called_no_more(
    world: RegistryWorld, registry: RegistryStore
) -> None:
    calls: Calls = []
    coordinator = world.coordinator(registry)
    ann, bob = await recorder(registry, "A", calls), await recorder(registry, "B", calls)
    await coordinator.add_consumer(ann)
    await coordinator.add_consumer(bob)
    await coordinator.tick()
    calls.clear()
    await coordinator.remove_consumer(ann)
    assert ann.left
    await registry.deregister("A")
    await coordinator.tick()
    assert calls == [("assign", "B", number, 3) for number in range(4)]
    await coordinator.remove_consumer(ann)


async def test_an_engine_that_was_replaced_gets_nothing(world: RegistryWorld, registry: RegistryStore) -> None:
    """Two processes with one consumer id: the later registration counts, wherever the coordinator is."""
    calls: Calls = []
    coordinator = world.coordinator(registry)
    await coordinator.add_consumer(await recorder(registry, "A", calls))
    await coordinator.tick()
    calls.clear()
    await registry.register("A")
    await coordinator.tick()
    assert calls == [("lost", "A", number, 1) for number in range(8)]
    calls.clear()
    await registry.release_all("A")
    assert len(await coordinator.tick()) == 8  # claimed, for the process that registered last
    assert calls == []


async def test_wrong_consumers_are_refused(world: RegistryWorld, registry: RegistryStore) -> None:
    coordinator = world.coordinator(registry)
    ann = await recorder(registry, "A", [])
    await coordinator.add_consumer(ann)
    with pytest.raises(InvalidError, match="must be new to this coordinator"):
        await coordinator.add_consumer(await recorder(registry, "A", []))
    ann.left = True
    with pytest.raises(InvalidError, match="running"):
        await coordinator.add_consumer(ann)


async def test_a_running_coordinator_acts_on_changes_without_waiting_for_its_interval(world: RegistryWorld) -> None:
    registry = await world.initialized(rebalance_interval_ms=3_600_000)
    async with world.coordinator(registry).running():
        await registry.register("A")
        await world.until_view(registry, lambda view: len(view.owned_by("A")) == 8)
        await registry.register("B")
        await world.until_view(registry, lambda view: len(view.owned_by("B")) == 4)
        await registry.deregister("A")
        await world.until_view(registry, lambda view: len(view.owned_by("B")) == 8)
        await registry.expire_claim(2, (await registry.partitions())[2].epoch)
        await world.until_view(registry, lambda view: len(view.heartbeats) == 8 and view.expired() == ())


async def test_the_interval_is_a_safety_net(world: RegistryWorld) -> None:
    registry = await world.initialized(rebalance_interval_ms=50)
    coordinator = world.coordinator(registry)
    coordinator._listen = asyncio.Event().wait  # type: ignore[method-assign,assignment]  # a watch that says nothing
    async with coordinator.running():
        await registry.register("A")
        await world.until_view(registry, lambda view: len(view.owned_by("A")) == 8)


async def test_checkpoints_do_not_wake_a_coordinator(world: RegistryWorld, registry: RegistryStore) -> None:
    ticks = 0
    coordinator = world.coordinator(registry)
    tick = coordinator.tick

    async def counted() -> tuple[object, ...]:
        nonlocal ticks
        ticks += 1
        return await tick()

    coordinator.tick = counted  # type: ignore[method-assign,assignment]
    await registry.register("A")
    async with coordinator.running():
        await world.until_view(registry, lambda view: len(view.owned_by("A")) == 8)
        before = ticks
        for offset in range(1, 40):
            await registry.update_checkpoint(0, "A", offset, 1)
        await registry.register("B")
        await world.until_view(registry, lambda view: len(view.owned_by("B")) == 4)
    assert ticks - before < 20  # its own claims and the new consumer wake it; forty checkpoints do not


async def test_several_running_coordinators_agree(world: RegistryWorld, registry: RegistryStore) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(3):
            client = await stack.enter_async_context(world.harness.client())
            await stack.enter_async_context(world.coordinator(world.registry(client)).running())
        for name in ("A", "B", "C"):
            await registry.register(name)
        await world.until_view(registry, lambda view: sorted(len(view.owned_by(c)) for c in "ABC") == [2, 3, 3])
        await registry.deregister("B")
        await world.until_view(
            registry, lambda view: [len(view.owned_by(c)) for c in "AC"] == [4, 4] and view.expired() == ()
        )


async def test_a_coordinator_survives_an_unreachable_store(world: RegistryWorld, registry: RegistryStore) -> None:
    async with world.harness.client() as other, world.coordinator(world.registry(other)).running():
        await registry.register("A")
        await world.until_view(registry, lambda view: len(view.owned_by("A")) == 8)
        await world.harness.set_reachable(False)
        await world.clock.sleep_ms(300)  # long enough for its tick to meet the outage
        await world.harness.set_reachable(True)
        await registry.register("B")
        await world.until_view(registry, lambda view: len(view.owned_by("B")) == 4)
