"""Workers as processes, killed and frozen, each with a driver process that does real commits, on real stores.

The drivers leave a file per range that they wrote. Whichever process is killed or frozen at any point, the ranges of every
partition follow each other without gaps or overlaps: an open range is finished unchanged, and planning continues at its end.
"""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from tests.support.fake_driver import RANGE
from tests.support.waiting import async_until, evaluate
from tests.support.worker_cluster import WorkerCluster

from holdfast.contracts.store import Store
from holdfast.pipeline.workers.process_session import members
from holdfast.testing.harness import StoreHarness
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

TTL_MS = 4_000
PROGRAM = str(Path(__file__).parents[2] / "support" / "worker_process.py")

pytestmark = pytest.mark.timeout(150)


@pytest.fixture(params=["sqlite", *(pytest.param(each, marks=pytest.mark.long) for each in ("postgres", "etcd"))])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Team:
    """Worker processes on one store, and the folder their drivers write to."""

    def __init__(self, world: WorkerCluster, url: str, folder: Path) -> None:
        self.world, self.url, self.folder = world, url, folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "rows").mkdir()

    def hire(self, *names: str) -> None:
        for name in names:
            with (self.folder / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, PROGRAM, self.url, name, str(self.folder), str(TTL_MS)],
                    stdin=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )

    def signal(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.communicate()

    def driver_of(self, name: str) -> int:
        """The driver's session, which is the driver's own pid."""
        pid = self.processes[name].pid
        [child] = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(child)

    def ranges(self) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for row in os.listdir(self.folder / "rows"):  # noqa: PTH208
            _, _, partition, span = row.split(".")
            start, _, end = span.partition("-")
            found.setdefault(int(partition), []).append((int(start), int(end)))
        return found

    def written(self) -> int:
        return sum(len(each) for each in self.ranges().values())

    def check(self) -> None:
        for partition, ranges in self.ranges().items():
            expected = [(start, start + RANGE) for start in range(0, len(ranges) * RANGE, RANGE)]
            assert sorted(ranges) == expected, f"partition {partition}"

    async def alive_until(self, condition: Callable[[], object], *, within_s: float = 60) -> None:
        """Wait for the condition, which may be async, while every process must stay alive."""

        async def holds() -> bool:
            if await evaluate(condition):
                return True
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} ended: {(self.folder / f'{name}.log').read_text()[-2_000:]}"
            return False

        await async_until(holds, what=self.logs, within_s=within_s, pause_ms=20)

    async def progress(self, more: int) -> None:
        """Wait until so many more ranges are written, on every partition."""
        before = {partition: len(each) for partition, each in self.ranges().items()}
        await self.alive_until(
            lambda: all(len(self.ranges().get(number, ())) >= before.get(number, 0) + more for number in range(4))
        )

    async def holder(self) -> str:
        held: list[str] = []

        async def found() -> bool:
            held[:] = (await self.world.holders("p")).values()
            return len(held) == 1

        await self.alive_until(found)
        return held[0]

    def logs(self) -> str:
        return "\n".join(f"{name}: {(self.folder / f'{name}.log').read_text()[-1_500:]}" for name in self.processes)

    def close(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                for pid in [*members(process.pid), process.pid]:
                    for each in _started_by(pid):
                        with suppress(ProcessLookupError):  # a driver ends with its worker, and may just have
                            os.kill(each, signal.SIGKILL)
                process.kill()
            process.communicate()


def _started_by(pid: int) -> list[int]:
    """Everybody in the sessions of a process's children."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [each for child in children for each in members(int(child))]


@pytest.fixture
async def team(harness: StoreHarness, store: Store, tmp_path: Path) -> AsyncIterator[Team]:
    world = WorkerCluster(store, RealClock(), SystemRandom())
    await world.pipeline("p", partitions=4)
    made = Team(world, harness.url, tmp_path)
    async with AsyncExitStack() as stack:
        stack.callback(made.close)
        yield made
        made.check()


async def begun(world: WorkerCluster) -> bool:
    return any(state.intent for state in (await world.view("p")).partitions.values())


async def test_a_killed_worker_is_replaced_and_its_driver_dies_with_it(team: Team) -> None:
    team.hire("ann", "bob")
    first = await team.holder()
    await team.progress(2)
    driver = team.driver_of(first)
    (team.folder / "slow").touch()  # so that it dies between an effect and its checkpoint
    await team.alive_until(lambda: begun(team.world))
    team.kill(first)
    await team.alive_until(lambda: driver not in members(driver), within_s=5)
    (team.folder / "slow").unlink()
    await team.progress(3)
    assert await team.holder() != first
    for pid in members(driver):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def test_a_frozen_worker_is_replaced_and_when_it_wakes_it_stops_and_rejoins(team: Team) -> None:
    team.hire("ann", "bob")
    first = await team.holder()
    await team.progress(2)
    team.signal(first, signal.SIGSTOP)

    async def moved() -> bool:
        return set((await team.world.holders("p")).values()) - {first} != set()

    await team.alive_until(moved, within_s=30)
    await team.progress(2)
    team.signal(first, signal.SIGCONT)
    session = (await team.world.workers()).get(first)

    async def back() -> bool:
        now = (await team.world.workers()).get(first)
        return now is not None and (session is None or now.session != session.session)

    await team.alive_until(back, within_s=30)
    await team.progress(2)


async def test_a_frozen_driver_is_killed_and_another_worker_continues_its_work(team: Team) -> None:
    team.hire("ann", "bob")
    first = await team.holder()
    await team.progress(2)
    driver = team.driver_of(first)
    os.kill(driver, signal.SIGSTOP)
    await team.alive_until(lambda: not members(driver), within_s=20)
    await team.progress(2)
    assert await team.holder() != first


async def test_a_graceful_stop_ends_the_driver_and_leaves_nothing_behind(team: Team) -> None:
    team.hire("ann")
    await team.holder()
    await team.progress(1)
    driver = team.driver_of("ann")
    process = team.processes.pop("ann")
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert members(driver) == []
    assert await team.world.workers() == {}
    assert await team.world.holders("p") == {}
    assert set((await team.world.owners("p")).values()) == {None}
