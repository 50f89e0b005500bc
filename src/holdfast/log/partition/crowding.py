"""Crowding: whether an append has to wait because object storage has not taken enough of what came before.

Two limits, one of the partition and one of all partitions of the agent together. It waits at most `room_wait_ms`, then says which.
"""

from collections.abc import Callable

from holdfast.log.partition.budget import TailBudget
from holdfast.log.partition.tail import Tail
from holdfast.log.partition.terms import Place
from holdfast.log.settings import LogSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.tasks import Bell


class Crowding:
    """The two limits of one partition. `published` rings when it was published; `demand` has that done soon."""

    def __init__(
        self,
        place: Place,
        tail: Tail,
        *,
        published: Bell,
        demand: Callable[[], None],
        attention: Bell,
        budget: TailBudget | None,
        settings: LogSettings,
        clock: Clock,
    ) -> None:
        self._place, self._tail, self._published, self._demand = place, tail, published, demand
        self._attention, self._budget, self._settings, self._clock = attention, budget, settings, clock

    def __bool__(self) -> bool:
        """Whether an append has to wait; what it waits for is on its way then."""
        return self._reason() is not None

    async def over(self, check: Callable[[], None]) -> None:
        """Return when there is room. `check` is asked before and after every wait, and raises when waiting is in vain."""
        check()
        deadline_ms = self._clock.boot_ms() + self._settings.room_wait_ms
        while (crowded := self._reason()) is not None:
            reason, eased = crowded
            left_ms = deadline_ms - self._clock.boot_ms()
            if left_ms <= 0:
                raise UnavailableError(f"partition {self._place}", reason)
            await eased.wait_ms(self._clock, left_ms)
            check()

    def _reason(self) -> tuple[str, Bell] | None:
        """Why an append has to wait, and what rings when it may try again."""
        held, held_max = self._tail.size_bytes, self._settings.unpublished_bytes_max
        if held > held_max:
            self._demand()
            return f"{held} bytes wait for object storage, {held_max} may", self._published
        budget = self._budget
        if budget is not None and budget.full:
            self._attention.ring()  # the loop chooses which partitions to publish
            return (
                f"{budget.used_bytes} bytes of all partitions wait for object storage, {budget.bytes_max} may",
                budget.freed,
            )
        return None
