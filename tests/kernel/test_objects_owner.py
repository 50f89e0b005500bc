"""The objects below a prefix belong to one cluster and one history of its store (docs/safety.md, rule 20)."""

import asyncio
import pickle
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from tests.support.maintenance import CrashError, crash_on

from holdfast.contracts.objects import ObjectInfo
from holdfast.contracts.store import Put, Store
from holdfast.contracts.validation import StoreLimits
from holdfast.kernel.cluster_identity import IDENTITY_KEY, read_cluster_identity
from holdfast.kernel.objects_owner import (
    ACTIVE_MS,
    MARKS,
    RECORD_KEY,
    SKEW_MS,
    ObjectsOwner,
    adopt_objects,
    claim_objects,
    owner_of,
    read_mark,
    verify_objects,
)
from holdfast.kernel.owner_mark import SPANS_MAX, NotOwnerError, Ownership, TimeSpan, merge_spans
from holdfast.objects.memory import MemoryObjects
from holdfast.stores.memory import MemoryStore
from holdfast.stores.urls import open_store
from holdfast.testing.faulty_objects import FaultyObjects
from holdfast.testing.faulty_store import FaultyStore
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.errors import UnavailableError, UsageError
from holdfast.vocabulary.random import SeededRandom, SystemRandom

DAY_MS = 86_400_000
KEEP_MS = 30 * DAY_MS


class Place:
    """One prefix of object storage, and stores that are used with it."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.clock, self.random = FakeClock(), SeededRandom(5)
        self.objects = MemoryObjects(clock=self.clock)
        self._stack = stack

    async def store(self) -> MemoryStore:
        opened = MemoryStore.open(clock=self.clock, random=self.random, limits=StoreLimits())
        return await self._stack.enter_async_context(opened)

    async def copy_of(self, store: Store) -> MemoryStore:
        """What a backup of the store, taken now, is restored to."""
        restored = await self.store()
        for entry in (await store.scan("", "\U0010ffff")).entries:
            await restored.commit(apply=[Put(entry.key, entry.value)])
        return restored

    async def claim(self, store: Store) -> ObjectsOwner:
        return await claim_objects(store, self.objects, clock=self.clock, random=self.random)

    async def verify(self, store: Store) -> ObjectsOwner:
        return await verify_objects(store, self.objects, clock=self.clock, random=self.random)

    async def adopt(self, store: Store, *, force: bool = False) -> None:
        await adopt_objects(store, self.objects, clock=self.clock, random=self.random, force=force)

    async def keys(self) -> list[str]:
        return [info.key async for info in self.objects.list("")]


@pytest_asyncio.fixture
async def place() -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        yield Place(stack)


async def raised(owner: ObjectsOwner) -> None:
    await owner.raise_mark(unproven_keep_ms=KEEP_MS)


async def test_a_second_store_is_refused_with_both_ids_and_what_to_do(place: Place) -> None:
    one, two = await place.store(), await place.store()
    owner = await place.claim(one)
    before = await place.keys()
    with pytest.raises(NotOwnerError) as refused:
        await place.claim(two)
    text = str(refused.value)
    assert owner.cluster in text
    assert await read_cluster_identity(two) in text
    assert "another --objects prefix" in text
    assert "holdfast objects adopt" in text
    assert await place.keys() == before
    assert str(pickle.loads(pickle.dumps(refused.value))) == text
    await place.claim(one)  # a restart


async def test_of_two_clusters_that_start_at_once_one_gets_the_objects(place: Place) -> None:
    stores = [await place.store() for _ in range(5)]
    outcomes = await asyncio.gather(*map(place.claim, stores), return_exceptions=True)
    [owner] = [each for each in outcomes if isinstance(each, ObjectsOwner)]
    assert all(isinstance(each, ObjectsOwner | NotOwnerError) for each in outcomes)
    mark = await read_mark(place.objects)
    assert mark is not None
    assert mark.cluster == owner.cluster


async def test_servers_of_one_cluster_that_start_at_once_all_open(place: Place) -> None:
    store = await place.store()
    owners = await asyncio.gather(*(place.claim(store) for _ in range(5)))
    assert len({owner.cluster for owner in owners}) == 1
    await asyncio.gather(*map(raised, owners))
    for owner in owners:
        await owner.check()


@asynccontextmanager
async def sqlite(path: Path) -> AsyncIterator[Store]:
    async with open_store(f"sqlite:///{path}", clock=RealClock(), random=SystemRandom()) as store:
        yield store


async def test_a_restored_backup_is_refused_with_both_versions(tmp_path: Path, place: Place) -> None:
    live, backup = tmp_path / "store.db", tmp_path / "backup.db"
    async with sqlite(live) as store:
        await raised(await place.claim(store))
    shutil.copy(live, backup)
    async with sqlite(live) as store:
        for n in range(10):
            await store.commit(apply=[Put(f"published/{n}", b"1")])
        owner = await place.claim(store)
        await raised(owner)
    shutil.copy(backup, live)
    async with sqlite(live) as store:
        mark, version = await read_mark(place.objects), (await store.scan("a", "b")).version
        assert mark is not None
        for opening in (place.claim, place.verify):
            with pytest.raises(NotOwnerError, match="restored from a backup") as refused:
                await opening(store)
            assert f"version {mark.store_version}, mark {mark.number}" in str(refused.value)
            assert f"version {version}, mark {mark.number - 1}" in str(refused.value)
        # However many versions it gains by other means, its history remains another one.
        for n in range(30):
            await store.commit(apply=[Put(f"other/{n}", b"1")])
        with pytest.raises(NotOwnerError, match="restored from a backup"):
            await place.claim(store)


async def test_two_copies_of_a_store_do_not_both_get_the_next_mark(place: Place) -> None:
    store = await place.store()
    one = await place.claim(store)
    two = await place.claim(await place.copy_of(store))
    await raised(one)
    with pytest.raises(NotOwnerError):
        await raised(two)
    await one.check()


@pytest.mark.parametrize("failpoint", ["owner.recorded", "owner.marked"])
@pytest.mark.parametrize("time", [1, 2])
async def test_a_death_while_claiming_leaves_what_the_next_start_finishes(
    place: Place, failpoint: str, time: int
) -> None:
    store, other = await place.store(), await place.store()
    with pytest.raises(CrashError), crash_on(failpoint, time=time):
        await place.claim(store)
    await place.verify(store)  # a reader needs no owner that has finished
    owner = await place.claim(store)
    await raised(owner)
    await owner.check()
    with pytest.raises(NotOwnerError):
        await place.claim(other)


@pytest.mark.parametrize("failpoint", ["owner.recorded", "owner.marked"])
async def test_a_death_between_the_two_steps_of_a_mark_is_no_restored_store(place: Place, failpoint: str) -> None:
    store = await place.store()
    owner = await place.claim(store)
    with pytest.raises(CrashError), crash_on(failpoint):
        await raised(owner)
    await owner.check()
    await place.verify(store)
    again = await place.claim(store)
    await raised(again)
    assert len([key for key in await place.keys() if key.startswith(MARKS)]) == 3


async def test_a_mark_whose_answers_were_lost_is_ours(place: Place) -> None:
    store = FaultyStore(await place.store(), random=place.random)
    objects = FaultyObjects(place.objects, clock=place.clock, random=place.random)
    objects.lose_answer_to(MARKS)
    with pytest.raises(UnavailableError):
        await claim_objects(store, objects, clock=place.clock, random=place.random)
    owner = await claim_objects(store, objects, clock=place.clock, random=place.random)
    objects.lose_answer_to(MARKS)
    with pytest.raises(UnavailableError):
        await raised(owner)
    await raised(owner)
    await owner.check()


async def test_only_the_last_marks_are_kept(place: Place) -> None:
    owner = await place.claim(await place.store())
    for _ in range(10):
        await raised(owner)
    assert await place.keys() == [f"owner/{number:012d}.json" for number in (10, 11, 12)]


async def test_objects_without_any_mark_are_not_those_of_a_store_that_has_marked_some(place: Place) -> None:
    store = await place.store()
    await place.claim(store)
    elsewhere = MemoryObjects(clock=place.clock)
    with pytest.raises(NotOwnerError, match="there is none in object storage: is it mounted") as refused:
        await claim_objects(store, elsewhere, clock=place.clock, random=place.random)
    assert "adopt" not in str(refused.value).partition("If they are lost for good")[0]
    with pytest.raises(NotOwnerError, match="is it mounted"):
        await verify_objects(store, elsewhere, clock=place.clock, random=place.random)
    assert [info async for info in elsewhere.list("")] == []
    await adopt_objects(store, elsewhere, clock=place.clock, random=place.random)
    await claim_objects(store, elsewhere, clock=place.clock, random=place.random)


async def test_a_reader_of_a_store_of_no_cluster_is_refused_and_creates_nothing(place: Place) -> None:
    await place.claim(await place.store())
    empty = await place.store()
    with pytest.raises(NotOwnerError, match="cluster without an id"):
        await place.verify(empty)
    assert await empty.get(IDENTITY_KEY) is None
    assert await empty.get(RECORD_KEY) is None


async def test_adoption_is_refused_while_the_owner_seems_to_run_and_final_afterwards(place: Place) -> None:
    one, two = await place.store(), await place.store()
    former = await place.claim(one)
    with pytest.raises(UsageError, match="marked object storage 0 s ago"):
        await place.adopt(two)
    place.clock.advance_ms(ACTIVE_MS)
    await place.adopt(two)
    owner = await place.claim(two)
    await raised(owner)
    for refused in (former.check(), raised(former), former.delete(["any"]), place.claim(one)):
        with pytest.raises(NotOwnerError) as error:
            await refused
        assert error.value.ownership is Ownership.FOREIGN
    await place.adopt(one, force=True)
    with pytest.raises(NotOwnerError):
        await owner.check()


async def test_adopting_what_is_ours_changes_nothing(place: Place) -> None:
    store = await place.store()
    await place.claim(store)
    before = await place.keys()
    await place.adopt(store)
    assert await place.keys() == before


class AdoptedMeanwhile:
    """Object storage that another store adopts at a chosen listing."""

    def __init__(self, place: Place, other: Store, *, listing: int) -> None:
        self._place, self._other, self._left = place, other, listing

    def __getattr__(self, name: str) -> object:
        return getattr(self._place.objects, name)

    async def list(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectInfo]:
        self._left -= 1
        if self._left == 0:
            await self._place.adopt(self._other, force=True)
        async for info in self._place.objects.list(prefix, after=after):
            yield info


async def test_a_sweeper_that_was_suspended_after_its_check_looks_again(place: Place) -> None:
    one, two = await place.store(), await place.store()
    await place.claim(one)
    await place.objects.put("named-by-two", [b"x"])
    objects = AdoptedMeanwhile(place, two, listing=2)
    frozen = await owner_of(one, objects, clock=place.clock, random=place.random)  # type: ignore[arg-type]
    frozen_for_an_hour = failpoints.installed(
        lambda name: place.clock.advance_ms(3_600_000) if name == "owner.checked" else None
    )
    with frozen_for_an_hour, pytest.raises(NotOwnerError):
        await frozen.delete(["named-by-two"])
    assert "named-by-two" in await place.keys()


async def test_nobody_vouches_for_the_time_between_the_last_mark_and_the_next_start(place: Place) -> None:
    store = await place.store()
    owner = await place.claim(store)
    assert await owner.unproven(keep_ms=KEEP_MS) == []  # it began with nothing
    place.clock.advance_ms(DAY_MS)
    await raised(owner)
    marked_ms = place.clock.now_ms()
    place.clock.advance_ms(DAY_MS)
    again = await place.claim(store)
    started_ms = place.clock.now_ms()
    span = TimeSpan(marked_ms - SKEW_MS, started_ms + SKEW_MS)
    assert await again.unproven(keep_ms=KEEP_MS) == [span]
    await raised(again)
    place.clock.advance_ms(DAY_MS)
    await raised(again)
    assert await again.unproven(keep_ms=KEEP_MS) == [span]
    place.clock.advance_ms(KEEP_MS)
    assert await again.unproven(keep_ms=KEEP_MS) == []
    await raised(again)
    # A process that has had the store open all the while vouches for what others did not.
    assert await owner.unproven(keep_ms=KEEP_MS) == []


async def test_what_lay_there_before_the_first_mark_is_unproven(place: Place) -> None:
    await place.objects.put("segments/of/0.1.0", [b"x"])
    owner = await place.claim(await place.store())
    assert await owner.unproven(keep_ms=KEEP_MS) == [TimeSpan(0, place.clock.now_ms() + SKEW_MS)]


def test_spans_that_touch_are_one_and_too_many_become_fewer_without_a_hole_less() -> None:
    spans = [TimeSpan(5, 9), TimeSpan(1, 3), TimeSpan(2, 4), TimeSpan(9, 10)]
    assert merge_spans(spans) == (TimeSpan(1, 4), TimeSpan(5, 10))
    many = [TimeSpan(10 * n, 10 * n + 1) for n in range(SPANS_MAX + 3)]
    merged = merge_spans(many)
    assert len(merged) == SPANS_MAX
    assert all(any(span.holds(at) for span in merged) for each in many for at in each)
