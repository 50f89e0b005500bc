"""The WAL's directory: which files are in it, who may write, how a file comes into use and goes out of it.

Names say the state, so that a crash at any step leaves no doubt:

    {generation}.wal     live: header written and synced before it got this name
    spare-{n}.wal        written once from end to end; its content means nothing
    *.tmp                being made; deleted when the WAL is opened

The one rule: a file's header is on stable storage before its live name is, and a name before the next step. Everything here blocks.
"""

import fcntl
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.log.wal.disk import NO_SPACE, WalDisk, close_quietly, sync_or_stop, write_all
from holdfast.log.wal.frames import FRAMES_AT, OPENING_AT, FileHeader, encode_file_header, encode_opening, salt_of
from holdfast.log.wal.settings import WalSettings
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import MIB

_LIVE: Final = re.compile(r"([0-9]{12,20})\.wal")
_SPARE: Final = re.compile(r"spare-([0-9]+)\.wal")
LOCK_NAME: Final = "lock"
_ZEROS: Final = bytes(MIB)


@dataclass(slots=True)
class OpenFile:
    """A file that frames are appended to."""

    path: Path
    header: FileHeader
    descriptor: int
    position: int = FRAMES_AT
    replicated: bool = False  # its header was seen to say so since it was opened
    mark: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.mark = self.header.mark

    @property
    def left_bytes(self) -> int:
        """What still fits."""
        return self.header.file_bytes - self.position


def live_name(generation: int) -> str:
    """The name of the file in its `generation`."""
    return f"{generation:012d}.wal"


def live_files(directory: Path) -> list[tuple[int, Path]]:
    """(generation, path) of every live file, oldest first."""
    return _matching(directory, _LIVE)


def spare_files(directory: Path) -> list[tuple[int, Path]]:
    """(number, path) of every spare file."""
    return _matching(directory, _SPARE)


def _matching(directory: Path, pattern: re.Pattern[str]) -> list[tuple[int, Path]]:
    found = ((pattern.fullmatch(path.name), path) for path in directory.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


class DirectoryLock:
    """An flock: the system lets go of it when its process dies, however it dies."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor = -1

    def take(self) -> None:
        """Raise `UnavailableError` if another process, or another WAL of this one, has the directory open."""
        self._descriptor = os.open(self._directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode(errors="replace") or "unknown"
            self.release()
            raise UnavailableError(
                f"WAL {self._directory}", f"it is open in process {holder}; only one may write it: stop that one first"
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """Let the next one in."""
        close_quietly(self._descriptor)


class WalFiles:
    """Makes files live and spare: after the opening the keeper's work, except `begin`, which is the writer's."""

    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock,
        random: Random,
        settings: WalSettings,
        disk: WalDisk,
    ) -> None:
        self.directory = directory
        self._clock, self._random, self._settings = clock, random, settings
        self._disk = disk

    def clear_unfinished(self) -> None:
        """Delete what a crash left half made."""
        for path in self.directory.glob("*.tmp"):
            path.unlink()

    def prepare(self, generation: int) -> OpenFile:
        """A live file without frames, in its new generation."""
        path = self._take_spare() or self._create()
        header = FileHeader(generation, salt_of(self._random.token()), self._settings.file_bytes, self._clock.now_ms())
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            write_all(self._disk, descriptor, (encode_file_header(header),), 0)
            self._disk.sync(descriptor)
            failpoints.reached("wal.file-header-written")
            live = path.rename(self.directory / live_name(generation))
            self._disk.sync_directory(self.directory)
            failpoints.reached("wal.file-live")
        except BaseException:
            close_quietly(descriptor)
            raise
        return OpenFile(live, header, descriptor)

    def begin(self, file: OpenFile, first_lsn: int) -> None:
        """Say with which LSN the file starts. Everything before it must be synced."""
        record = encode_opening(file.header, first_lsn, self._clock.now_ms())
        write_all(self._disk, file.descriptor, (record,), OPENING_AT)
        sync_or_stop(self._disk, file.descriptor, file.path)
        failpoints.reached("wal.file-opened")

    def retire(self, path: Path) -> None:
        """Nothing in the file is needed any more: keep it as a spare, or delete it if there are enough."""
        spares = spare_files(self.directory)
        fits = path.stat().st_size == self._settings.file_bytes
        if fits and len(spares) < self._settings.files_spare_max:
            number = spares[-1][0] + 1 if spares else 1
            try:
                path.rename(self.directory / f"spare-{number:06d}.wal")
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise
                path.unlink()
        else:
            path.unlink()
        self._disk.sync_directory(self.directory)
        failpoints.reached("wal.file-retired")

    def _take_spare(self) -> Path | None:
        for _, path in spare_files(self.directory):
            if path.stat().st_size == self._settings.file_bytes:
                return path
            path.unlink()  # another size was configured when it was made
        return None

    def has_room(self) -> bool:
        """Whether there is another file, or space for one. May be called beside the thread that takes and retires files."""
        if self._has_space():
            return True
        for _, path in spare_files(self.directory):
            with suppress(FileNotFoundError):  # it was just taken
                if path.stat().st_size == self._settings.file_bytes:
                    return True
        return False

    def _has_space(self) -> bool:
        return self._disk.free_bytes(self.directory) >= self._settings.file_bytes

    def _create(self) -> Path:
        """A file written with zeros once, so that later writes allocate nothing and change no metadata."""
        size = self._settings.file_bytes
        if not self._has_space():
            raise OSError(min(NO_SPACE), "not enough space for another WAL file")
        making = self.directory / "spare.tmp"
        descriptor = os.open(making, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            for position in range(0, size, len(_ZEROS)):
                zeros = memoryview(_ZEROS)[: size - position]
                write_all(self._disk, descriptor, (zeros,), position)
            self._disk.sync(descriptor)
            failpoints.reached("wal.file-zeroed")
        except BaseException:
            making.unlink()
            raise
        finally:
            close_quietly(descriptor)
        return making
