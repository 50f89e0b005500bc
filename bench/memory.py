"""How much memory this process holds, watched from a thread while something else runs."""

import resource
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_STATUS: Final = Path("/proc/self/statm")
_EVERY_S: Final = 0.02


def resident_bytes() -> int:
    """Resident now; where the system does not say, the most there ever was."""
    if _STATUS.exists():
        return int(_STATUS.read_text().split()[1]) * resource.getpagesize()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


class MemoryWatch:
    """Samples in the order they were taken, `before` the body excluded."""

    def __init__(self) -> None:
        self.before_bytes = resident_bytes()
        self.samples: list[int] = []

    @property
    def peak_bytes(self) -> int:
        return max(self.samples, default=self.before_bytes)

    @property
    def grown_bytes(self) -> int:
        """How much more than before, at most."""
        return self.peak_bytes - self.before_bytes

    def tenths(self) -> list[int]:
        """The peak of each tenth of the time."""
        size = max(1, -(-len(self.samples) // 10))
        return [max(self.samples[at : at + size]) for at in range(0, len(self.samples), size)]


@contextmanager
def watch_memory() -> Iterator[MemoryWatch]:
    """Sample while the body runs."""
    seen, ended = MemoryWatch(), threading.Event()

    def sample() -> None:
        while not ended.wait(_EVERY_S):
            seen.samples.append(resident_bytes())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
        seen.samples.append(resident_bytes())
