"""How quiet the machine was during a measurement: figures of a busy one say little."""

import os
from pathlib import Path
from typing import Final, NamedTuple

_STAT: Final = Path("/proc/stat")
_IDLE, _WAITING, _STOLEN = 3, 4, 7


class _Ticks(NamedTuple):
    all: int
    idle: int
    stolen: int


class MachineUse:
    """Of all cores, since it was made."""

    def __init__(self) -> None:
        self._began = _ticks()

    def __str__(self) -> str:
        began, ended = self._began, _ticks()
        load = f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
        if began is None or ended is None or ended.all == began.all:
            return load
        elapsed = ended.all - began.all
        idle, stolen = (ended.idle - began.idle) / elapsed, (ended.stolen - began.stolen) / elapsed
        return f"{load}; {idle:.0%} of their time idle, {stolen:.0%} given to other machines by the hypervisor"


def _ticks() -> _Ticks | None:
    """None: this system does not say."""
    try:
        first = _STAT.read_text().splitlines()[0].split()
    except OSError:
        return None
    ticks = [int(each) for each in first[1:9]]
    return _Ticks(sum(ticks), ticks[_IDLE] + ticks[_WAITING], ticks[_STOLEN])
