"""Processes that a test forks on purpose.

Threads of the test's process may have locks that its copy waits for, for ever: a copy that does not end has the pipes of the test
worker open, and the whole run waits for it.
"""

import signal
from typing import Final

_SECONDS: Final = 60


def end_in_time() -> None:
    """Called first in a forked process: the kernel ends it after a minute, whatever it waits for."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _SECONDS)
