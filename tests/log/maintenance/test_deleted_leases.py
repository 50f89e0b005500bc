"""Epochs and transfers of deleted topics go, and no name that is used again sees an epoch it has had."""

from tests.support.maintenance import MaintenanceWorld

from holdfast.kernel.keys import EPOCHS, TRANSFERS, holder_key, placed_resource
from holdfast.kernel.lease import Lease, release
from holdfast.kernel.transfer import offer_transfer
from holdfast.log.maintenance import SWEEPER, forget_leases
from holdfast.log.topics import Topics

PARTITIONS = 45  # more than one commit takes


def topics(world: MaintenanceWorld) -> Topics:
    return Topics(world.memory, clock=world.clock, random=world.random)


async def given_back(world: MaintenanceWorld, lease: Lease) -> None:
    await release(world.memory, lease, clock=world.clock, random=world.random)


async def led_once(world: MaintenanceWorld, topic: str, partitions: int = PARTITIONS) -> int:
    """Every partition of the topic was led, offered to somebody else, and given up; the highest epoch."""
    highest = 0
    for number in range(partitions):
        lease = await world.lease(placed_resource(topic, number))
        await offer_transfer(world.memory, lease, target="bob", latest=None, clock=world.clock, random=world.random)
        highest = max(highest, lease.epoch)
        await given_back(world, lease)
    return highest


async def forgotten(world: MaintenanceWorld) -> int:
    return await forget_leases(await world.lease(SWEEPER), world.context())


async def lease_keys(world: MaintenanceWorld, topic: str) -> list[str]:
    return [*await world.keys(f"{EPOCHS}partition/{topic}/"), *await world.keys(f"{TRANSFERS}partition/{topic}/")]


async def test_epochs_and_transfers_of_a_deleted_topic_go(world: MaintenanceWorld) -> None:
    for name in ("orders", "orders-2"):
        await topics(world).create(name, PARTITIONS)
        await led_once(world, name)
    assert await forgotten(world) == 0
    await topics(world).delete("orders")
    assert await forgotten(world) == PARTITIONS
    assert await lease_keys(world, "orders") == []
    assert len(await lease_keys(world, "orders-2")) == 2 * PARTITIONS


async def test_a_topic_of_the_same_name_never_sees_an_epoch_that_its_name_has_had(world: MaintenanceWorld) -> None:
    highest = 0
    for _ in range(4):
        await topics(world).create("orders", 2)
        for _ in range(3):
            lease = await world.lease(placed_resource("orders", 0))
            assert lease.epoch > highest
            highest = lease.epoch
            await given_back(world, lease)
        await topics(world).delete("orders")
        await forgotten(world)
        assert await lease_keys(world, "orders") == []


async def test_what_is_still_held_stays_until_it_is_given_up(world: MaintenanceWorld) -> None:
    await topics(world).create("orders", 1)
    lease = await world.lease(placed_resource("orders", 0))
    await topics(world).delete("orders")
    assert await forgotten(world) == 0
    assert await world.memory.get(holder_key(lease.resource)) is not None
    await given_back(world, lease)
    assert await forgotten(world) == 1


async def test_a_name_that_is_taken_again_while_its_epochs_are_removed_keeps_them(world: MaintenanceWorld) -> None:
    await topics(world).create("orders", 1)
    highest = await led_once(world, "orders", 1)
    await topics(world).delete("orders")
    lease, get = await world.lease(SWEEPER), world.store.get

    async def get_late(key: str) -> object:
        found = await get(key)
        if key == holder_key(placed_resource("orders", 0)):  # looked up right before the commit
            await topics(world).create("orders", 1)
        return found

    world.store.get = get_late  # type: ignore[method-assign, assignment]
    assert await forget_leases(lease, world.context()) == 0
    assert (await world.lease(placed_resource("orders", 0))).epoch == highest + 1


async def test_leases_that_are_not_of_topics_are_left_alone(world: MaintenanceWorld) -> None:
    for resource in (placed_resource("~groups", 3), "planner", "slot/1/2"):
        await given_back(world, await world.lease(resource))
    before = await world.keys(EPOCHS)
    assert await forgotten(world) == 0
    assert set(before) <= set(await world.keys(EPOCHS))
