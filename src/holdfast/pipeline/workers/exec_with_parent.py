"""`exec_with_parent.py PARENT COMMAND…` becomes the command, and dies with its parent, however that dies.

Run by its path, as a program of its own: it imports nothing of ours, so that it is gone in a moment. The kernel's request to be
killed with the parent is kept across `exec`; where there is none (other systems than Linux), the end of stdin must do.
"""

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main(argv: list[str]) -> None:
    """Ask to be killed with the parent, see that it is still there, become the command."""
    parent, command = int(argv[1]), argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(f"the worker {parent} is gone already")
    os.execv(command[0], command)  # noqa: S606 (there is no shell, and the worker says what)


if __name__ == "__main__":
    main(sys.argv)
