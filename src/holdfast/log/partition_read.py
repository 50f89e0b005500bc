"""What a read of a partition answers: batches, the log's bounds, and something to wait on for more. Data only."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from holdfast.log.batches import Buffer


class ReadProgress(Protocol):
    """The visible end of a partition that is led here, to wait on. Nothing awaits: a reader of many partitions asks often."""

    @property
    def high_watermark(self) -> int:
        """Everything below is visible."""
        ...

    def resolve_beyond(self, offset: int, waiter: "asyncio.Future[None]") -> None:
        """Resolve `waiter` (shared by several partitions) once the high watermark is above `offset`, or fail it."""
        ...

    def forget(self, offset: int) -> None:
        """A waiter for `offset` has stopped waiting."""
        ...

    def read_tail(self, offset: int, *, bytes_max: int) -> Sequence[Buffer] | None:
        """Visible batches from `offset` on; None: not in the tail any more, read segments."""
        ...


class PartitionRead(NamedTuple):
    """Whole batches in offset order, the log's bounds and leader epoch when they were read, and what to wait on for more.

    Not `in_memory`: there are batches, and only object storage has them.
    """

    batches: Sequence[Buffer]
    size_bytes: int
    start_offset: int
    high_watermark: int
    epoch: int
    progress: ReadProgress
    in_memory: bool = True
