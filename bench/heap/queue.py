"""What is measured of a queue: its clients enqueue, pop and acknowledge, several messages at a time if they are asked to.

The one rule: each call returns when its effect survives a crash of the server. A queue that cannot be started here raises
`UnavailableError`, and the others are measured without it.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

OURS: Final = "holdfast"


class Job(NamedTuple):
    """A message: the least priority is first."""

    priority: int
    payload: bytes


class QueueClient(Protocol):
    """One client. It makes one call at a time."""

    async def enqueue(self, jobs: Sequence[Job]) -> None: ...

    async def pop(self, count: int) -> Sequence[Any]:
        """Up to so many, the best first, leased; without waiting."""
        ...

    async def ack(self, popped: Sequence[Any]) -> None: ...


Clients: TypeAlias = Callable[[int], AbstractAsyncContextManager[Sequence[QueueClient]]]
"""So many clients, for as long as the body runs. The queue is empty at its begin."""


@dataclass(frozen=True)
class Queue:
    """A queue and how it is served, with what survives a crash."""

    name: str
    title: str
    serving: Callable[[Path], AbstractAsyncContextManager[Clients]]
    batches: bool = True  # whether a call may carry several messages
