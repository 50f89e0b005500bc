"""Between any two engines: there and on, with all entries, epochs above all before, and each place left behind closed."""

from pathlib import Path

import pytest
from tests.app.migration.test_steps import CLOCK, RANDOM, SMALL, contents, end, fill, migrate, serves

from holdfast.app.migration.model import MigrationEnd, opened_end
from holdfast.kernel.cluster_identity import read_cluster_identity
from holdfast.kernel.lease import Lease, acquire
from holdfast.testing.harness import StoreHarness


async def acquired_epoch(at: MigrationEnd) -> int:
    """The epoch of the next holder of a lease that was held before."""
    session = await at.store.open_session(30_000)
    lease = await acquire(at.store, "r", holder="bob", session=session.id, clock=CLOCK, random=RANDOM)
    assert isinstance(lease, Lease)
    await at.store.close_session(session.id)
    return lease.epoch


@pytest.mark.parametrize("engine", ["postgres", "etcd", "redis"])
async def test_a_cluster_moves_to_an_engine_and_on_from_there(harness: StoreHarness, tmp_path: Path) -> None:
    folder = f"file://{tmp_path}/middle-objects"
    async with (
        end(tmp_path, "a") as first,
        opened_end(harness.url, folder, create=True, clock=CLOCK, random=RANDOM) as middle,
        end(tmp_path, "c") as last,
    ):
        cluster = await fill(first)
        assert (await migrate(first, middle, settings=SMALL)).finished
        assert await contents(middle, cluster) == await contents(first, cluster)
        assert await serves(middle)
        assert await acquired_epoch(middle) == 3
        assert (await migrate(middle, last, settings=SMALL)).finished
        assert await read_cluster_identity(last.store) == cluster
        assert await contents(last, cluster) == await contents(middle, cluster)
        assert [await serves(each) for each in (first, middle, last)] == [False, False, True]
        assert await acquired_epoch(last) == 5
