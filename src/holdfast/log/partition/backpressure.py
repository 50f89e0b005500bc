"""Back-pressure: appends wait while too much is unpublished.

Two limits: one per partition, one for all partitions of the agent together. An append waits at most `room_wait_ms`; then it fails
with the limit that was exceeded.
"""

from collections.abc import Callable

from holdfast.log.model import PartitionId
from holdfast.log.partition.resources import PartitionResources
from holdfast.log.partition.tail import Tail
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.tasks import Notify


class Backpressure:
    """The two limits of one partition. `published` is notified after each publication, `request_publish` asks for one."""

    __slots__ = (
        "_budget",
        "_clock",
        "_dirty_partitions",
        "_partition_id",
        "_published",
        "_request_publish",
        "_settings",
        "_tail",
    )

    def __init__(
        self,
        partition_id: PartitionId,
        tail: Tail,
        resources: PartitionResources,
        *,
        published: Notify,
        request_publish: Callable[[], None],
    ) -> None:
        self._partition_id, self._tail = partition_id, tail
        self._published, self._request_publish = published, request_publish
        self._dirty_partitions, self._budget = resources.dirty_partitions, resources.budget
        self._settings, self._clock = resources.settings, resources.clock

    def __bool__(self) -> bool:
        """Whether an append has to wait; then a publication is requested."""
        return self._exceeded() is not None

    async def over(self, check: Callable[[], None]) -> None:
        """Return when an append fits. `check` is called around every wait, and raises if the partition takes no more appends."""
        check()
        deadline_ms = self._clock.boot_ms() + self._settings.room_wait_ms
        while (exceeded := self._exceeded()) is not None:
            reason, freed = exceeded
            left_ms = deadline_ms - self._clock.boot_ms()
            if left_ms <= 0:
                raise UnavailableError(f"partition {self._partition_id}", reason)
            await freed.wait_ms(self._clock, left_ms)
            check()

    def _exceeded(self) -> tuple[str, Notify] | None:
        """The limit that is exceeded, and what is notified when bytes are freed."""
        held, held_max = self._tail.size_bytes, self._settings.unpublished_bytes_max
        if held > held_max:
            self._request_publish()
            return f"{held} unpublished bytes exceed the limit of {held_max}", self._published
        budget = self._budget
        if budget is not None and budget.full:
            self._dirty_partitions.notify()  # the scheduler chooses which partitions to publish
            return (
                f"{budget.used_bytes} unpublished bytes of all partitions exceed the limit of {budget.bytes_max}",
                budget.freed,
            )
        return None
