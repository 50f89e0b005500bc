"""What the disk itself takes: one small write and `fdatasync` after the other, at the pace of the latency case."""

import os
import time
from pathlib import Path
from typing import Final

FILE_BYTES: Final = 16 << 20


def sync_latencies_us(directory: Path, *, size: int, seconds: float, per_second: float) -> list[float]:
    """Sorted. The file is written beforehand and written over in order, as a recycled log is."""
    path = directory / "bare"
    path.write_bytes(bytes(FILE_BYTES))
    payload, took, at = os.urandom(size), [], 0
    file = os.open(path, os.O_RDWR)
    try:
        os.fsync(file)
        due = time.perf_counter()
        until = due + seconds
        while due < until:
            time.sleep(max(0.0, due - time.perf_counter()))
            started = time.perf_counter()
            os.pwrite(file, payload, at)
            os.fdatasync(file)
            took.append((time.perf_counter() - started) * 1e6)
            at = (at + size) % (FILE_BYTES - size)
            due = max(due + 1 / per_second, started)  # a disk that cannot keep the pace is not sent a flood
    finally:
        os.close(file)
        path.unlink()
    return sorted(took)


def at_share(ordered: list[float], share: float) -> float:
    """The value that `share` of all do not exceed."""
    return ordered[int((len(ordered) - 1) * share)]
