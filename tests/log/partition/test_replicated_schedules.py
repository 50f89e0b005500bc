"""Random schedules of deaths, cuts, takeovers, full disks and publications: a producer's records are there once, in order.

Leaders that lost their lease are not told: they go on, and the producer sends to them as well.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
from tests.support.partitions import ORDERS, Owner, append, batch, published
from tests.support.replication.partitions import ReplicatedWorld, next_epoch, open_replicated, replicated, visible
from tests.support.waiting import WAIT_S

from holdfast.kernel.keys import partition_resource
from holdfast.kernel.lease import Held, Lease, acquire
from holdfast.log.partition.replicated_partition import ReplicatedPartition
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.types import TopicPartition

pytestmark = pytest.mark.slow

T = TypeVar("T")
NAMES = ("ann", "bob", "carol")
STEPS = 60


class Schedule:
    """One partition of three replicas, one producer, and a seed that decides what happens to them."""

    def __init__(self, world: ReplicatedWorld, seed: int) -> None:
        self.world, self.random = world, SeededRandom(seed).random
        self.alive: dict[str, Owner] = {}
        self.leaders: list[tuple[str, ReplicatedPartition]] = []  # whoever believes to be one, the newest last
        self.attempted: tuple[str, Lease] | None = None  # the last takeover
        self.acknowledged = 0
        self.done: list[str] = []

    async def run(self, steps: int) -> None:
        for name in NAMES:
            await self.start(name)
        await self.take_over("ann")
        choices = (
            *(self.produce,) * 8,
            *(self.cut, self.heal, self.heal, self.kill, self.restart, self.restart, self.any_takes_over),
            *(self.new_epoch, self.open_again, self.open_again, self.publish, self.fill_disk, self.empty_disks),
        )
        for _ in range(steps):
            step = choices[self.random.randrange(len(choices))]
            self.done.append(step.__name__)
            await step()
        await self.check()

    async def start(self, name: str) -> None:
        self.alive[name] = await self.world.owner(name)

    async def produce(self) -> None:
        """Send the next record, and if it is not acknowledged soon, leave it: it is sent again, wherever."""
        if not self.leaders:
            return
        name, partition = self.leaders[-1] if self.random.random() < 0.8 else self._pick(self.leaders)
        if name not in self.alive:
            return
        for _ in range(self.random.randrange(1, 4)):
            payload = batch(f"{self.acknowledged}", producer=7, sequence=self.acknowledged)
            try:
                async with asyncio.timeout(0.05):
                    await append(partition, payload)
            except (HoldfastError, TimeoutError):
                return
            self.acknowledged += 1

    async def cut(self) -> None:
        one, other = self._two()
        self.world.cluster.cut(one, other)

    async def heal(self) -> None:
        one, other = self._two()
        self.world.cluster.heal(one, other)

    async def kill(self) -> None:
        if len(self.alive) < 2:
            return
        name = self._pick(sorted(self.alive))
        await self.world.kill(self.alive.pop(name))
        self.attempted = None  # a process that was started again takes a new epoch
        self.leaders = [each for each in self.leaders if each[0] != name]

    async def restart(self) -> None:
        for name in [each for each in NAMES if each not in self.alive][:1]:
            await self.start(name)

    async def any_takes_over(self) -> None:
        await self.take_over(self._pick(sorted(self.alive)))

    async def take_over(self, name: str) -> None:
        """The holder's session ends, though it may not know; another one acquires, and opens if enough answer."""
        owner = self.alive[name]
        held = await self._acquire(owner)
        if isinstance(held, Held):
            assert held.session is not None
            await self.world.store.close_session(held.session)
            for other in self.alive.values():
                if other.session.id == held.session:
                    await other._open_session()
            held = await self._acquire(owner)
        assert isinstance(held, Lease)
        await self._open(name, held)

    async def new_epoch(self) -> None:
        """Of the same holder, whose old leadership ends first."""
        for name, partition in self.leaders[-1:]:
            with suppress(AssertionError):  # it is no longer ours
                lease = await next_epoch(self.alive[name], partition.lease)
                partition.close(HoldfastError("a new epoch"))
                await self._open(name, lease)

    async def open_again(self) -> None:
        """Under the lease of the last attempt, opened or not."""
        if self.attempted is not None and self.attempted[0] in self.alive:
            await self._open(*self.attempted)

    async def publish(self) -> None:
        for name, partition in self.leaders[-1:]:
            with suppress(HoldfastError):
                await self.alive[name].publisher.publish([partition])

    async def fill_disk(self) -> None:
        self.alive[self._pick(sorted(self.alive))].disk.full = True

    async def empty_disks(self) -> None:
        for owner in self.alive.values():
            owner.disk.full = False

    async def check(self) -> None:
        """Everybody is back: what was acknowledged is there, each record once and in order."""
        await self.empty_disks()
        for name in NAMES:
            if name not in self.alive:
                await self.start(name)
        wals = [owner.wal_id for owner in self.alive.values()]
        for one in wals:
            for other in wals:
                self.world.cluster.heal(one, other)
        opened = len(self.leaders)
        async with asyncio.timeout(WAIT_S):
            while len(self.leaders) == opened:
                await self.take_over("bob")
        _, partition = self.leaders[-1]
        found = await published(self.world)
        assert found == [each for each in found if each[0] < partition.record.published]
        found += visible(partition, partition.record.published)
        values = [value for _, value in found]
        assert [offset for offset, _ in found] == list(range(len(found)))
        assert values == [str(number) for number in range(len(values))]
        assert len(values) >= self.acknowledged
        for name, old in self.leaders[:-1]:  # what they show is a prefix of it
            if name in self.alive:
                shown = visible(old)
                assert shown == [each for each in found if each in shown]
        payload = batch("last", producer=7, sequence=len(values))
        assert (await append(partition, payload)).base_offset == len(values)

    async def _acquire(self, owner: Owner) -> Lease | Held:
        return await acquire(
            self.world.store,
            partition_resource(TopicPartition(ORDERS.topic, ORDERS.number)),
            holder=owner.name,
            session=owner.session.id,
            clock=self.world.clock,
            random=self.world.random,
        )

    async def _open(self, name: str, lease: Lease) -> None:
        self.world.planned = [name, *(each for each in NAMES if each != name)]
        self.attempted = name, lease
        with suppress(HoldfastError):
            self.leaders.append((name, await open_replicated(self.alive[name], replicated(), lease=lease)))

    def _two(self) -> tuple[str, str]:
        wals = [owner.wal_id for owner in self.world.owners]
        one = self._pick(wals)
        return one, self._pick([each for each in wals if each != one] or [one])

    def _pick(self, among: Sequence[T]) -> T:
        return among[self.random.randrange(len(among))]


@pytest.mark.parametrize("seed", range(6))
async def test_no_schedule_loses_or_repeats_a_record(tmp_path: Path, seed: int) -> None:
    world = ReplicatedWorld(tmp_path)
    schedule = Schedule(world, seed)
    try:
        await schedule.run(STEPS)
    except BaseException as error:
        error.add_note(f"after {schedule.done}")
        raise
    finally:
        for owner in schedule.alive.values():
            await owner.end()
