"""From keys to partitions, on every engine: what a strategy names must be what the registry has."""

from collections import Counter

import pytest
from tests.support.registry import RegistryWorld

from holdfast.registry import ModuloPartitioner, Murmur2Partitioner, Partitioner, RegistryStore, SimpleConsumer
from holdfast.vocabulary.errors import InvalidError

STRATEGIES: tuple[Partitioner, ...] = (ModuloPartitioner(), Murmur2Partitioner())


async def test_every_key_belongs_to_a_partition_of_the_registry(registry: RegistryStore) -> None:
    known = {each.id for each in await registry.partitions()}
    for strategy in STRATEGIES:
        for key in ("", "a", "account-1", "ключ", "鍵", "🔑", "polygenelubricants", "x" * 10_000):
            assert strategy.partition(key, 8) in known


async def test_the_same_key_always_has_the_same_partition(world: RegistryWorld, registry: RegistryStore) -> None:
    """Also for a consumer elsewhere: it finds the message where the producer's registry says."""
    sent = world.producer.send("account-42", b"1")
    again = world.producer.send("account-42", b"2")
    assert (again.partition, again.offset) == (sent.partition, 1)
    assert await registry.claim(sent.partition, "A", 0)
    elsewhere = world.registry()
    owner = await elsewhere.partition(ModuloPartitioner().partition("account-42", elsewhere.settings.partitions))
    assert owner is not None
    assert owner.owner == "A"


async def test_1000_keys_spread_over_8_partitions(world: RegistryWorld, registry: RegistryStore) -> None:
    for strategy in STRATEGIES:
        spread = Counter(strategy.partition(f"key-{number}", 8) for number in range(1000))
        assert len(spread) == 8
        assert min(spread.values()) > 31  # a quarter of an even share
    coordinator, handler = world.coordinator(registry), SimpleConsumer()
    async with world.engine(registry, "A", handler).running() as engine:
        await coordinator.add_consumer(engine)
        await coordinator.tick()
        for number in range(200):
            world.producer.send(f"key-{number}", b"")
        await world.until_view(registry, lambda view: sum(each.checkpoint for each in view.partitions.values()) == 200)
    expected = Counter(ModuloPartitioner().partition(f"key-{number}", 8) for number in range(200))
    assert handler.processed == expected
    assert {each.id: each.checkpoint for each in await registry.partitions()} == dict(expected)


async def test_one_partition_takes_every_key(world: RegistryWorld) -> None:
    registry = await world.initialized(namespace="one", partitions=1)
    for strategy in STRATEGIES:
        assert {strategy.partition(f"key-{number}", 1) for number in range(100)} == {0}
    assert [each.id for each in await registry.partitions()] == [0]


async def test_every_count_from_1_to_100_keeps_its_range(world: RegistryWorld) -> None:
    for count in range(1, 101):
        for strategy in STRATEGIES:
            assert all(0 <= strategy.partition(f"key-{number}", count) < count for number in range(50))
    for count in (1, 7, 50, 51, 100):
        registry = await world.initialized(namespace=f"n{count}", partitions=count)
        known = {each.id for each in await registry.partitions()}
        assert known == set(range(count))
        assert {ModuloPartitioner().partition(f"key-{number}", count) for number in range(2_000)} == known


def test_modulo_is_javas_remainder() -> None:
    # "polygenelubricants".hashCode() is Integer.MIN_VALUE, which has no positive counterpart
    assert ModuloPartitioner().partition("polygenelubricants", 7) == 2
    assert ModuloPartitioner().partition("polygenelubricants", 8) == 0
    assert ModuloPartitioner().partition("a", 8) == 97 % 8
    spread = Counter(ModuloPartitioner().partition(f"account-{number}", 8) for number in range(100))
    assert [spread[number] for number in range(8)] == [14, 13, 12, 12, 12, 12, 12, 13]


def test_no_partitions_is_refused() -> None:
    for strategy in STRATEGIES:
        with pytest.raises(InvalidError, match="partitions"):
            strategy.partition("a", 0)
