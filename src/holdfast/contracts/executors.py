"""Executors: other processes, perhaps of other machines, that run tasks for a driver.

The one rule: a task may run more than once, also at the same time, and may go on after its driver has given it up.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

Task = Callable[[Iterator[Any]], Iterator[Any]]
"""Arrow batches whose first column is the task's numbers in, batches of one text column out. It pickles."""


class Executors(Protocol):
    """The executors of one driver."""

    @property
    def width(self) -> int:
        """About how many tasks run at the same time."""
        ...

    def run(self, task: Task, count: int) -> list[str]:
        """Run the task for each number below `count`; the texts, in any order. `UnavailableError`: not all of them ran."""
        ...
