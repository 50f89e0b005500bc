"""The processes of a session (in the sense of setsid): listed, and killed.

A driver is the leader of a session of its own. The JVM stays in its process group; Spark's Python workers, which do the inserts,
make groups of their own. None leaves the session, so the session is killed. The one rule: a driver is dead when no process of its
session is left.
"""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.vocabulary.clock import Clock

_POLL_MS: Final = 10
_GONE: Final = b"ZX"  # dead, not yet reaped by its parent


def members(session: int) -> list[int]:
    """The living processes of a session. Without `/proc`: the leader, if its group has any."""
    if sys.platform != "linux":
        with suppress(OSError):
            os.killpg(session, 0)
            return [session]
        return []
    numbers = (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())
    return [pid for pid in numbers if _is_in(pid, session)]


def _is_in(pid: int, session: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    # The name in brackets may contain anything; after it come state, parent, group, session.
    state, _, _, its_session = stat.rpartition(b")")[2].split()[:4]
    return int(its_session) == session and state not in _GONE


def kill(session: int) -> bool:
    """SIGKILL every process of a session; whether there was any."""
    with suppress(OSError):
        os.killpg(session, signal.SIGKILL)
    left = members(session)
    for pid in left:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return bool(left)


async def kill_all(session: int, *, clock: Clock, within_ms: int) -> bool:
    """Kill until no process is left. False: one did not die in time (it hangs in the kernel)."""
    until_ms = clock.boot_ms() + within_ms
    while kill(session):
        if clock.boot_ms() >= until_ms:
            return False
        await clock.sleep_ms(_POLL_MS)
    return True
