"""Whoever was suspended while its cluster moved is refused at the source: what it had not sent yet, and its next beginning."""

from pathlib import Path

import pytest
from tests.app.migration.test_steps import CLOCK, RANDOM, end, fill, migrate

from holdfast.contracts.store import Store
from holdfast.kernel.cluster_move import ClusterMovedError
from holdfast.registry.settings import RegistrySettings
from holdfast.registry.store import RegistryStore


def registry(store: Store) -> RegistryStore:
    settings = RegistrySettings(partitions=3, namespace="jobs")
    return RegistryStore(store, clock=CLOCK, random=RANDOM, settings=settings)


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
