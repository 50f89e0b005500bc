"""Commands whose processes die with the one that starts them, however that dies."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_PROGRAM: Final = str(
    Path(__file__).with_name("exec_with_parent.py")
)  # isolated: its folder has modules of Python's names


def with_parent(command: Sequence[str]) -> list[str]:
    """The command, to be started by the main thread of this process: the kernel counts the thread that starts it as the parent."""
    return [sys.executable, "-I", _PROGRAM, str(os.getpid()), *command]
