"""Consumers in processes of their own that share nothing but a store: killed, frozen, stopped gracefully."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.support.registry import RegistryWorld
from tests.support.store_engines import STORE_ENGINES
from tests.support.waiting import async_until

from holdfast.registry import RegistryView

EXAMPLE = Path(__file__).parents[2] / "examples" / "registry_consumer.py"
MESSAGES = 100  # four seconds of work: both consumers are there before it is done, also on a busy machine
ALL_WORK = {(partition, offset) for partition in range(8) for offset in range(MESSAGES)}
LINE = re.compile(r"(\w+) partition (\d+) offset (\d+) epoch (\d+)")


class Consumer:
    """A running example."""

    def __init__(self, process: subprocess.Popen[bytes], said: Path) -> None:
        self.process, self._said = process, said

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def done(self) -> list[tuple[int, int, int]]:
        """(partition, offset, epoch) of each message it processed, in order."""
        return [(int(line[2]), int(line[3]), int(line[4])) for line in LINE.finditer(self._said.read_text())]

    def said(self) -> str:
        return self._said.read_text()


@contextmanager
def consumer(world: RegistryWorld, name: str, directory: Path) -> Iterator[Consumer]:
    said = directory / f"{name}.txt"
    options = [f"--messages={MESSAGES}", "--work-ms=40", f"--ttl-ms={max(2_000, world.harness.ttl_ms_min)}"]
    with said.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLE), world.harness.url, name, *options], stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield Consumer(process, said)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def total(view: RegistryView) -> int:
    return sum(state.checkpoint for state in view.partitions.values())


def check(*consumers: Consumer) -> None:
    """Everything was processed; per epoch and partition each offset once and in order, by one process."""
    done = [(index, *line) for index, each in enumerate(consumers) for line in each.done()]
    assert {(partition, offset) for _, partition, offset, _ in done} == ALL_WORK
    last: dict[tuple[int, int], tuple[int, int]] = {}
    for index, partition, offset, epoch in done:
        owner, before = last.get((partition, epoch), (index, -1))
        assert owner == index, f"partition {partition} had two owners in epoch {epoch}"
        assert offset > before, f"partition {partition} went back in epoch {epoch}"
        last[partition, epoch] = (index, offset)


# Memory lives in one process. On SQLite a process that is frozen inside a write holds the lock until its supervisor kills it,
# so there freezing is tested where the moment can be chosen (tests/stores/test_sqlite_processes.py).
ALWAYS = {("sqlite", "kill"), ("postgres", "freeze")}
WAYS = [
    pytest.param(engine, way, marks=() if (engine, way) in ALWAYS else pytest.mark.long)
    for engine in STORE_ENGINES
    for way in ("kill", "freeze", "term")
    if engine != "memory" and (engine, way) != ("sqlite", "freeze")
]


@pytest.mark.parametrize(("engine", "way"), WAYS)
async def test_work_goes_on_when_a_process_is_gone(world: RegistryWorld, tmp_path: Path, way: str) -> None:
    registry = await world.initialized(namespace="example")
    with ExitStack() as stack:
        ann = stack.enter_context(consumer(world, "A", tmp_path))
        bob = stack.enter_context(consumer(world, "B", tmp_path))
        await world.until_view(
            registry, lambda view: [len(view.owned_by(name)) for name in "AB"] == [4, 4] and total(view) > 20
        )
        await async_until(lambda: bool(ann.done() and bob.done()))
        ann.signal({"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "term": signal.SIGTERM}[way])
        await world.until_view(registry, lambda view: len(view.assignments_of("B")) == 8)
        if way == "freeze":
            ann.signal(signal.SIGCONT)
        await world.until_view(registry, lambda view: total(view) == len(ALL_WORK))
        await async_until(lambda: bob.process.poll() is not None)
        assert bob.process.returncode == 0, bob.said()
        if way != "kill":
            await async_until(lambda: ann.process.poll() is not None)
            assert ann.process.returncode == 0, ann.said()
        check(ann, bob)
        assert "Traceback" not in ann.said() + bob.said()
