"""kill -9 of an agent that keeps replicas: what they answered is there in the next life, and what was cut off is not."""

import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from tests.support.replication.host_process import COPYING, PARTITIONS, WAL_ID, payload
from tests.support.replication.in_process import hosted
from tests.support.replication.logs import P

from holdfast.log.replication.positions import NOWHERE, Position
from holdfast.vocabulary.random import SeededRandom


class Answered:
    """What the children said, and whether the next one has it."""

    def __init__(self) -> None:
        self.count = 0
        self.promised: defaultdict[int, int] = defaultdict(int)
        self.position: defaultdict[int, Position] = defaultdict(lambda: NOWHERE)

    def hear(self, line: str) -> None:
        word, *rest = line.split()
        if word == "ready":
            return
        number, promised, epoch, offset = map(int, rest)
        if word == "ack":
            self.count += 1
            self.promised[number] = max(promised, self.promised[number])
            # A later answer is of a longer log, or of one that a higher epoch has cut off: never of a lower position.
            self.position[number] = max(Position(epoch, offset), self.position[number])
        else:
            self.check(number, promised, Position(epoch, offset))

    def check(self, number: int, promised: int, position: Position) -> None:
        assert promised >= self.promised[number]
        assert position >= self.position[number]


def run_child(directory: Path, answered: Answered, seed: int, lines: int) -> None:
    command = [sys.executable, "-m", "tests.support.replication.host_process", str(directory), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            for count, line in enumerate(child.stdout):
                if line.endswith("\n"):
                    answered.hear(line)
                if count == lines:
                    child.send_signal(signal.SIGKILL)
        finally:
            child.kill()
        assert child.wait() == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 20))])
async def test_killed_at_random(tmp_path: Path, seed: int) -> None:
    rng, answered = SeededRandom(seed).random, Answered()
    for life in range(4):
        run_child(tmp_path / "wal", answered, seed * 100 + life, rng.randrange(20, 1_500))
    async with hosted(tmp_path / "wal", WAL_ID, wal_settings=COPYING) as host:
        assert len(host) == PARTITIONS
        for number in range(PARTITIONS):
            found = host.get((P[0], number))
            assert found is not None
            assert found.replica is not None
            answered.check(number, found.replica.promised, found.replica.log.position)
            for each in found.replica.log.entries:
                assert each.is_epoch_start or b"".join(each.payload) == payload(each.epoch, each.base_offset)
    assert answered.count > 100
