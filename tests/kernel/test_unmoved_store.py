"""What a gateway asks of a store whose cluster may have moved."""

from holdfast.agent.administration import ClusterAdministration
from holdfast.contracts.key_reads import read_keys
from holdfast.contracts.store import Put
from holdfast.contracts.validation import StoreLimits
from holdfast.kernel.unmoved_store import UnmovedStore
from holdfast.log.topics import Topics
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SeededRandom


async def test_the_partitions_of_a_topic_with_a_hundred_are_listed() -> None:
    clock, random = RealClock(), SeededRandom(1)
    store = UnmovedStore(MemoryStore(clock=clock, random=random, limits=StoreLimits()))
    await Topics(store, clock=clock, random=random).create("orders", 100, {})
    listed = await ClusterAdministration(store, clock=clock, random=random).partitions("orders")
    assert len(listed) == 100


async def test_as_many_keys_are_read_as_a_commit_may_have() -> None:
    clock, random = RealClock(), SeededRandom(1)
    store = UnmovedStore(MemoryStore(clock=clock, random=random, limits=StoreLimits()))
    await store.commit(apply=[Put("a/7", b"1")])
    assert set(await read_keys(store, [f"a/{n}" for n in range(StoreLimits().ops_max)])) == {"a/7"}
