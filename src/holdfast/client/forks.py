"""Whether this process is a fork of the one that opened a client: the client's threads stayed behind.

The one rule: a check costs no system call, so that it can be made for every record.
"""

import os

from holdfast.vocabulary.errors import UsageError

_forks = 0


class ForkCheck:
    """Made where a client is opened."""

    def __init__(self, what: str) -> None:
        self._what, self._process, self._forks = what, os.getpid(), _forks

    def check(self) -> None:
        """`UsageError` in a fork."""
        if self._forks != _forks:
            raise UsageError(f"this {self._what} was opened by process {self._process}: after a fork, open another one")


def _count() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count)
