"""Inspect shows all that is readable; repair keeps it, lists what it cannot keep, and never drops anything silently."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.wal import TOPIC, crash_copy, fill, flip, frame, newest, offsets, opened, overwrite, payload_of
from tests.support.wal_damage import DAMAGES, three_files
from tests.support.wal_disks import BlockDisk

from holdfast.cli.main import main
from holdfast.log.wal.frames import FRAME_BYTES, FRAMES_AT
from holdfast.log.wal.inspection import inspect
from holdfast.log.wal.repair import RepairReport, plan_repair, read_set_aside, repair
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import CorruptError, InvalidError, UnavailableError
from holdfast.vocabulary.random import SeededRandom

STEP = FRAME_BYTES + 100


def repaired(directory: Path) -> RepairReport:
    report = repair(directory, clock=RealClock(), random=SeededRandom(5))
    assert report is not None
    return report


async def two_partitions(directory: Path) -> Path:
    """Offsets 0 to 4 of partitions 0 and 1, in turn: LSN 1 is (0, 0), LSN 2 is (1, 0), LSN 3 is (0, 1), and so on."""
    await fill(directory, (frame(at // 2, partition=at % 2) for at in range(10)))
    return newest(directory)


async def test_inspect_shows_files_lsns_partitions_and_bytes(tmp_path: Path) -> None:
    await two_partitions(tmp_path / "wal")
    found = inspect(tmp_path / "wal")
    assert found.damage is None
    assert found.torn is None
    file = found.files[0]
    assert (file.generation, file.first_lsn, file.last_lsn, file.frames, file.payload_bytes) == (1, 1, 10, 10, 1000)
    assert [
        (part.topic_id, part.partition, part.frames, part.first_offset, part.end_offset) for part in file.partitions
    ] == [
        (TOPIC.hex(), 0, 5, 0, 5),
        (TOPIC.hex(), 1, 5, 0, 5),
    ]


async def test_a_damaged_payload_costs_its_partition_alone(tmp_path: Path) -> None:
    """The head says whose frame is lost, so the other partition provably lost nothing."""
    file = await two_partitions(tmp_path / "wal")
    flip(file, FRAMES_AT + 3 * STEP + FRAME_BYTES + 5)  # LSN 4: partition 1, offset 1
    assert inspect(tmp_path / "wal").files[0].damage == [
        f"payload of LSN 4 damaged at byte {FRAMES_AT + 3 * STEP + FRAME_BYTES}"
    ]
    report = repaired(tmp_path / "wal")
    assert [(lost.lsn, lost.partition, lost.base_offset, lost.acknowledged) for lost in report.lost] == [
        (4, 1, 1, True)
    ]
    assert [(aside.partition, aside.base_offset) for aside in report.in_doubt] == [(1, 2), (1, 3), (1, 4)]
    assert report.missing_lsns == []
    assert await offsets(tmp_path / "wal") == [(0, 0), (1, 0), *((0, offset) for offset in range(1, 5))]
    aside = list(read_set_aside(tmp_path / "wal" / "repair-1.json"))
    assert [(each.partition, each.base_offset) for each in aside] == [(1, 2), (1, 3), (1, 4)]
    assert all(each.payload[0] == payload_of(1, each.base_offset, 100) for each in aside)


async def test_a_damaged_head_puts_partitions_in_doubt_that_cannot_be_proven_whole(tmp_path: Path) -> None:
    file = await two_partitions(tmp_path / "wal")
    flip(file, FRAMES_AT + 3 * STEP + 5)
    report = repaired(tmp_path / "wal")
    assert report.lost == []
    assert report.missing_lsns == [(4, 4)]
    assert await offsets(tmp_path / "wal") == [(0, 0), (1, 0), *((0, offset) for offset in range(1, 5))]
    assert [(aside.partition, aside.base_offset) for aside in report.in_doubt] == [(1, 2), (1, 3), (1, 4)]


async def test_copies_of_earlier_frames_put_nothing_in_doubt(tmp_path: Path) -> None:
    """A frame that was copied forward stands behind later ones of its partition: those that follow continue the later ones."""
    frames = [frame(5), frame(6), frame(3), frame(4), frame(0, partition=1), frame(7), frame(4)]
    await fill(tmp_path / "wal", frames)
    flip(newest(tmp_path / "wal"), FRAMES_AT + 4 * STEP + 5)  # the head of partition 1's only frame
    report = repaired(tmp_path / "wal")
    assert report.in_doubt == []
    assert await offsets(tmp_path / "wal") == [(0, offset) for offset in (5, 6, 3, 4, 7, 4)]


async def test_a_partition_first_seen_after_a_hole_is_in_doubt(tmp_path: Path) -> None:
    await fill(tmp_path / "wal", [frame(0), frame(1), frame(2), frame(50, partition=3)])
    flip(newest(tmp_path / "wal"), FRAMES_AT + STEP + 5)
    report = repaired(tmp_path / "wal")
    assert [(aside.partition, aside.base_offset) for aside in report.in_doubt] == [(0, 2), (3, 50)]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_everything_readable_is_kept_or_set_aside_whatever_the_damage(
    tmp_path: Path, damage: Callable[[list[Path]], None]
) -> None:
    files = await three_files(tmp_path / "wal")
    damage(files)
    before = {path.name: path.read_bytes() for path in (tmp_path / "wal").glob("0*.wal")}
    readable = sum(file.frames for file in inspect(tmp_path / "wal").files)
    plan = plan_repair(tmp_path / "wal", clock=RealClock())
    assert {
        path.name: path.read_bytes() for path in (tmp_path / "wal").glob("0*.wal")
    } == before  # a plan changes nothing
    report = repaired(tmp_path / "wal")
    assert plan is not None
    assert (plan.kept_frames, plan.in_doubt, plan.lost) == (report.kept_frames, report.in_doubt, report.lost)
    for path in (tmp_path / "wal").glob("*.damaged-1"):
        assert path.read_bytes() == before[path.name.removesuffix(".damaged-1")]
    live = await offsets(tmp_path / "wal")
    aside = [(each.partition, each.base_offset) for each in read_set_aside(tmp_path / "wal" / "repair-1.json")]
    assert len({*live, *aside}) == len(live) + len(aside) == readable
    first = live[0][1] if live else 0
    assert live == [(0, offset) for offset in range(first, first + len(live))]
    # It can be used as before.
    async with opened(tmp_path / "wal") as wal:
        await wal.append(frame(live[-1][1] + 1 if live else 0))
    assert len(await offsets(tmp_path / "wal")) == len(live) + 1


async def test_many_kept_frames_fill_several_files(tmp_path: Path) -> None:
    await fill(tmp_path / "wal", (frame(offset, partition=offset % 2, size=3000) for offset in range(60)))
    first = min((tmp_path / "wal").glob("0*.wal"))
    flip(first, FRAMES_AT + FRAME_BYTES + 2)
    report = repaired(tmp_path / "wal")
    assert [lost.base_offset for lost in report.lost] == [0]
    assert await offsets(tmp_path / "wal") == [(1, offset) for offset in range(1, 60, 2)]


class DyingDisk(BlockDisk):
    """Fails at its `calls`-th sync."""

    def __init__(self, calls: int) -> None:
        self.calls_left = calls

    def sync(self, descriptor: int) -> None:
        self._count()
        super().sync(descriptor)

    def sync_directory(self, directory: Path) -> None:
        self._count()
        super().sync_directory(directory)

    def _count(self) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            raise KeyboardInterrupt


@pytest.mark.slow
async def test_an_interrupted_repair_keeps_the_wal_closed_until_it_is_finished(tmp_path: Path) -> None:
    interrupted = 0
    for calls in range(1, 20):
        directory = tmp_path / f"wal-{calls}"
        flip(await two_partitions(directory), FRAMES_AT + 3 * STEP + 5)
        try:
            repair(directory, clock=RealClock(), random=SeededRandom(5), disk=DyingDisk(calls))
        except KeyboardInterrupt:
            interrupted += 1
            if not (directory / "repair-1.json").exists():
                with pytest.raises(CorruptError, match=r"interrupted|unreadable"):
                    await offsets(directory)
                repair(directory, clock=RealClock(), random=SeededRandom(6))
        assert [offset for partition, offset in await offsets(directory) if partition == 0] == [0, 1, 2, 3, 4], calls
        assert len(list(read_set_aside(directory / "repair-1.json"))) == 3
    assert interrupted >= 5


async def test_a_second_repair_does_not_touch_the_first_ones_files(tmp_path: Path) -> None:
    flip(await two_partitions(tmp_path / "wal"), FRAMES_AT + 3 * STEP + 5)
    repaired(tmp_path / "wal")
    async with opened(tmp_path / "wal") as wal:
        for offset in range(5, 9):
            await wal.append(frame(offset))
    newest_file = newest(tmp_path / "wal")
    flip(newest_file, FRAMES_AT + 7)
    assert repaired(tmp_path / "wal").number == 2
    assert len(list((tmp_path / "wal").glob("*.damaged-1"))) >= 1
    assert len(list((tmp_path / "wal").glob("*.damaged-2"))) >= 1


async def test_a_wal_in_use_is_not_repaired(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal"):
        with pytest.raises(UnavailableError, match="is open in process"):
            repair(tmp_path / "wal", clock=RealClock(), random=SeededRandom(1))


async def test_a_torn_tail_needs_no_repair(tmp_path: Path) -> None:
    file = await two_partitions(tmp_path / "wal")
    overwrite(file, FRAMES_AT + 9 * STEP + FRAME_BYTES, b"torn")
    found = inspect(tmp_path / "wal")
    assert found.damage is None
    assert found.torn is not None
    assert repair(tmp_path / "wal", clock=RealClock(), random=SeededRandom(1)) is None


def test_what_is_no_wal_is_said_to_be_none(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InvalidError):
            inspect(path)
        with pytest.raises(InvalidError):
            repair(path, clock=RealClock(), random=SeededRandom(1))


async def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = await two_partitions(tmp_path / "wal")
    directory = str(tmp_path / "wal")
    assert await command("wal", "inspect", directory) == 0
    assert "This WAL can be opened." in capsys.readouterr().out
    assert await command("wal", "repair", directory) == 0
    assert "Nothing to repair." in capsys.readouterr().out

    flip(file, FRAMES_AT + 3 * STEP + FRAME_BYTES + 5)
    assert await command("wal", "inspect", directory) == 4
    assert f"{file.name} is corrupt at byte {FRAMES_AT + 3 * STEP}" in capsys.readouterr().out
    assert await command("wal", "inspect", directory, "--json") == 4
    *files, whole = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert files[0]["file"] == file.name
    assert files[0]["frames"] == 9
    assert whole["damage"] == {
        "file": file.name, "position": FRAMES_AT + 3 * STEP, "lsn": 4, "found": whole["damage"]["found"]
    }  # fmt: skip

    crash_copy(tmp_path / "wal", tmp_path / "before")
    assert await command("wal", "repair", directory) == 1
    assert "Nothing was changed. Add --yes to apply." in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "wal").iterdir()} == {
        path.name for path in (tmp_path / "before").iterdir()
    }
    assert await command("wal", "repair", directory, "--json") == 1
    planned = json.loads(capsys.readouterr().out)
    assert not planned["done"]

    assert await command("wal", "repair", directory, "--yes") == 0
    text = capsys.readouterr().out
    assert f"set aside: {file.name}" in text
    assert "repair-1.json" in text
    assert await command("wal", "inspect", directory) == 0
    assert "files set aside" in capsys.readouterr().out
    assert await command("wal", "inspect", str(tmp_path)) == 2


async def command(*argv: str) -> int:
    """The command line starts a loop of its own, so it needs a thread of its own here."""
    return await asyncio.to_thread(main, argv)
