"""kill -9 at every step and at random: what a process was promised, the next one finds, once and in order."""

import re
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from tests.support.wal import frame, opened, overwrite, places

from holdfast.log import wal
from holdfast.log.wal.frames import FRAME_BYTES, encode_head
from holdfast.log.wal.recovery import scan_directory
from holdfast.vocabulary.random import SeededRandom

# At which passing of each step a child kills itself. A full disk is another test's: test_disk.py.
STEPS = {
    "wal.group-written": (1, 2, 20),
    "wal.group-synced": (1, 2, 20),
    "wal.file-zeroed": (1, 2),
    "wal.file-header-written": (1, 2, 5),
    "wal.file-live": (1, 2, 5),
    "wal.file-opened": (1, 2, 5),
    "wal.file-retired": (1, 2, 5),
    "wal.header-raised": (1, 2, 5),
    "wal.torn-tail-invalidated": (1,),
    "wal.tail-synced": (1,),
    "wal.mark-synced": (1, 2),
    "wal.copy-begun": (1, 2, 3),
    "wal.frames-copied": (1, 2, 3),
}
# Those that tests/log/crash/test_steps.py does not come to, and one that it does.
ALWAYS = ("wal.header-raised", "wal.copy-begun", "wal.frames-copied", "wal.group-synced")
NEED_UNSYNCED_TAIL = ("wal.torn-tail-invalidated", "wal.tail-synced", "wal.mark-synced")


class Promises:
    """What the children said, and whether the WAL keeps it."""

    def __init__(self) -> None:
        self.ends: defaultdict[int, int] = defaultdict(int)
        self.acknowledged = 0
        self._released: defaultdict[int, int] = defaultdict(int)

    def hear(self, line: str) -> None:
        word, *rest = line.split()
        if word == "ready":
            return
        partition, offset = map(int, rest)
        if word == "ack":
            assert offset == self.ends[partition], "out of order"
            self.ends[partition] = offset + 1
            self.acknowledged += 1
        elif word == "seen":
            # What was not acknowledged may be there; what was must be, unless it was released.
            assert offset >= self.ends[partition] or self._released[partition] >= self.ends[partition]
            self.ends[partition] = max(offset, self.ends[partition])
        elif word == "release":
            self._released[partition] = offset

    async def check(self, directory: Path) -> None:
        read: defaultdict[int, list[int]] = defaultdict(list)
        async with opened(directory) as found_wal:
            async for partition, offset in places(found_wal):
                read[partition].append(offset)
        for partition, end in self.ends.items():
            # A frame that was copied forward stands behind later ones, and may be there twice; released ones may be left out.
            released = self._released[partition]
            found = sorted({offset for offset in read[partition] if offset >= released})
            assert found == list(range(released, released + len(found))), f"partition {partition} has holes"
            if end > released:
                assert found
                assert found[-1] >= end - 1
            self.ends[partition] = max([end, *(offset + 1 for offset in read[partition])])


def run_child(directory: Path, promises: Promises, *args: object, lines_max: int | None = None) -> int:
    """Run until it dies, or kill it after so many lines."""
    command = [sys.executable, "-m", "tests.support.wal_process", str(directory), *map(str, args)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            for count, line in enumerate(child.stdout):
                if line.endswith("\n"):
                    promises.hear(line)
                if count == lines_max:
                    child.send_signal(signal.SIGKILL)
        finally:
            child.kill()
        return child.wait()


def leave_unsynced_tail(directory: Path, promises: Promises, seed: int) -> None:
    """Kill children until one leaves frames that nobody proved synced: some die in a file that they have just begun."""
    for attempt in range(20):
        assert run_child(directory, promises, seed + 10 * attempt, lines_max=50) == -signal.SIGKILL
        last = scan_directory(directory).files[-1]
        if last.frames and not last.marked and last.header.file_bytes - last.end >= FRAME_BYTES:
            return
    pytest.fail("20 children died, and none left frames behind its last mark")


def tear(directory: Path) -> None:
    """Leave the beginning of a frame behind the last one, as a write that was cut short does."""
    last = scan_directory(directory).files[-1]
    torn = frame(1_000_000, partition=2, size=500)
    head = encode_head(last.header.mark, last.next_lsn, last.next_lsn - 1, torn, 500)
    overwrite(last.path, last.end, head + bytes(torn.payload[0][:200]))


def test_every_failpoint_of_the_wal_is_tried() -> None:
    source = "".join(path.read_text() for path in Path(wal.__file__).parent.glob("*.py"))
    assert {*STEPS, "wal.space-refused"} == {*re.findall(r'failpoints\.reached\("(wal\.[^"]+)"\)', source)}


@pytest.mark.parametrize(
    "label", [pytest.param(each, marks=() if each in ALWAYS else pytest.mark.long) for each in STEPS]
)
async def test_killed_at_a_step(tmp_path: Path, label: str) -> None:
    promises = Promises()
    for hit in STEPS[label]:
        if label in NEED_UNSYNCED_TAIL:
            leave_unsynced_tail(tmp_path / "wal", promises, hit)
        if label == "wal.torn-tail-invalidated":
            tear(tmp_path / "wal")
        assert run_child(tmp_path / "wal", promises, 100 + hit, label, hit) == -signal.SIGKILL
        await promises.check(tmp_path / "wal")
    # And the WAL is as good as new.
    assert run_child(tmp_path / "wal", promises, 7, lines_max=300) == -signal.SIGKILL
    await promises.check(tmp_path / "wal")
    assert promises.acknowledged > 100


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 40))])
async def test_killed_at_random(tmp_path: Path, seed: int) -> None:
    rng = SeededRandom(seed).random
    promises = Promises()
    for round_ in range(6):
        lines = rng.randrange(1, 1500)
        assert run_child(tmp_path / "wal", promises, seed * 100 + round_, lines_max=lines) == -signal.SIGKILL
        if rng.random() < 0.5:
            await promises.check(tmp_path / "wal")
    await promises.check(tmp_path / "wal")
    assert promises.acknowledged > 500
