"""What callers of heaps have to do something about. Gateways map these to the codes of their protocol."""

from typing import Final

from holdfast.vocabulary.errors import HoldfastError, InvalidError, UnavailableError

MESSAGE_GONE: Final = "the message is gone"
"""Why a lease is lost when its message was acknowledged, cancelled or moved."""


class NotAHeapError(InvalidError):
    """The topic is a log: it has no heap operations."""

    def __init__(self, topic: str) -> None:
        super().__init__("topic", topic, "a heap")
        self.args = (topic,)
        self.topic = topic

    def __str__(self) -> str:
        return f"topic {self.topic!r} is not a heap"


class LeaseLostError(HoldfastError):
    """The token is not the current lease of its message: it expired, was given up, or the message is gone. Drop the work.

    `now_ms`: what the clock of the leader that says so showed then, by which leases end; None: it is not said. `epochs`: how many
    epochs ago the lease was granted.
    """

    epochs: int = 0
    now_ms: int | None = None

    def __init__(self, topic: str, message_id: str, reason: str) -> None:
        super().__init__(topic, message_id, reason)
        self.topic, self.message_id, self.reason = topic, message_id, reason

    def __str__(self) -> str:
        return f"the lease of message {self.message_id or 'unknown'} in {self.topic} is lost: {self.reason}"


class MessageNotFoundError(HoldfastError):
    """There is no such message: it was acknowledged, cancelled or moved, or never was."""

    def __init__(self, topic: str, message_id: str) -> None:
        super().__init__(topic, message_id)
        self.topic, self.message_id = topic, message_id

    def __str__(self) -> str:
        return f"heap {self.topic} has no message {self.message_id}"


class ResourceExhaustedError(HoldfastError):
    """A limit of the heap is reached. Try again when there is room."""

    def __init__(self, what: str, used: int, limit: int) -> None:
        super().__init__(what, used, limit)
        self.what, self.used, self.limit = what, used, limit

    def __str__(self) -> str:
        return f"{self.what}: {self.used} of {self.limit} in use"


class ProducerFencedError(HoldfastError):
    """A newer epoch of this producer has enqueued here. Stop: this producer was replaced."""

    def __init__(self, producer: str, epoch: int, current: int) -> None:
        super().__init__(producer, epoch, current)
        self.producer, self.epoch, self.current = producer, epoch, current

    def __str__(self) -> str:
        return f"producer {self.producer!r} is at epoch {self.current}, this one is at epoch {self.epoch}"


class BatchAbortedError(HoldfastError):
    """Nothing was enqueued: another batch that is not decided is in the way, or a partition got another leader. Try again."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(topic, reason)
        self.topic, self.reason = topic, reason

    def __str__(self) -> str:
        return f"aborted, nothing was enqueued in {self.topic}: {self.reason}"


class PartitionsGrownError(UnavailableError):
    """The heap has `partitions` by now, and a message belongs to another one than it was sent to. Nothing was enqueued. Route it
    again."""

    def __init__(self, topic: str, partitions: int) -> None:
        super().__init__(
            f"heap {topic}", f"it has {partitions} partitions by now, and a message belongs to another one"
        )
        self.args = (topic, partitions)
        self.topic, self.partitions = topic, partitions


class SequenceForgottenError(HoldfastError):
    """Whether this sequence number was enqueued is no longer known: there were too many since. Nothing was enqueued."""

    def __init__(self, producer: str, sequence: int, floor: int) -> None:
        super().__init__(producer, sequence, floor)
        self.producer, self.sequence, self.floor = producer, sequence, floor

    def __str__(self) -> str:
        return f"sequence {self.sequence} of producer {self.producer!r} is forgotten, as are all below {self.floor}"
