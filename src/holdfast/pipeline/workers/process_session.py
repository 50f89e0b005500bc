"""Everybody in a session of processes: found, and killed.

A driver is the leader of a session of its own. The JVM stays in its process group; Spark's Python workers make groups of their
own, and they are who inserts. They cannot leave the session, so that is what is killed. The one rule: a driver is dead when nobody
of its session is left.
"""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.vocabulary.clock import Clock

_LOOK_MS: Final = 10
_GONE: Final = b"ZX"  # dead, and not yet asked for by its parent


def members(session: int) -> list[int]:
    """The processes of a session that can still do something. Without `/proc`: the leader's group, if anybody is in it."""
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
    # The name in brackets may hold anything; behind it come state, parent, group, session.
    state, _, _, its_session = stat.rpartition(b")")[2].split()[:4]
    return int(its_session) == session and state not in _GONE


def kill(session: int) -> bool:
    """SIGKILL everybody of a session; whether there was anybody."""
    with suppress(OSError):
        os.killpg(session, signal.SIGKILL)
    left = members(session)
    for pid in left:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return bool(left)


async def kill_all(session: int, *, clock: Clock, within_ms: int) -> bool:
    """Kill until nobody is left. False: somebody did not die in time (it hangs in the kernel)."""
    until_ms = clock.boot_ms() + within_ms
    while kill(session):
        if clock.boot_ms() >= until_ms:
            return False
        await clock.sleep_ms(_LOOK_MS)
    return True
