"""Several keys are read in one call."""

from holdfast.contracts.key_reads import read_keys
from holdfast.contracts.store import Put
from holdfast.contracts.validation import StoreLimits
from holdfast.stores.memory import MemoryStore
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SeededRandom


async def test_a_hundred_keys_are_read_in_one_call_and_those_that_do_not_exist_are_left_out() -> None:
    clock, random = RealClock(), SeededRandom(3)
    store = FaultyStore(MemoryStore(clock=clock, random=random, limits=StoreLimits()), random=random)
    for number in range(0, 250, 2):
        await store.commit(apply=(Put(f"k/{number:03d}", b"%d" % number),))
    store.calls.clear()
    found = await read_keys(store, [f"k/{number:03d}" for number in range(250)])
    assert {key: entry.value for key, entry in found.items()} == {f"k/{n:03d}": b"%d" % n for n in range(0, 250, 2)}
    assert store.calls == {"commit": 3}
    assert await read_keys(store, []) == {}
    assert await read_keys(store, ["k/001"]) == {}
