"""Commands whose processes die with the one that starts them, however that dies."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_PROGRAM: Final = str(
    Path(__file__).with_name("exec_with_parent.py")
)  # isolated: its folder has modules of Python's names

# How a process asks those that it started to stop. Not SIGTERM or SIGINT: a terminal and a service manager send these to all of
# them at once, and a second one ends a server without ceremony.
STOP_SIGNAL: Final = signal.SIGUSR1


def with_parent(command: Sequence[str]) -> list[str]:
    """The command, to be started by the main thread of this process: the kernel counts the thread that starts it as the parent."""
    return [sys.executable, "-I", _PROGRAM, str(os.getpid()), *command]
