"""A partition leader's end of the spine protocol: whom it obeys, what it has told, which events may be acknowledged. Pure.

The one rule: a pop is granted for the newest spine alone, under this leader's own epoch, once. The driver logs a new spine's
epoch, and how many partitions it knows of, before `adopt`, so that the next leader refuses older ones and those that know of fewer,
too; it appends, and sends what this class makes.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from holdfast.heap.spine.messages import Advert, AdvertAck, Granted, Pop, Refill, Refused, SpineHello
from holdfast.heap.spine.ready_budget import ReadyBudget

ReadyRanks = Callable[[int], tuple[Sequence[int], bool]]
"""The least ranks that are ready, sorted, at most so many; and whether these are all."""

_IN_FLIGHT_MAX: Final = 2  # adverts; what comes meanwhile goes into the next one


class LeaderEnd:
    """The end of one leadership. `spine_epoch`: the highest in the log. `partitions`: of the heap, once it has grown.

    `unknown_to_spines`: no spine can have a view of this partition, so nothing has to be told. That holds until the first hello
    in the log's history, for the partitions that the topic was created with: a spine begins with an advert of every partition.
    """

    def __init__(
        self, partition: int, epoch: int, *, spine_epoch: int, unknown_to_spines: bool, partitions: int = 0
    ) -> None:
        self.partition, self.epoch, self.spine_epoch, self.partitions = partition, epoch, spine_epoch, partitions
        self._unknown_to_spines = unknown_to_spines and not spine_epoch
        self._hello: SpineHello | None = None
        self._budget = ReadyBudget(0)
        self._events = 0
        self._number = 0
        self._executed = 0  # the last number of a pop, or of the hello
        self._granted = 0  # the last pop that got something
        self._left = 0  # of the ranks that were told, those that were not granted
        self._complete = False
        self._owed = False  # an advert that the spine waits for
        self._wanted = False  # an advert as soon as there is something to tell

    def ready(self, rank: int) -> int:
        """A message becomes ready: 0 if that may be acknowledged, or the event's number, which `acknowledged` names later."""
        if self._unknown_to_spines:
            return 0
        self._events += 1
        return 0 if self._budget.ready(self._events, rank) else self._events

    def withdraw(self, events: Iterable[int]) -> None:
        """Nobody waits for these events any more. The spine is told of their messages all the same."""
        self._budget.withdraw(events)
        self._wanted = True

    def refuses(self, message: SpineHello | AdvertAck | Refill | Pop) -> Refused | None:
        """Why a spine is not obeyed; None: it is."""
        if message.spine_epoch < self.spine_epoch:
            return self._refusal()
        if isinstance(message, SpineHello):
            is_late = message.spine_epoch == self.spine_epoch and message.round <= self._executed
            return self._refusal() if is_late or self._knows_too_few(message) else None
        return None

    def _knows_too_few(self, hello: SpineHello) -> bool:
        """Whether the spine does not know of partitions that may have acknowledged messages already."""
        return hello.partitions < self.partitions

    def _refusal(self) -> Refused:
        return Refused(self.partition, self.epoch, self.spine_epoch)

    def adopt(self, hello: SpineHello) -> bool:
        """Obey this spine from now on; its epoch is in the log. An advert is due.

        True: what the last pop got was not delivered, and is to be released; a spine sends no second one before it has the answer.
        """
        was_void = hello.spine_epoch == self.spine_epoch and self._granted > hello.settled
        waiting = self._budget.waiting
        self._hello, self.spine_epoch, self._executed = hello, hello.spine_epoch, hello.round
        self._unknown_to_spines = False
        self._budget = ReadyBudget(hello.budget)
        for event in waiting:
            self._budget.wait(event)
        self._owed, self._wanted, self._granted = True, False, 0
        return was_void

    def acknowledged(self, ack: AdvertAck) -> Sequence[int]:
        """The spine has an advert: the events that may be acknowledged now."""
        if self._hello is None or (ack.spine_epoch, ack.round, ack.epoch) != self._name():
            return ()
        return self._budget.acknowledge(ack.number)

    def _name(self) -> tuple[int, int, int]:
        return self.spine_epoch, 0 if self._hello is None else self._hello.round, self.epoch

    def refill(self, refill: Refill) -> None:
        """The spine wants more than it was told."""
        if (refill.spine_epoch, refill.round, refill.epoch) != self._name() or refill.number < self._number:
            return  # a newer advert is on its way
        if self._budget.untold or (self._left <= 0 and not self._complete):
            self._owed = True
        else:
            self._wanted = True

    def tell(self) -> None:
        """Called now and then: what became ready within the budget is told as well, or it might wait for ever."""
        self._owed = self._owed or self._budget.untold

    @property
    def needs_hello(self) -> bool:
        """Whether a spine may have an old view of this partition, and none has introduced itself to this leader."""
        return self._hello is None and not self._unknown_to_spines

    @property
    def advert_due(self) -> bool:
        """Whether an advert is to be sent now."""
        if self._hello is None:
            return False
        if self._owed:
            return True
        news = self._budget.must_advertise or (self._wanted and self._budget.untold)
        return news and self._budget.in_flight < _IN_FLIGHT_MAX

    def advert(self, ready: ReadyRanks, offset: int) -> Advert:
        """The advert of the state at `offset`, which is to be sent."""
        if self._hello is None:
            raise RuntimeError("no spine has introduced itself")
        ranks, complete = ready(self._hello.fan_out)
        self._number += 1
        advert = Advert(
            partition=self.partition,
            epoch=self.epoch,
            spine_epoch=self.spine_epoch,
            round=self._hello.round,
            number=self._number,
            offset=offset,
            ranks=tuple(ranks),
            complete=complete,
        )
        self._budget.sent(advert)
        self._left, self._complete = len(ranks), complete
        self._owed = self._wanted = False
        return advert

    def begin(self, pop: Pop) -> Refused | None:
        """A pop is to be granted now, once. `Refused`: it must not be."""
        if self._hello is None or pop.spine_epoch != self.spine_epoch or pop.epoch != self.epoch:
            return self._refusal()
        if pop.sequence <= self._executed:
            return self._refusal()
        self._executed = pop.sequence
        return None

    def granted(self, pop: Pop, ranks: Sequence[int], offset: int, ready: ReadyRanks) -> Granted:
        """The answer to a pop that got `ranks` by the record at `offset`, with an advert where the spine would soon ask for one."""
        self._left -= len(ranks)
        self._granted = pop.sequence
        fan_out = 0 if self._hello is None else self._hello.fan_out
        running_out = self._left <= fan_out // 4 and (not self._complete or self._budget.untold)
        half_spent = self._budget.untold and 2 * self._budget.spent >= self._budget.budget
        # An advert that is on its way may arrive after this answer: what was granted may be one that it tells of, and the spine
        # would take it for one that it knows, which then stays behind.
        overtakes = self._budget.in_flight > 0
        news = len(ranks) < pop.count or running_out or half_spent or overtakes
        advert = self.advert(ready, offset) if news and self._hello is not None else None
        return Granted(
            partition=self.partition,
            epoch=self.epoch,
            spine_epoch=pop.spine_epoch,
            sequence=pop.sequence,
            offset=offset,
            ranks=tuple(ranks),
            advert=advert,
        )
