"""Time slices of threads, as the kernel shows them."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast.vocabulary.time_slice import shorten_time_slice

_SHOW = "import pathlib; print(pathlib.Path('/proc/self/sched').read_text())"


def slice_ns(sched: str) -> int:
    (line,) = (line for line in sched.splitlines() if line.startswith("se.slice"))
    return int(line.split()[-1])


def kernel_takes_slices() -> bool:
    release = os.uname().release.split(".")
    return sys.platform == "linux" and (int(release[0]), int(release[1].split("-")[0])) >= (6, 12)


needs_slices = pytest.mark.skipif(
    not kernel_takes_slices() or "se.slice" not in Path("/proc/self/sched").read_text(),
    reason="slices of threads need Linux 6.12 with CONFIG_SCHED_DEBUG",
)


def own_slice_ns() -> int:
    return slice_ns(Path(f"/proc/self/task/{threading.get_native_id()}/sched").read_text())


@needs_slices
def test_a_thread_gets_short_slices_and_what_it_starts_does_not() -> None:
    found: dict[str, int] = {}

    def inner() -> None:
        found["thread"] = own_slice_ns()

    def outer() -> None:
        found["before"] = own_slice_ns()
        assert shorten_time_slice()
        found["after"] = own_slice_ns()
        started = threading.Thread(target=inner)
        started.start()
        started.join()
        shown = subprocess.run([sys.executable, "-c", _SHOW], capture_output=True, text=True, check=True)
        found["process"] = slice_ns(shown.stdout)
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        assert not shorten_time_slice(), "another policy is somebody's decision"

    thread = threading.Thread(target=outer)
    thread.start()
    thread.join()
    assert found == {
        "before": found["before"],
        "after": 500_000,
        "thread": found["before"],
        "process": found["before"],
    }
    assert own_slice_ns() == found["before"] > 500_000
