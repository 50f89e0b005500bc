"""What processes cost: CPU seconds and memory of one and all its descendants, and of everybody else. Linux only."""

import os
import resource
import time
from pathlib import Path
from typing import Final

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_PROC: Final = Path("/proc")


def family(pid: int) -> list[int]:
    """`pid` and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found


def is_running(pid: int) -> bool:
    """Whether it has not ended, reaped or not."""
    fields = _stat(pid)
    return fields is not None and fields[0] not in "ZX"


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of the family, those that have ended included."""
    used = 0.0
    for each in family(pid):
        if (fields := _stat(each)) is not None:
            used += sum(int(field) for field in fields[11:15]) * _TICK_S
    return used


def resident_bytes(pid: int) -> int:
    """Memory of the family that is not on disk."""
    pages = 0
    for each in family(pid):
        try:
            pages += int((_PROC / str(each) / "statm").read_text().split()[1])
        except FileNotFoundError:
            continue
    return pages * resource.getpagesize()


def busy_seconds() -> float:
    """CPU seconds that all processes of the machine have used."""
    first = (_PROC / "stat").read_text().splitlines()[0].split()
    user, nice, system, _idle, _waiting, interrupts, soft, stolen = (int(each) for each in first[1:9])
    return (user + nice + system + interrupts + soft + stolen) * _TICK_S


def wait_until_quiet(pid: int, *, share_max: float = 0.1, at_most_s: float = 10.0) -> None:
    """Until the family uses less than `share_max` of a core: what was put off is part of the work."""
    deadline = time.monotonic() + at_most_s
    before = cpu_seconds(pid)
    while time.monotonic() < deadline:
        time.sleep(0.25)
        used, before = cpu_seconds(pid) - before, cpu_seconds(pid)
        if used <= share_max * 0.25:
            return


def wait_for_idle_machine(*, at_most_s: float, cores_max: float = 0.3) -> None:
    """Until all processes together use less than `cores_max`: somebody else's work disturbs a measurement."""
    deadline = time.monotonic() + at_most_s
    while time.monotonic() < deadline:
        before = busy_seconds()
        time.sleep(0.5)
        if busy_seconds() - before < cores_max * 0.5:
            return


def _stat(pid: int) -> list[str] | None:
    """The fields behind the name, which may hold blanks; state, parent, …"""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
