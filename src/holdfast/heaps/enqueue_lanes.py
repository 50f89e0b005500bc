"""What waits to be enqueued together, and when it leaves. Pure.

The one rule: messages that may go to any partition go to one together: the one with the fewest requests on their way, so that a
partition that does not answer holds up few of them.
"""

from collections import Counter, deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from holdfast.heap.model import Enqueued, NewMessage
from holdfast.vocabulary.errors import HoldfastError

if TYPE_CHECKING:
    import asyncio

_MESSAGES_MAX: Final = 1_000
_BYTES_MAX: Final = 1 << 20
_REQUESTS_MAX: Final = 8  # in flight for one partition: more of them make smaller ones
_FULL_MESSAGES: Final = 100  # of what waits for no answer
_FULL_BYTES: Final = 1 << 16

EnqueueOutcome: TypeAlias = Enqueued | HoldfastError


class WaitingMessages(NamedTuple):
    """Messages that were given together; the outcomes of all are one answer."""

    messages: list[NewMessage]
    size_bytes: int
    answer: "asyncio.Future[list[EnqueueOutcome]]"


class Lane:
    """The messages of one partition: they leave at once."""

    def __init__(self, partition: int) -> None:
        self.waiting: deque[WaitingMessages] = deque()
        self.is_scheduled = False  # that it is looked at
        self.timer: asyncio.TimerHandle | None = None  # when it waits no longer
        self._partition = partition
        self._requests = 0

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self._requests

    def add(self, given: WaitingMessages) -> None:
        self.waiting.append(given)

    def lingers(self) -> bool:
        """Whether what waits waits for more."""
        return False

    def has_room(self) -> bool:
        """Whether another request may be on its way."""
        return self._requests < _REQUESTS_MAX

    def take(self) -> list[WaitingMessages]:
        """What the next request is of; nothing, if all that was looked at was cancelled."""
        taken: list[WaitingMessages] = []
        size = count = 0
        while self.waiting and (
            not taken or (count + len(self.waiting[0].messages) <= _MESSAGES_MAX and size < _BYTES_MAX)
        ):
            each = self.waiting.popleft()
            if not each.answer.done():  # its caller was cancelled
                taken.append(each)
                count += len(each.messages)
                size += each.size_bytes
        return taken

    def begin(self) -> int:
        """A request leaves: its partition."""
        self._requests += 1
        return self._partition

    def end(self, partition: int) -> None:
        """A request was answered, or failed."""
        self._requests -= 1


class SharedLane(Lane):
    """The messages of a heap that may go to any partition: what comes while requests are on their way waits a little."""

    def __init__(self, first: int = 0) -> None:
        super().__init__(first)
        self.partitions = 1  # as who gave the last message knew them
        self._next = first
        self._on_their_way: Counter[int] = Counter()
        self._messages = self._bytes = 0

    def add(self, given: WaitingMessages) -> None:
        super().add(given)
        self._messages += len(given.messages)
        self._bytes += given.size_bytes

    def lingers(self) -> bool:
        return self._requests > 0 and self._messages < _FULL_MESSAGES and self._bytes < _FULL_BYTES

    def has_room(self) -> bool:
        return self._requests < _REQUESTS_MAX * self.partitions

    def take(self) -> list[WaitingMessages]:
        taken = super().take()
        if not self.waiting:
            self._messages = self._bytes = 0
        return taken

    def begin(self) -> int:
        self._requests += 1
        busy = self._on_their_way
        # With an idle one, if there is any.
        looked_at = range(self._next, self._next + min(self.partitions, len(busy) + 1))
        partition = min([number % self.partitions for number in looked_at], key=lambda number: busy[number])
        busy[partition] += 1
        self._next = partition + 1
        return partition

    def end(self, partition: int) -> None:
        self._requests -= 1
        self._on_their_way[partition] -= 1
        if not self._on_their_way[partition]:
            del self._on_their_way[partition]
