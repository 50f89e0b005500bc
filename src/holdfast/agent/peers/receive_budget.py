"""What a peer may have unanswered here: the accepting end of the credit it was granted. Pure.

A peer that keeps to the rules never exceeds it, because it counts an answer later than we do.
"""

from collections.abc import Sequence

from holdfast.agent.peers.credit import CreditWindow
from holdfast.agent.peers.frames import MalformedFrameError, MessageClass, PeerMessage
from holdfast.agent.peers.settings import PeerSettings


class ReceiveBudget:
    """The unanswered messages of one stream."""

    def __init__(self, settings: PeerSettings) -> None:
        self._stream = CreditWindow(settings.stream_credit_bytes)
        self._control = CreditWindow(settings.control_credit_bytes)
        self._partition_limit = settings.partition_credit_bytes
        self._partitions: dict[bytes, CreditWindow] = {}

    @property
    def used_bytes(self) -> int:
        """Bytes of all unanswered messages."""
        return self._stream.used_bytes + self._control.used_bytes

    def take(self, messages: Sequence[PeerMessage]) -> None:
        """Count what has arrived. `MalformedFrameError`: the peer sent more than it may."""
        for message in messages:
            size = message.size
            for window in self._windows(message):
                used = window.used_bytes  # as `fits` and `use` have it: this is done for every message
                if used and used + size > window.limit_bytes:
                    raise MalformedFrameError(
                        f"{window.used_bytes} bytes are unanswered, {message.size} more exceed the credit of "
                        f"{window.limit_bytes}"
                    )
                window.used_bytes = used + size

    def release(self, message: PeerMessage) -> None:
        """It is being answered."""
        if message.kind is MessageClass.CONTROL:
            self._control.release(message.size)
            return
        self._stream.release(message.size)
        partition = self._partitions[message.key]
        partition.release(message.size)
        if not partition.used_bytes:
            del self._partitions[message.key]

    def _windows(self, message: PeerMessage) -> tuple[CreditWindow, ...]:
        if message.kind is MessageClass.CONTROL:
            return (self._control,)
        partition = self._partitions.get(message.key)
        if partition is None:
            partition = self._partitions[message.key] = CreditWindow(self._partition_limit)
        return self._stream, partition
