"""What an agent that is gone for good left in the store goes, unless something may still need it."""

import msgspec
import pytest
from tests.support.maintenance import MaintenanceWorld

from holdfast.contracts.store import Put
from holdfast.kernel.keys import LAST_SEEN, NODES
from holdfast.kernel.membership import MembershipSettings, hold_membership
from holdfast.log.keys import WAL_AGENTS, state_key
from holdfast.log.maintenance import SWEEPER, MaintainedAgent, run_maintenance
from holdfast.log.maintenance.departed_agents import forget_departed
from holdfast.log.metadata import OffsetGap, PartitionRecord
from holdfast.log.model import CleanupPolicy
from holdfast.log.wal_owners import register_wal_owner
from holdfast.vocabulary.tasks import background_tasks
from holdfast.vocabulary.types import Member

DAY_MS = 86_400_000
TOPIC_ID = b"orders".hex()


async def join(world: MaintenanceWorld, agent: str) -> str:
    """An agent with a WAL of its own comes; its session."""
    session = (await world.memory.open_session(365 * DAY_MS)).id
    await register_wal_owner(
        world.memory, f"wal-of-{agent}", agent=agent, session=session, clock=world.clock, random=world.random
    )
    member = Member(id=agent, session=session, address="", zone="", group="default", started_at_ms=0)
    settings = MembershipSettings()
    async with hold_membership(
        world.memory, "agent", member, clock=world.clock, random=world.random, settings=settings
    ):
        pass  # no heartbeat but the first
    return session


async def left(world: MaintenanceWorld) -> list[str]:
    return [key for prefix in (WAL_AGENTS, NODES, LAST_SEEN) for key in await world.keys(prefix)]


async def forgotten(world: MaintenanceWorld) -> int:
    return await forget_departed(await world.lease(SWEEPER), world.context())


async def put_record(world: MaintenanceWorld, record: PartitionRecord) -> None:
    await world.memory.commit(apply=(Put(state_key(TOPIC_ID, 7), msgspec.json.encode(record)),))


@pytest.fixture
async def gone(world: MaintenanceWorld) -> MaintenanceWorld:
    """Bob was here, and has not been seen for 31 days."""
    await world.memory.close_session(await join(world, "bob"))
    world.clock.advance_ms(31 * DAY_MS)
    return world


async def test_what_an_agent_left_goes_when_it_is_gone_for_good(gone: MaintenanceWorld) -> None:
    assert len(await left(gone)) == 3
    assert await forgotten(gone) == 3
    assert await left(gone) == []
    assert await forgotten(gone) == 0


async def test_an_agent_that_was_seen_lately_keeps_everything(world: MaintenanceWorld) -> None:
    await world.memory.close_session(await join(world, "bob"))
    world.clock.advance_ms(29 * DAY_MS)
    assert await forgotten(world) == 0
    assert len(await left(world)) == 3


async def test_an_agent_that_lives_keeps_everything_however_old_its_last_heartbeat_is(world: MaintenanceWorld) -> None:
    await join(world, "bob")
    world.clock.advance_ms(31 * DAY_MS)
    assert await forgotten(world) == 0
    assert len(await left(world)) == 3


@pytest.mark.parametrize(
    "record",
    [
        PartitionRecord(published=3, reserved=9, wal="wal-of-bob"),
        PartitionRecord(published=3, reserved=3, wal="wal-of-bob"),
        PartitionRecord(published=9, reserved=9, wal="other", gaps=(OffsetGap(start=3, end=9, wal="wal-of-bob"),)),
        PartitionRecord(published=9, reserved=9, wal="other", opened_replicas=("other", "wal-of-bob")),
    ],
    ids=["a tail", "the last leader", "a gap", "a replica"],
)
async def test_a_wal_that_a_partition_refers_to_keeps_its_agent(
    gone: MaintenanceWorld, record: PartitionRecord
) -> None:
    await put_record(gone, record)
    assert await forgotten(gone) == 0
    assert len(await left(gone)) == 3
    await put_record(gone, PartitionRecord(published=9, reserved=9, wal="other"))
    assert await forgotten(gone) == 3


async def test_one_who_comes_back_while_it_is_looked_at_keeps_everything(
    gone: MaintenanceWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_record(gone, PartitionRecord(published=3, reserved=3, wal="other"))
    real = gone.store.scan

    async def come_back_meanwhile(start: str, end: str, **kwargs: int) -> object:
        found = await real(start, end, **kwargs)  # type: ignore[arg-type]
        if start.startswith("log/"):
            await join(gone, "bob")
        return found

    monkeypatch.setattr(gone.store, "scan", come_back_meanwhile)
    assert await forgotten(gone) == 0
    assert len(await left(gone)) == 3


async def test_the_sweeper_does_it_by_itself(gone: MaintenanceWorld) -> None:
    work = MaintainedAgent(
        agent="ann", session=gone.session, partitions=tuple, policy=lambda _: CleanupPolicy(retention_ms=None)
    )
    async with background_tasks(run_maintenance(work, gone.context())):
        await gone.clock.run_for_ms(5_000)
        assert await left(gone) == []
