"""Damage to the older files of a WAL, which recovery refuses and repair mends."""

from pathlib import Path

from tests.support.wal import SMALL, fill, flip, frame, overwrite

from holdfast.log.wal.files import live_files
from holdfast.log.wal.frames import FRAMES_AT, OPENING_AT


async def three_files(directory: Path) -> list[Path]:
    await fill(directory, (frame(offset, size=3000) for offset in range(27)))
    files = [path for _, path in live_files(directory) if any(path.read_bytes()[OPENING_AT:FRAMES_AT])]
    assert len(files) == 4 or len(files) == 3
    return files


def cut_end(files: list[Path]) -> None:
    overwrite(files[0], SMALL.file_bytes - 8000, bytes(8000))


def lose_file(files: list[Path]) -> None:
    files[1].unlink()


def lose_header(files: list[Path]) -> None:
    flip(files[1], 10)


def lose_opening(files: list[Path]) -> None:
    flip(files[1], OPENING_AT + 10)


def lose_first_frame(files: list[Path]) -> None:
    flip(files[1], FRAMES_AT + 10)


def lose_first_file_start(files: list[Path]) -> None:
    flip(files[0], FRAMES_AT + 10)


def shorten(files: list[Path]) -> None:
    files[1].write_bytes(files[1].read_bytes()[:100])


def swap(files: list[Path]) -> None:
    first, second = files[0].read_bytes(), files[1].read_bytes()
    files[0].write_bytes(second)
    files[1].write_bytes(first)


DAMAGES = [cut_end, lose_file, lose_header, lose_opening, lose_first_frame, lose_first_file_start, shorten, swap]
