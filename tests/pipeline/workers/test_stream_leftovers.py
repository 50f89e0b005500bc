"""Files of streaming queries that nobody runs any more, removed by a worker that runs none."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast.contracts.store import Put, Store
from holdfast.contracts.validation import StoreLimits
from holdfast.kernel.objects_owner import claim_objects
from holdfast.kernel.owner_mark import NotOwnerError
from holdfast.objects.urls import open_objects
from holdfast.pipeline.catalog.keys import pipeline_key
from holdfast.pipeline.catalog.store import PipelineStore
from holdfast.pipeline.catalog.stored_parts import pipeline_value
from holdfast.pipeline.model.definition import Generation, Pipeline
from holdfast.pipeline.workers.stream_leftovers import LocalStreams, ObjectStreams, StreamLeftovers
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

FILES = ("pieces/4/0/x.arrow", "e4/metadata", "e4/.metadata.crc", "e4/state/0/1/2_a.zip")


class Files:
    """Files of streams in two folders: objects, and checkpoints beside."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.objects, self.checkpoints = store, folder / "objects", folder / "checkpoints"
        self.clock, self.random = RealClock(), SystemRandom()
        self.cluster = ""

    async def claim(self) -> None:
        async with open_objects(self.url, clock=self.clock, random=self.random) as objects:
            owner = await claim_objects(self.store, objects, clock=self.clock, random=self.random)
        self.cluster = owner.cluster

    @property
    def url(self) -> str:
        return f"file://{self.objects}"

    def make(self, pipeline: str, generation: int) -> None:
        for root in (self.objects, self.checkpoints):
            for name in FILES:
                path = root / self.cluster / "streams" / pipeline / str(generation) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"x")

    def left(self) -> set[str]:
        found = (root / self.cluster / "streams" for root in (self.objects, self.checkpoints))
        return {f"{each.parent.name}/{each.name}" for root in found for each in root.glob("*/*")}

    def leftovers(self, store: Store | None = None) -> StreamLeftovers:
        return StreamLeftovers(
            store or self.store,
            objects=self.url,
            checkpoints=f"file://{self.checkpoints}",
            interval_ms=1_000,
            clock=self.clock,
            random=self.random,
        )


@pytest_asyncio.fixture
async def files(tmp_path: Path) -> AsyncIterator[Files]:
    store = MemoryStore(clock=RealClock(), random=SystemRandom(), limits=StoreLimits())
    made = Files(store, tmp_path)
    await made.claim()
    yield made


async def test_files_of_retired_generations_and_deleted_pipelines_go_from_both_places(files: Files) -> None:
    pipeline = Pipeline(
        id="kept",
        name="kept",
        created_at_ms=0,
        updated_at_ms=0,
        generations=(Generation(number=1, retired=True), Generation(number=2)),
    )
    await files.store.commit(apply=[Put(pipeline_key("kept"), pipeline_value(pipeline))])
    for name, generation in (("kept", 1), ("kept", 2), ("deleted", 7)):
        files.make(name, generation)
    await files.leftovers().remove()
    assert files.left() == {"kept/2"}
    assert not (files.checkpoints / files.cluster / "streams/deleted").exists()
    assert await files.leftovers().remove() == []


async def test_the_last_deleted_pipeline_is_removed_too(files: Files) -> None:
    files.make("last", 1)
    assert await PipelineStore(files.store, clock=files.clock, random=files.random).list() == []
    await files.leftovers().remove()
    assert files.left() == set()


async def test_nothing_is_removed_for_a_store_that_does_not_own_the_objects(files: Files) -> None:
    files.make("theirs", 1)
    other = MemoryStore(clock=files.clock, random=files.random, limits=StoreLimits())
    with pytest.raises(NotOwnerError):
        await files.leftovers(other).remove()
    assert files.left() == {"theirs/1"}


async def test_files_in_an_object_store_are_removed_by_key() -> None:
    async with open_objects("memory:", clock=RealClock(), random=SystemRandom()) as objects:
        for key in ("c/streams/p/1/e1/metadata", "c/streams/p/2/pieces/1/0/x", "c/segments/p/1/x"):
            await objects.put(key, [b"x"])
        place = ObjectStreams(objects, "c/streams/")
        assert [each.name for each in sorted(await place.folders())] == ["p/1", "p/2"]
        await place.remove(min(await place.folders()))
        assert [info.key async for info in objects.list("c/")] == ["c/segments/p/1/x", "c/streams/p/2/pieces/1/0/x"]


async def test_a_place_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    assert await LocalStreams(tmp_path / "no").folders() == set()
