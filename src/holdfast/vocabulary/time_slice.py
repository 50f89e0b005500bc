"""Threads whose work is short and waited for: they get a core before those that compute for long.

A request passes from the event loop to the WAL's thread and back. Where more threads want to run than there are cores, each of
these hand-overs waits for a time slice of somebody else, by default some milliseconds. Such threads ask for short ones, since
Linux 6.12: they get no more of a core, only sooner. Threads and processes that they start have the default again.
"""

from holdfast.vocabulary.native import native


def shorten_time_slice() -> bool:
    """Ask for short time slices for this thread. False: it stays as it is, which costs nothing but time."""
    return native is not None and native.shorten_time_slice()
