"""What goes wrong inside an agent's process: a disk that is full, a wall clock that jumps, and bugs that are planted.

`install` is called in every process that `AgentFaults.environment` was given to, by the `sitecustomize` of the failpoints. The one
rule: nothing of it is in the product; a file in the agent's folder says what is on.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.failpoints import FailpointFolder

VARIABLE: Final = "HOLDFAST_TEST_AGENT_FAULTS"


class AgentFaults:
    """The test's side: what is wrong in one agent's process."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.failpoints = FailpointFolder(folder / "failpoints")

    @property
    def environment(self) -> dict[str, str]:
        """For the agent's process."""
        return {**self.failpoints.environment, VARIABLE: str(self._folder)}

    def disk_full(self, full: bool) -> None:
        """Whether the WAL's disk takes anything."""
        _switch(self._folder / "disk-full", full)

    def clock_offset_ms(self, offset_ms: int) -> None:
        """How far the wall clock is off."""
        temporary = self._folder / "clock.new"
        temporary.write_text(str(offset_ms))
        temporary.rename(self._folder / "clock")

    def plant(self, bug: str) -> None:
        """Put a bug in; it counts from the next start of the process on."""
        (self._folder / f"planted.{bug}").touch()


def _switch(file: Path, on: bool) -> None:
    if on:
        file.touch()
    else:
        file.unlink(missing_ok=True)


def install(folder: Path) -> None:
    """In this process. Imports what it wraps."""
    _break_disk(folder)
    _shift_clock(folder)
    planted = [file.name.partition(".")[2] for file in folder.glob("planted.*")]
    if planted:
        from tests.chaos import planted_bugs

        for bug in planted:
            planted_bugs.plant(bug)


def _break_disk(folder: Path) -> None:
    from holdfast.log.wal.disk import WalDisk

    file, write, write_blocks, free_bytes = (
        folder / "disk-full",
        WalDisk.write,
        WalDisk.write_blocks,
        WalDisk.free_bytes,
    )

    def refuse() -> None:
        if file.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def writing(self: WalDisk, descriptor: int, buffers: Sequence[Any], position: int) -> int:
        refuse()
        return write(self, descriptor, buffers, position)

    def writing_blocks(
        self: WalDisk, descriptor: int, buffers: Sequence[Any], memory: memoryview, position: int
    ) -> int:
        refuse()
        return write_blocks(self, descriptor, buffers, memory, position)

    WalDisk.without_interpreter = property(lambda self: not file.exists())  # type: ignore[assignment]
    WalDisk.write = writing  # type: ignore[method-assign]
    WalDisk.write_blocks = writing_blocks  # type: ignore[method-assign]
    WalDisk.free_bytes = lambda self, directory: 0 if file.exists() else free_bytes(self, directory)  # type: ignore[method-assign]


def _shift_clock(folder: Path) -> None:
    from holdfast.vocabulary.clock import RealClock

    file, now_ms = folder / "clock", RealClock.now_ms

    def shifted_ms(self: RealClock) -> int:
        try:
            return now_ms(self) + int(file.read_text())
        except FileNotFoundError:
            return now_ms(self)

    RealClock.now_ms = shifted_ms  # type: ignore[method-assign]
