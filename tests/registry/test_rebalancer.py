"""Fair share over a real registry, on every engine: rebalancing, reclamation, and checkpoints that stay."""

import asyncio

import pytest
from tests.support.registry import RegistryWorld

from holdfast.registry import Rebalancer, RegistryStore


async def owners(registry: RegistryStore) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = {}
    for each in await registry.partitions():
        found.setdefault(each.owner, []).append(each.id)
    return found


@pytest.fixture
async def contiguous(world: RegistryWorld) -> Rebalancer:
    return Rebalancer(await world.initialized(plan="contiguous"))


@pytest.fixture
async def sticky(world: RegistryWorld) -> Rebalancer:
    return Rebalancer(await world.initialized())


async def join(rebalancer: Rebalancer, *consumers: str) -> None:
    for consumer in consumers:
        await rebalancer.registry.register(consumer)


# --- PXRS's twelve


async def test_one_consumer_gets_everything(contiguous: Rebalancer) -> None:
    assert contiguous.fair_share(["A"]) == {"A": (0, 1, 2, 3, 4, 5, 6, 7)}
    await join(contiguous, "A")
    await contiguous.rebalance()
    assert await owners(contiguous.registry) == {"A": list(range(8))}


async def test_an_even_split(contiguous: Rebalancer) -> None:
    assert contiguous.fair_share(["A", "B"]) == {"A": (0, 1, 2, 3), "B": (4, 5, 6, 7)}
    await join(contiguous, "B", "A")
    await contiguous.rebalance()
    assert await owners(contiguous.registry) == {"A": [0, 1, 2, 3], "B": [4, 5, 6, 7]}


async def test_an_uneven_split_is_3_3_2(contiguous: Rebalancer) -> None:
    assert contiguous.fair_share(["C", "A", "B"]) == {"A": (0, 1, 2), "B": (3, 4, 5), "C": (6, 7)}


async def test_of_ten_consumers_eight_get_one_partition(contiguous: Rebalancer) -> None:
    names = [f"c{number}" for number in range(10)]
    share = contiguous.fair_share(names)
    assert sorted(len(pieces) for pieces in share.values()) == [0, 0, 1, 1, 1, 1, 1, 1, 1, 1]
    await join(contiguous, *names)
    await contiguous.rebalance()
    assert sorted(map(len, (await owners(contiguous.registry)).values())) == [1] * 8


async def test_all_partitions_are_covered_once(contiguous: Rebalancer) -> None:
    for count in range(1, 12):
        share = contiguous.fair_share([f"c{number}" for number in range(count)])
        assert sorted(piece for pieces in share.values() for piece in pieces) == list(range(8))


async def test_without_consumers_nothing_happens(contiguous: Rebalancer) -> None:
    assert contiguous.fair_share([]) == {}
    assert await contiguous.rebalance() == ()
    assert await owners(contiguous.registry) == {None: list(range(8))}


async def test_the_first_rebalance_assigns_everything_at_epoch_1(sticky: Rebalancer) -> None:
    await join(sticky, "A", "B")
    assert len(await sticky.rebalance()) == 8
    assert await owners(sticky.registry) == {"A": [0, 1, 2, 3], "B": [4, 5, 6, 7]}
    assert {each.epoch for each in await sticky.registry.partitions()} == {1}


async def test_when_a_consumer_leaves_the_others_get_its_partitions(sticky: Rebalancer) -> None:
    await join(sticky, "A", "B")
    await sticky.rebalance()
    await sticky.registry.release_all("A")
    await sticky.registry.deregister("A")
    await sticky.rebalance()
    assert await owners(sticky.registry) == {"B": list(range(8))}
    assert [each.epoch for each in await sticky.registry.partitions()] == [3, 3, 3, 3, 1, 1, 1, 1]


async def test_when_a_consumer_joins_it_gets_its_share(contiguous: Rebalancer) -> None:
    await join(contiguous, "A")
    await contiguous.rebalance()
    await join(contiguous, "B")
    moves = await contiguous.rebalance()
    assert [(move.partition, move.source, move.target) for move in moves] == [(n, "A", "B") for n in range(4, 8)]
    assert [each.epoch for each in await contiguous.registry.partitions()] == [1, 1, 1, 1, 3, 3, 3, 3]


async def test_three_consumers_and_one_leaves(contiguous: Rebalancer) -> None:
    await join(contiguous, "A", "B", "C")
    await contiguous.rebalance()
    assert await owners(contiguous.registry) == {"A": [0, 1, 2], "B": [3, 4, 5], "C": [6, 7]}
    await contiguous.registry.deregister("A")
    assert [each.id for each in await contiguous.reclaim_expired()] == [0, 1, 2]
    await contiguous.rebalance()
    assert await owners(contiguous.registry) == {"B": [0, 1, 2, 3], "C": [4, 5, 6, 7]}
    assert [each.epoch for each in await contiguous.registry.partitions()] == [3, 3, 3, 1, 3, 3, 1, 1]


async def test_a_dead_consumers_partitions_are_reclaimed(sticky: Rebalancer) -> None:
    await join(sticky, "A", "B")
    await sticky.rebalance()
    await sticky.registry.deregister("A")
    reclaimed = await sticky.reclaim_expired()
    assert [(each.id, each.owner, each.epoch) for each in reclaimed] == [(number, "A", 1) for number in range(4)]
    assert await owners(sticky.registry) == {None: [0, 1, 2, 3], "B": [4, 5, 6, 7]}
    assert await sticky.reclaim_expired() == ()


async def test_checkpoints_survive_a_rebalance(sticky: Rebalancer) -> None:
    await join(sticky, "A")
    await sticky.rebalance()
    for number in range(8):
        await sticky.registry.update_checkpoint(number, "A", 100 + number, 1)
    await join(sticky, "B", "C")
    await sticky.rebalance()
    assert sorted(map(len, (await owners(sticky.registry)).values())) == [2, 3, 3]
    assert [each.checkpoint for each in await sticky.registry.partitions()] == [100 + number for number in range(8)]


# --- what PXRS left open


async def test_sticky_moves_only_the_partitions_of_who_left(sticky: Rebalancer) -> None:
    await join(sticky, "A", "B", "C")
    await sticky.rebalance()
    before = await owners(sticky.registry)
    await sticky.registry.deregister("A")
    await sticky.reclaim_expired()
    moves = await sticky.rebalance()
    assert [move.partition for move in moves] == [0, 1, 2]
    after = await owners(sticky.registry)
    assert set(before["B"]) < set(after["B"])
    assert set(before["C"]) < set(after["C"])


async def test_a_balanced_registry_is_left_alone(sticky: Rebalancer) -> None:
    await join(sticky, "A", "B", "C")
    await sticky.rebalance()
    version = (await sticky.registry.snapshot()).version
    assert await sticky.rebalance() == ()
    assert await sticky.reclaim_expired() == ()
    assert (await sticky.registry.snapshot()).version == version


async def test_a_partition_whose_owner_failed_goes_to_another(sticky: Rebalancer) -> None:
    await join(sticky, "A", "B")
    await sticky.rebalance()
    await sticky.registry.expire_claim(1, 1)
    reclaimed = await sticky.reclaim_expired()
    await sticky.rebalance(reclaimed=reclaimed)
    after = await owners(sticky.registry)
    assert 1 in after["B"]
    assert {0, 2, 3} < set(after["A"])
    assert len(after["A"]) == len(after["B"]) == 4


async def test_managers_that_race_give_every_partition_one_owner(world: RegistryWorld, sticky: Rebalancer) -> None:
    await join(sticky, "A", "B", "C")
    async with world.harness.client() as other:
        rivals = [sticky, Rebalancer(world.registry(other)), Rebalancer(world.registry())]
        for leaver in (None, "B"):
            if leaver is not None:
                await sticky.registry.deregister(leaver)
            await asyncio.gather(*(each.reclaim_expired() for each in rivals))
            await asyncio.gather(*(each.rebalance() for each in rivals))
            await sticky.rebalance()
            view = await sticky.registry.snapshot()
            assert view.unowned() == ()
            assert all(view.heartbeats[number].epoch == each.epoch for number, each in view.partitions.items())
            sizes = sorted(len(view.owned_by(each)) for each in view.consumers)
            assert sizes == ([2, 3, 3] if leaver is None else [4, 4])
            assert await sticky.rebalance() == ()
