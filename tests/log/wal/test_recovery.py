"""After a crash: what was torn is forgotten, what was synced and is damaged is refused, what was recycled is ignored."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.wal import TOPIC, crash_copy, fill, flip, frame, newest, offsets, opened, places
from tests.support.wal_damage import DAMAGES, three_files

from holdfast.log.wal.frames import FRAME_BYTES, FRAMES_AT
from holdfast.log.wal.recovery import scan_directory
from holdfast.vocabulary.errors import CorruptError, InvalidError

SIZES = (30, 0, 50)
STARTS = [FRAMES_AT + sum(FRAME_BYTES + size for size in SIZES[:at]) for at in range(len(SIZES) + 1)]


def readable(directory: Path) -> int:
    """How many frames can be trusted; raises if the WAL cannot."""
    verdict = scan_directory(directory, read_bytes=4096)
    if verdict.damage is not None:
        raise verdict.damage.error(directory)
    return verdict.next_lsn - 1


async def one_group(directory: Path) -> Path:
    """Three frames that went to disk together, and no mark after them: any of them may be torn."""
    async with opened(directory) as wal:
        answers = [wal.append(frame(offset, size=size)) for offset, size in enumerate(SIZES)]
        for answer in answers:
            await answer
        crash_copy(directory, directory.with_name("crash"))
        together = wal.stats.groups == 1
    shutil.rmtree(directory)
    directory.with_name("crash").rename(directory)
    if not together:  # the thread was faster than the calls
        shutil.rmtree(directory)
        return await one_group(directory)
    return newest(directory)


@pytest.mark.slow
async def test_a_tail_torn_at_any_byte_ends_after_the_last_whole_frame(tmp_path: Path) -> None:
    await one_group(tmp_path / "wal")
    file = newest(tmp_path / "wal").name
    whole = (tmp_path / "wal" / file).read_bytes()
    for cut in range(FRAMES_AT, STARTS[-1] + 1):
        expected = sum(start <= cut for start in STARTS[1:])
        torn = crash_copy(tmp_path / "wal", tmp_path / "torn")
        for rest in (b"", bytes(len(whole) - cut), b"\xa5" * (len(whole) - cut)):  # cut off, zeros, garbage
            (torn / file).write_bytes(whole[:cut] + rest)
            assert readable(torn) == expected, (cut, rest[:1])


@pytest.mark.slow
async def test_a_bit_flipped_anywhere_in_an_unproven_tail_ends_it_there(tmp_path: Path) -> None:
    file = await one_group(tmp_path / "wal")
    for position in range(FRAMES_AT, STARTS[-1]):
        flip(file, position, position % 8)
        assert readable(tmp_path / "wal") == sum(start <= position for start in STARTS[1:]), position
        flip(file, position, position % 8)
    assert readable(tmp_path / "wal") == 3


async def test_after_a_torn_tail_appending_goes_on_and_nothing_torn_comes_back(tmp_path: Path) -> None:
    """The frame after the torn one is whole on disk. A new frame as long as the torn one must not bring it back."""
    file = await one_group(tmp_path / "wal")
    flip(file, STARTS[0] + FRAME_BYTES + 3)
    async with opened(tmp_path / "wal") as wal:
        torn = wal.recovered.torn
        assert torn is not None
        assert (torn.path, torn.position, torn.lsn, torn.positions) == (file, STARTS[0], 1, tuple(STARTS[:3]))
        assert [place async for place in places(wal)] == []
        assert await wal.append(frame(7, size=SIZES[0])) == 1
        crash_copy(tmp_path / "wal", tmp_path / "crash")
    assert await offsets(tmp_path / "crash") == [(0, 7)]
    assert await offsets(tmp_path / "wal") == [(0, 7)]


async def test_a_recovered_tail_counts_as_synced_from_then_on(tmp_path: Path) -> None:
    """Its owner may have acted on it, so its damage is corruption even if nothing was appended since."""
    file = await one_group(tmp_path / "wal")
    async with opened(tmp_path / "wal"):
        crash_copy(tmp_path / "wal", tmp_path / "crash")
    for directory in (tmp_path / "wal", tmp_path / "crash"):
        flip(directory / file.name, STARTS[2] + 10)
        with pytest.raises(CorruptError):
            readable(directory)


async def test_what_a_clean_close_left_is_proven(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal") as wal:
        await wal.append(frame(0))
    file = newest(tmp_path / "wal")
    flip(file, FRAMES_AT)
    with pytest.raises(CorruptError, match=f"at byte {FRAMES_AT} .*LSN 1 is unreadable"):
        await offsets(tmp_path / "wal")


@pytest.mark.parametrize("victim", range(9))
async def test_damage_below_what_was_synced_is_refused_with_its_place(tmp_path: Path, victim: int) -> None:
    await fill(tmp_path / "wal", (frame(offset) for offset in range(10)))
    at = FRAMES_AT + victim * (FRAME_BYTES + 100)
    file = newest(tmp_path / "wal")
    for position in (at, at + 25, at + FRAME_BYTES - 1, at + FRAME_BYTES, at + FRAME_BYTES + 99):
        flip(file, position)
        before = {path.name: path.read_bytes() for path in (tmp_path / "wal").glob("*.wal")}
        with pytest.raises(CorruptError) as refused:
            await offsets(tmp_path / "wal")
        assert refused.value.what == f"WAL file {file} at byte {at}"
        assert "holdfast wal repair" in str(refused.value)
        assert {path.name: path.read_bytes() for path in (tmp_path / "wal").glob("*.wal")} == before
        flip(file, position)
    assert len(await offsets(tmp_path / "wal")) == 10


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damage_in_older_files_is_refused(tmp_path: Path, damage: Callable[[list[Path]], None]) -> None:
    damage(await three_files(tmp_path / "wal"))
    with pytest.raises(CorruptError):
        await offsets(tmp_path / "wal")


async def test_frames_of_an_earlier_generation_are_ignored(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal") as wal:
        for offset in range(60):
            await wal.append(frame(offset, size=3000))
            wal.release(TOPIC, 0, offset - 2)
        last = offset
        crash = crash_copy(tmp_path / "wal", tmp_path / "crash")
    file = newest(crash)
    stale = file.read_bytes().count(b"HFWL")
    verdict = scan_directory(crash)
    assert stale > verdict.files[-1].frames  # there are old frames behind the new ones, or this tests nothing
    assert verdict.torn is None
    assert (await offsets(crash))[-1] == (0, last)
    assert [offset for _, offset in await offsets(crash)] == list(range(verdict.files[0].first_lsn - 1, 60))


async def test_a_frame_inside_a_payload_is_not_taken_for_one(tmp_path: Path) -> None:
    """Somebody produces a copy of another WAL's file. After a torn tail a search for frames meets it."""
    file = await one_group(tmp_path / "other")
    copy = file.read_bytes()[FRAMES_AT : STARTS[-1]]
    async with opened(tmp_path / "wal", seed=2) as wal:
        await wal.append(frame(0)._replace(payload=(copy * 3,)))
        crash = crash_copy(tmp_path / "wal", tmp_path / "crash")
    flip(newest(crash), FRAMES_AT + 5)
    assert readable(crash) == 0


async def test_a_newer_format_is_not_taken_for_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("holdfast.log.wal.frames.VERSION", 3)
        await fill(tmp_path / "wal", [frame(0)])
    with pytest.raises(InvalidError, match="newer release"):
        await offsets(tmp_path / "wal")


async def test_an_unfinished_new_file_is_cleared_away(tmp_path: Path) -> None:
    await fill(tmp_path / "wal", [frame(0)])
    (tmp_path / "wal" / "spare.tmp").write_bytes(b"half")
    assert await offsets(tmp_path / "wal") == [(0, 0)]
    assert not (tmp_path / "wal" / "spare.tmp").exists()


async def test_frames_that_become_unreadable_later_are_not_passed_over(tmp_path: Path) -> None:
    await fill(tmp_path / "wal", (frame(offset) for offset in range(10)))
    async with opened(tmp_path / "wal") as wal:
        flip(newest(tmp_path / "wal"), FRAMES_AT + 5 * (FRAME_BYTES + 100) + 3)
        with pytest.raises(CorruptError, match="5 frames became unreadable"):
            assert [place async for place in places(wal)]
