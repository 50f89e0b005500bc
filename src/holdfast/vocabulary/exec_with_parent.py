"""`exec_with_parent.py PARENT COMMAND…` becomes the command, and dies with its parent, however that dies.

Run by its path, as a program of its own: it imports nothing of ours, so that it starts fast. Linux keeps the request to be killed
with the parent across `exec`; other systems have none, and there the end of stdin must do.
"""

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def main(argv: list[str]) -> None:
    """Request to be killed with the parent, check that it still lives, become the command."""
    parent, command = int(argv[1]), argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise SystemExit(f"the parent, process {parent}, has exited")
    os.execv(command[0], command)  # noqa: S606 (no shell; the parent chooses the command)


if __name__ == "__main__":
    main(sys.argv)
