"""Who a pop is for: a share of its messages for each consumer that waits, in their order."""

import msgspec

from holdfast.heap.model import PoppedMessage


class Taker(msgspec.Struct, frozen=True, array_like=True):
    """A consumer's share of a pop."""

    count: int
    consumer: str
    visibility_ms: int


class Taken(msgspec.Struct, frozen=True, array_like=True):
    """What a taker got. `refusal`: it has as many leases as it may have; (what, used, limit)."""

    messages: tuple[PoppedMessage, ...] = ()
    refusal: tuple[str, int, int] | None = None
