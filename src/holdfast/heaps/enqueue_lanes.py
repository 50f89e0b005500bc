"""What waits to be enqueued together, and when it leaves. Pure.

The one rule: messages that may go to any partition go to one together: the one with the fewest requests on their way, so that a
partition that does not answer holds up few of them.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
_HEADER_BYTES: Final = 8  # of a header, beside its name and value

EnqueueOutcome: TypeAlias = Enqueued | HoldfastError


def message_bytes(message: NewMessage) -> int:
    """About what a message takes in a request."""
    size = len(message.payload)
    if message.headers:
        size += sum(_HEADER_BYTES + len(name) + len(value or b"") for name, value in message.headers)
    return size


def cut(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where messages of these sizes are cut, so that each part is one request: from which one to before which one."""
    first = size_bytes = 0
    for at, each in enumerate(sizes):
        if at > first and (at - first >= _MESSAGES_MAX or size_bytes + each > _BYTES_MAX):
            yield first, at
            first, size_bytes = at, 0
        size_bytes += each
    if first < len(sizes):
        yield first, len(sizes)


@dataclass(slots=True, eq=False)
class WaitingMessages:
    """Messages that were given together; the outcomes of all are one answer. No more than one request takes."""

    messages: list[NewMessage]
    size_bytes: int
    answer: "asyncio.Future[list[EnqueueOutcome]]"
    is_taken: bool = False  # into a request


class LaneRequest(NamedTuple):
    """One that is on its way."""

    number: int
    partition: int


class Lane:
    """The messages of one partition: they leave at once."""

    def __init__(self, partition: int) -> None:
        self.waiting: deque[WaitingMessages] = deque()
        self.is_scheduled = False  # that it is looked at
        self.timer: asyncio.TimerHandle | None = None  # when it waits no longer
        self._partition = partition
        self._begun = self._requests = 0

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
        while self.waiting:
            each = self.waiting[0]
            if not each.answer.done():  # otherwise its caller was cancelled
                size += each.size_bytes
                count += len(each.messages)
                if taken and (count > _MESSAGES_MAX or size > _BYTES_MAX):
                    break
                each.is_taken = True
                taken.append(each)
            self.waiting.popleft()
        return taken

    def begin(self) -> LaneRequest:
        """A request leaves."""
        self._requests += 1
        self._begun += 1
        return LaneRequest(self._begun, self._partition)

    def end(self, request: LaneRequest) -> None:
        """A request was answered, or failed."""
        self._requests -= 1


class SharedLane(Lane):
    """The messages of a heap that may go to any partition: what comes while the last request is on its way waits a little."""

    def __init__(self, first: int = 0) -> None:
        super().__init__(first)
        self.partitions = 1  # as who gave the last message knew them
        self._next = first
        self._on_their_way: Counter[int] = Counter()
        self._newest_answered = True
        self._messages = self._bytes = 0

    def add(self, given: WaitingMessages) -> None:
        super().add(given)
        self._messages += len(given.messages)
        self._bytes += given.size_bytes

    def lingers(self) -> bool:
        # One that hangs while later ones are answered is not waited for.
        return not self._newest_answered and self._messages < _FULL_MESSAGES and self._bytes < _FULL_BYTES

    def has_room(self) -> bool:
        return self._requests < _REQUESTS_MAX * self.partitions

    def take(self) -> list[WaitingMessages]:
        taken = super().take()
        if not self.waiting:
            self._messages = self._bytes = 0
        return taken

    def begin(self) -> LaneRequest:
        busy = self._on_their_way
        # With an idle one, if there is any.
        looked_at = range(self._next, self._next + min(self.partitions, len(busy) + 1))
        self._partition = min([number % self.partitions for number in looked_at], key=lambda number: busy[number])
        busy[self._partition] += 1
        self._next, self._newest_answered = self._partition + 1, False
        return super().begin()

    def end(self, request: LaneRequest) -> None:
        super().end(request)
        self._newest_answered = self._newest_answered or request.number == self._begun
        self._on_their_way[request.partition] -= 1
        if not self._on_their_way[request.partition]:
            del self._on_their_way[request.partition]
