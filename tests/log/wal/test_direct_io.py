"""Writing past the page cache: the same frames on disk, whatever a group's size and place, and whatever the system says."""

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.wal import crash_copy, frame, offsets, opened
from tests.support.wal_disks import BlockDisk, CacheOnlyDisk

from holdfast.log.wal import WalDisk, WalSettings, disk
from holdfast.log.wal.direct_io import DirectWriter
from holdfast.log.wal.disk import write_padded
from holdfast.log.wal.files import OpenFile, live_files
from holdfast.log.wal.frames import FRAMES_AT, Buffer, FileHeader
from holdfast.vocabulary.alignment import DISK_BLOCK_BYTES, alignment_padding
from holdfast.vocabulary.native import native
from holdfast.vocabulary.settings import KIB, MIB
from holdfast.vocabulary.tracked_memory import anonymous_mmap

SIZES = [1, 95, 4000, 4096, 4097, 100_000, 1, MIB - 60, 7, 3 * MIB + 5, 0, 12]


def noise(size: int, seed: int) -> bytes:
    return (seed.to_bytes(2, "big") * (size // 2 + 1))[:size]


@pytest.fixture(params=["C", "Python"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "Python":
        monkeypatch.setattr(disk, "native", None)
    elif native is None:
        pytest.skip("the C kernel was not built: no compiler")


def a_file(path: Path, size: int = 8 * MIB) -> OpenFile:
    path.write_bytes(b"\xaa" * size)
    return OpenFile(path, FileHeader(1, 2, size, 0), os.open(path, os.O_RDWR))


@pytest.mark.usefixtures("kernel")
def test_bytes_lie_one_behind_another_and_zeros_fill_the_last_block(tmp_path: Path) -> None:
    file = a_file(tmp_path / "file")
    blocks, expected = DirectWriter(WalDisk()), b""
    for seed, size in enumerate(SIZES):
        parts: list[Buffer] = [noise(size // 3, seed), memoryview(noise(size - size // 3, seed))]
        assert blocks.write(file, parts, size)
        file.position += size
        expected += b"".join(bytes(part) for part in parts)
        found = file.path.read_bytes()
        assert found[FRAMES_AT : file.position] == expected
        end = file.position + -file.position % DISK_BLOCK_BYTES
        assert not found[file.position : end].strip(b"\0")
        assert found[end : end + 10] in (b"", b"\xaa" * 10)
    assert len(file.path.read_bytes()) == file.header.file_bytes
    blocks.close()
    os.close(file.descriptor)


@pytest.mark.slow
def test_large_parts_are_written_from_where_they_lie(tmp_path: Path) -> None:
    """Wherever they lie, whatever stands before them, and however many there are."""
    pytest.importorskip("holdfast._native", reason="the C kernel was not built: no compiler")
    file = a_file(tmp_path / "file", 24 * MIB)
    arena = memoryview(anonymous_mmap(2 * MIB))
    for at in range(0, len(arena), 8):
        arena[at : at + 8] = at.to_bytes(8, "big")
    blocks, expected = DirectWriter(WalDisk()), b""
    for turn, size in enumerate([64 * KIB, 64 * KIB + 1, 100_000, MIB, MIB + 4095, 5 * 4096 + 64 * KIB]):
        parts: list[Buffer] = []
        position = file.position
        for start in (0, 1, 4095, 4096, 12_345, *range(70 if turn == 0 else 0)):
            part = arena[start : start + size]
            head = b"head" * (start % 7 + 1)
            gap = bytes(alignment_padding(part, position + len(head), min_bytes=KIB))
            parts += [head, gap, part]
            position += len(head) + len(gap) + size
        assert blocks.write(file, parts, position - file.position)
        file.position = position
        expected += b"".join(bytes(part) for part in parts)
        assert file.path.read_bytes()[FRAMES_AT : file.position] == expected
        assert blocks.write(file, [b"small"], 5)
        file.position, expected = file.position + 5, expected + b"small"
    assert file.path.read_bytes()[FRAMES_AT : file.position] == expected
    blocks.close()
    os.close(file.descriptor)


LARGE = WalSettings(file_bytes=MIB, files_spare_max=3, read_bytes=64 * KIB)


@pytest.mark.parametrize(
    "disk", [WalDisk(), BlockDisk(), CacheOnlyDisk()], ids=["past the cache", "through it", "only it"]
)
async def test_large_frames_are_found_again_with_gaps_before_them_and_files_that_are_filled_to_the_end(
    tmp_path: Path, disk: WalDisk
) -> None:
    sizes = [size for at in range(12) for size in (64 * KIB + at, 10 * at, 200_000 + 7 * at, MIB - FRAMES_AT - 96)]
    async with opened(tmp_path / "wal", disk=disk, settings=LARGE) as wal:
        answers = [wal.append(frame(offset, size=size)) for offset, size in enumerate(sizes)]
        assert await asyncio.gather(*answers) == list(range(1, len(sizes) + 1))
        crashed = crash_copy(tmp_path / "wal", tmp_path / "crashed")
    for directory in (tmp_path / "wal", crashed):
        assert await offsets(directory, settings=LARGE) == [(0, offset) for offset in range(len(sizes))]


@pytest.mark.usefixtures("kernel")
def test_what_went_another_way_in_between_is_kept(tmp_path: Path) -> None:
    file = a_file(tmp_path / "file")
    blocks = DirectWriter(WalDisk())
    assert blocks.write(file, [b"one "], 4)
    file.position += 4
    os.pwrite(file.descriptor, b"two ", file.position)
    file.position += 4
    assert blocks.write(file, [b"three"], 5)
    assert file.path.read_bytes()[FRAMES_AT : FRAMES_AT + 14] == b"one two three\0"
    os.close(file.descriptor)


def test_a_file_that_ends_within_a_block_is_not_made_longer(tmp_path: Path) -> None:
    file = a_file(tmp_path / "file", FRAMES_AT + 5_000)
    blocks = DirectWriter(WalDisk())
    assert blocks.write(file, [b"x"], 1)
    file.position += 4_096
    assert not blocks.write(file, [b"x"], 1)
    assert file.path.stat().st_size == FRAMES_AT + 5_000
    os.close(file.descriptor)


class Refusing(WalDisk):
    """Opens, and refuses after so many writes of blocks."""

    def __init__(self, error: int, after: int) -> None:
        self._error, self._left = error, after

    def write_blocks(self, descriptor: int, buffers: Sequence[Buffer], memory: memoryview, position: int) -> int:
        self._left -= 1
        if self._left < 0:
            raise OSError(self._error, os.strerror(self._error))
        return super().write_blocks(descriptor, buffers, memory, position)


class Unable(WalDisk):
    def open_blocks(self, path: Path) -> int | None:
        raise OSError(errno.EINVAL, "not on this file system")


@pytest.mark.parametrize(
    "disk",
    [Refusing(errno.EINVAL, 0), Refusing(errno.EOPNOTSUPP, 3), Unable()],
    ids=["at once", "later", "never opened"],
)
async def test_a_system_that_cannot_goes_through_its_cache(tmp_path: Path, disk: WalDisk) -> None:
    async with opened(tmp_path / "wal", disk=disk) as wal:
        for offset in range(8):
            assert await wal.append(frame(offset, size=700 * offset)) == offset + 1
    assert await offsets(tmp_path / "wal") == [(0, offset) for offset in range(8)]


@pytest.mark.parametrize("disk", [WalDisk(), BlockDisk()], ids=["past the cache", "through it"])
async def test_frames_are_found_again_after_every_reopening(tmp_path: Path, disk: WalDisk) -> None:
    for round_ in range(5):
        async with opened(tmp_path / "wal", disk=disk) as wal:
            for offset in range(round_ * 4, round_ * 4 + 4):
                await wal.append(frame(offset, size=offset * 333))
    assert [offset for _, offset in await offsets(tmp_path / "wal")] == list(range(20))
    assert all(path.stat().st_size % KIB == 0 for _, path in live_files(tmp_path / "wal"))


def test_the_pure_python_writer_finishes_short_writes_and_reports_when_nothing_is_taken() -> None:
    written = bytearray(3 * DISK_BLOCK_BYTES)

    def short(view: memoryview, at: int) -> int:
        taken = max(1, len(view) // 2)
        written[at : at + taken] = view[:taken]
        return taken

    memory = memoryview(anonymous_mmap(DISK_BLOCK_BYTES))
    write_padded(short, [b"a" * 5_000, b"", b"b"], memory, 0)
    assert bytes(written) == (b"a" * 5_000 + b"b").ljust(2 * DISK_BLOCK_BYTES, b"\0") + bytes(DISK_BLOCK_BYTES)
    with pytest.raises(OSError, match="took no bytes"):
        write_padded(lambda view, at: 0, [b"a"], memory, 0)
