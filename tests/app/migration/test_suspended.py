"""Whoever was suspended while its cluster moved is refused at the source: what it had not sent yet, and its next beginning."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from confluent_kafka import KafkaException
from tests.app.migration.test_steps import CLOCK, RANDOM, STEPS, act_at, end, fill, migrate
from tests.support.failpoints import FailpointError, fail_at
from tests.support.server_process import ServeProcess, create_topic, started

from holdfast.contracts.store import Store
from holdfast.kernel.cluster_move import ClusterMovedError
from holdfast.kernel.lease import Held, Lease, acquire
from holdfast.kernel.objects_owner import adopt_objects
from holdfast.kernel.unmoved_store import UnmovedStore
from holdfast.log.topics import Topics, UnknownTopicError
from holdfast.registry.settings import RegistrySettings
from holdfast.registry.store import RegistryStore
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.errors import UsageError

pytestmark = pytest.mark.slow


def registry(store: Store) -> RegistryStore:
    settings = RegistrySettings(partitions=3, namespace="jobs")
    return RegistryStore(store, clock=CLOCK, random=RANDOM, settings=settings)


async def acquired(store: Store, session: str) -> Lease | Held:
    return await acquire(store, "r", holder="ann", session=session, clock=CLOCK, random=RANDOM)


async def test_a_consumer_of_a_registry_neither_saves_a_checkpoint_nor_begins_again(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)
        ours = registry(source.store)
        await ours.initialize()
        session = await source.store.open_session(30_000)
        assert await ours.claim(0, "ann", 0, session=session)
        assert await ours.update_checkpoint(0, "ann", 5, 1)
        await source.store.close_session(session.id)  # it was suspended for longer than its TTL
        assert (await migrate(source, target)).finished
        assert not await ours.update_checkpoint(0, "ann", 9, 1)
        with pytest.raises(ClusterMovedError):
            await ours.register("ann")
        state = await ours.partition(0)
        assert state is not None
        with pytest.raises(ClusterMovedError):
            await ours.claim(0, "ann", state.epoch)
        # The cluster goes on where the checkpoint was, under epochs that were never given at the source.
        theirs = registry(target.store)
        moved = await theirs.partition(0)
        assert moved is not None
        assert (moved.owner, moved.checkpoint) == (None, 5)
        await theirs.register("bob")
        assert await theirs.claim(0, "bob", moved.epoch)


async def test_a_lease_cannot_be_acquired_at_the_source_until_an_operator_takes_it_back(tmp_path: Path) -> None:
    """What an agent or worker of an earlier release does when it wakes up, and a client that has no session meanwhile."""
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)
        assert (await migrate(source, target)).finished
        session = await source.store.open_session(30_000)
        held = await acquired(source.store, session.id)
        assert isinstance(held, Held)
        new = await target.store.open_session(30_000)
        lease = await acquired(target.store, new.id)
        assert isinstance(lease, Lease)
        assert lease.epoch == held.epoch + 1
        await adopt_objects(source.store, source.objects, clock=CLOCK, random=RANDOM, force=True)
        assert isinstance(await acquired(source.store, session.id), Lease)


@pytest.mark.parametrize("step", [step for step in STEPS if step != "migrate.finished"])
async def test_leases_are_free_at_the_source_whenever_it_is_taken_back(step: str, tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)
        with failpoints.installed(fail_at(step)), pytest.raises(FailpointError):
            await migrate(source, target)
        await adopt_objects(source.store, source.objects, clock=CLOCK, random=RANDOM, force=True)
        session = await source.store.open_session(30_000)
        assert isinstance(await acquired(source.store, session.id), Lease)


async def test_a_migration_that_runs_on_while_its_source_is_taken_back_fences_nothing_there(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)

        async def take_back() -> None:
            await adopt_objects(source.store, source.objects, clock=CLOCK, random=RANDOM, force=True)

        with failpoints.installed(act_at("migrate.source-closed", take_back)), pytest.raises(UsageError):
            await migrate(source, target)
        session = await source.store.open_session(30_000)
        assert isinstance(await acquired(source.store, session.id), Lease)


async def test_nothing_that_a_client_asks_for_is_written_at_the_source(tmp_path: Path) -> None:
    async with end(tmp_path, "a") as source, end(tmp_path, "b") as target:
        await fill(source)
        topics = Topics(UnmovedStore(source.store), clock=CLOCK, random=RANDOM)
        await topics.create("before", 1)
        assert (await migrate(source, target)).finished
        with pytest.raises(ClusterMovedError, match="has moved: start servers with"):
            await topics.create("after", 1)
        with pytest.raises(UnknownTopicError):
            await topics.get("after")
        here = Topics(UnmovedStore(target.store), clock=CLOCK, random=RANDOM)
        assert (await here.get("before")).partitions == 1
        await here.create("after", 1)


def test_a_node_that_leads_nothing_refuses_its_clients_once_the_cluster_has_moved(tmp_path: Path) -> None:
    shared = ("--store", f"sqlite:///{tmp_path}/store.db", "--objects", f"file://{tmp_path}/objects")
    node = ServeProcess(tmp_path / "node", "--roles", "api", *shared)
    with started(node):
        argv = [sys.executable, "-m", "holdfast", "migrate", "--yes", *shared]
        argv += ["--to-store", f"sqlite:///{tmp_path}/new.db", "--to-objects", f"file://{tmp_path}/new"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=100, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        answer = httpx.post(f"{node.http}/api/v1/topics", json={"name": "late", "partitions": 1}, timeout=60)
        assert answer.is_client_error
        assert "has moved" in answer.text
        with pytest.raises(KafkaException, match="has moved"):
            create_topic(node.kafka, "late", 1)
        assert httpx.get(f"{node.http}/api/v1/topics/late", timeout=60).status_code == 404
