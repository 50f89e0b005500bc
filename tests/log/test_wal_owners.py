"""Who has a WAL open, and what its next owner may do about it."""

from holdfast.contracts.store import Committed, Put
from holdfast.contracts.validation import StoreLimits
from holdfast.log.keys import wal_key
from holdfast.log.replication.replica_wal import replica_id
from holdfast.log.wal_owners import close_previous_session, last_wal_agent, register_wal_owner
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import FakeClock
from holdfast.vocabulary.random import SeededRandom


async def test_the_next_owner_of_a_wal_ends_the_session_of_the_dead_one_and_no_other() -> None:
    clock, random = FakeClock(), SeededRandom(1)
    store = MemoryStore(clock=clock, random=random, limits=StoreLimits())
    dead, other = await store.open_session(30_000), await store.open_session(30_000)
    for wal_id, session in (("a", dead), ("b", other)):
        await register_wal_owner(store, wal_id, agent="ann", session=session.id, clock=clock, random=random)
        put = Put(f"lease/holder/partition/{wal_id}", b"{}", session.id)
        assert isinstance(await store.commit(require=(), apply=(put,)), Committed)
    await close_previous_session(store, "a")
    assert await store.get("lease/holder/partition/a") is None
    assert await store.get(wal_key("a")) is None
    assert not await store.keep_alive(dead.id)
    assert await store.keep_alive(other.id)
    assert await store.get("lease/holder/partition/b") is not None


async def test_a_wal_without_an_owner_has_no_previous_session() -> None:
    clock, random = FakeClock(), SeededRandom(1)
    store = MemoryStore(clock=clock, random=random, limits=StoreLimits())
    await close_previous_session(store, "a")


async def test_a_repaired_wal_is_known_by_the_name_of_its_replica_too() -> None:
    clock, random = FakeClock(), SeededRandom(1)
    store = MemoryStore(clock=clock, random=random, limits=StoreLimits())
    session = await store.open_session(30_000)
    await register_wal_owner(
        store, "a", agent="ann", session=session.id, clock=clock, random=random, replica=replica_id("a", 2)
    )
    assert [await last_wal_agent(store, name) for name in ("a", "a.2", "a.1")] == ["ann", "ann", None]
