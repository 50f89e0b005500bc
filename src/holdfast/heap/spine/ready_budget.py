"""Ready events of one partition against the budget that its spine grants: which may be acknowledged, and which wait for an advert.
Pure.

The one rule: under every advert that the spine may be using (the one it acknowledged last, and those in flight), at most `budget`
events that are better than its tail are acknowledged. Whatever makes a message ready is an event: an enqueue, a delay that is
over, an expired lease, a nack, a key that is below its limit again.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.heap.spine.messages import Advert


@dataclass(slots=True)
class _Sent:
    """An advert, and how many events that are better than its tail came after it."""

    number: int
    tail: int | None
    silent: int = 0

    def count(self, rank: int) -> int:
        """The event's place among those that count; 0: it does not."""
        if self.tail is not None and rank >= self.tail:
            return 0
        self.silent += 1
        return self.silent


class ReadyBudget:
    """The events of one leader in one round of a spine; before the first advert is acknowledged, everything waits."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._acknowledged: _Sent | None = None
        self._in_flight: deque[_Sent] = deque()
        self._waiting: dict[
            int, dict[int, int]
        ] = {}  # events, with their places under the adverts in use when they came
        self._untold = False  # something became ready since the last advert

    def ready(self, event: int, rank: int) -> bool:
        """Whether the event may be acknowledged now; otherwise `acknowledge` names it later. Events are numbered upwards."""
        self._untold = True
        places = {sent.number: sent.count(rank) for sent in self._in_use()}
        if self._acknowledged is not None and all(place <= self.budget for place in places.values()):
            return True
        self._waiting[event] = places
        return False

    def _in_use(self) -> Iterator[_Sent]:
        """The adverts that the spine may be using."""
        if self._acknowledged is not None:
            yield self._acknowledged
        yield from self._in_flight

    def wait(self, event: int) -> None:
        """The event waits for the next advert, whatever its rank: it came before this round."""
        self._untold = True
        self._waiting[event] = {}

    def withdraw(self, events: Iterable[int]) -> None:
        """These are never acknowledged: nobody waits for it. Their places under adverts stay taken."""
        for event in events:
            self._waiting.pop(event, None)

    def sent(self, advert: Advert) -> None:
        """An advert of the present state was sent."""
        self._in_flight.append(_Sent(advert.number, advert.tail))
        self._untold = False

    def acknowledge(self, number: int) -> Sequence[int]:
        """The spine has this advert, and all before it: the events that need wait no longer."""
        acknowledged = None
        while self._in_flight and self._in_flight[0].number <= number:
            acknowledged = self._in_flight.popleft()
        if acknowledged is None:
            return ()
        self._acknowledged = acknowledged
        in_use = [sent.number for sent in self._in_use()]
        # An event that has no place under an advert came before it was made.
        released = [
            event
            for event, places in self._waiting.items()
            if all(places.get(number, 0) <= self.budget for number in in_use)
        ]
        self.withdraw(released)
        return released

    @property
    def waiting(self) -> Sequence[int]:
        """The events that are not acknowledged, in their order."""
        return list(self._waiting)

    @property
    def in_flight(self) -> int:
        """How many adverts are not acknowledged."""
        return len(self._in_flight)

    @property
    def must_advertise(self) -> bool:
        """Whether an event waits that no advert in flight covers."""
        return bool(self._waiting) and self._untold

    @property
    def untold(self) -> bool:
        """Whether something became ready since the last advert."""
        return self._untold

    @property
    def spent(self) -> int:
        """How much of the budget is used, under the newest advert."""
        newest = self._in_flight[-1] if self._in_flight else self._acknowledged
        return 0 if newest is None else newest.silent
