"""Crowding: whether an append has to wait because object storage has not taken enough of what came before.

Two limits, one of the partition and one of all partitions of the agent together. It waits at most `room_wait_ms`, then says which.
"""

from collections.abc import Callable

from holdfast.log.model import PartitionId
from holdfast.log.partition.tail import Tail
from holdfast.log.partition.tail_budget import TailBudget
from holdfast.log.settings import LogSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.tasks import Notify


class Backpressure:
    """The two limits of one partition. `published` rings when it was published; `demand` has that done soon."""

    def __init__(
        self,
        partition_id: PartitionId,
        tail: Tail,
        *,
        published: Notify,
        request_publish: Callable[[], None],
        dirty_partitions: Notify,
        budget: TailBudget | None,
        settings: LogSettings,
        clock: Clock,
    ) -> None:
        self._partition_id, self._tail, self._published, self._request_publish = (
            partition_id,
            tail,
            published,
            request_publish,
        )
        self._dirty_partitions, self._budget, self._settings, self._clock = dirty_partitions, budget, settings, clock

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
                raise UnavailableError(f"partition {self._partition_id}", reason)
            await eased.wait_ms(self._clock, left_ms)
            check()

    def _reason(self) -> tuple[str, Notify] | None:
        """Why an append has to wait, and what rings when it may try again."""
        held, held_max = self._tail.size_bytes, self._settings.unpublished_bytes_max
        if held > held_max:
            self._request_publish()
            return f"{held} bytes wait for object storage, {held_max} may", self._published
        budget = self._budget
        if budget is not None and budget.full:
            self._dirty_partitions.notify()  # the loop chooses which partitions to publish
            return (
                f"{budget.used_bytes} bytes of all partitions wait for object storage, {budget.bytes_max} may",
                budget.freed,
            )
        return None
