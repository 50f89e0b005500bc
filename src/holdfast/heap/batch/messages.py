"""What a coordinator asks of the partitions of a batch, and what they answer. Data only."""

import msgspec

from holdfast.heap.batch.coordinator import Promise
from holdfast.heap.model import Enqueued, NewMessage


class Prepare(msgspec.Struct, frozen=True, array_like=True):
    """Reserve messages of a batch. `always`: write that down even if none of them is new; the coordinator's own partition does."""

    batch: str
    coordinator_epoch: int
    partitions: tuple[int, ...]
    messages: list[NewMessage]
    always: bool = False


class Promised(msgspec.Struct, frozen=True, array_like=True):
    """The messages are reserved, durably, as far as they are new (`reserved`), and this is what they are called."""

    promise: Promise
    enqueued: list[Enqueued]
    reserved: int
