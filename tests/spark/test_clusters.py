"""Opening a cluster from Spark: objects of another cluster, or of a lost state of the store, are refused."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.client.cluster_address import ClusterAddress
from holdfast.client.loop_thread import run
from holdfast.contracts.objects import Objects
from holdfast.contracts.store import Store
from holdfast.kernel.objects_owner import claim_objects
from holdfast.kernel.owner_mark import NotOwnerError, Ownership
from holdfast.objects.urls import open_objects
from holdfast.spark.clusters import open_cluster
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

CLOCK, RANDOM = RealClock(), SystemRandom()


def address(folder: Path, *, store: str = "one.db") -> ClusterAddress:
    return ClusterAddress(store=f"sqlite:///{folder}/{store}", objects=f"file://{folder}/objects")


@asynccontextmanager
async def opened(cluster: ClusterAddress) -> AsyncIterator[tuple[Store, Objects]]:
    async with (
        open_store(cluster.store, clock=CLOCK, random=RANDOM) as store,
        open_objects(cluster.objects, clock=CLOCK, random=RANDOM) as objects,
    ):
        yield store, objects


def claim(cluster: ClusterAddress, *, marks: int = 0) -> str:
    """What a server does when it starts, and so many sweeps; the cluster's id."""

    async def claimed() -> str:
        async with opened(cluster) as (store, objects):
            owner = await claim_objects(store, objects, clock=CLOCK, random=RANDOM)
            for _ in range(marks):
                await owner.raise_mark(unproven_keep_ms=1)
            return owner.cluster

    return asyncio.run(claimed())


def test_a_reader_opens_the_objects_of_its_own_cluster_and_writes_below_its_id(tmp_path: Path) -> None:
    cluster = claim(address(tmp_path))
    direct = run(open_cluster(address(tmp_path))).direct
    assert direct is not None
    assert direct.owner.prefix == f"{cluster}/"


def test_a_reader_of_another_store_is_refused_with_both_ids(tmp_path: Path) -> None:
    first = claim(address(tmp_path))
    elsewhere = ClusterAddress(store=address(tmp_path, store="two.db").store, objects=f"file://{tmp_path}/elsewhere")
    second = claim(elsewhere)
    with pytest.raises(NotOwnerError) as refused:
        run(open_cluster(address(tmp_path, store="two.db")))
    assert first in str(refused.value)
    assert second in str(refused.value)
    assert f"file://{tmp_path}/objects" in str(refused.value)


def test_a_reader_of_a_restored_store_is_refused(tmp_path: Path) -> None:
    claim(address(tmp_path), marks=1)
    shutil.copy(tmp_path / "one.db", tmp_path / "restored.db")
    claim(address(tmp_path), marks=1)
    with pytest.raises(NotOwnerError) as refused:
        run(open_cluster(address(tmp_path, store="restored.db")))
    assert refused.value.ownership is Ownership.STORE_BEHIND


def test_objects_that_no_server_of_this_release_has_opened_are_read(tmp_path: Path) -> None:
    async def written_by_release_010() -> None:
        async with opened(address(tmp_path)) as (_, objects):
            await objects.put("segments/t/0/x", [b"x"])

    asyncio.run(written_by_release_010())
    assert run(open_cluster(address(tmp_path))).direct is not None
