"""The grants of one pop of a spine: to whom a partition gave what."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.heap.errors import ResourceExhaustedError
from holdfast.heap.model import PoppedMessage
from holdfast.heap.partition_state import HeapState
from holdfast.heap.spine.takers import Taken
from holdfast.heap.waiting_pops import POP_BYTES_MAX, WaitingPop


class GrantingPartition(Protocol):
    """The partition, as far as grants go."""

    @property
    def state(self) -> HeapState: ...

    async def taken(self, pop: WaitingPop, bytes_max: int) -> list[PoppedMessage]: ...
    def give_back(self, pop: WaitingPop) -> None: ...


class PartitionGrants:
    """The grants of one pop of a spine."""

    def __init__(self, partition: GrantingPartition) -> None:
        self._partition = partition
        self._pops: list[tuple[WaitingPop, ResourceExhaustedError | None]] = []

    def add(self, pop: WaitingPop, refusal: ResourceExhaustedError | None) -> None:
        """A taker's share was decided."""
        self._pops.append((pop, refusal))

    @property
    def ranks(self) -> list[int]:
        """The ranks of the messages that were granted, in their order."""
        granted = [pop.grant for pop, _ in self._pops if pop.grant is not None]
        return [self._partition.state.rank(priority) for grant in granted for _, priority in grant.entries]

    async def messages(self) -> list[Taken]:
        """What each taker got, once it is durable."""
        found = []
        left = POP_BYTES_MAX
        for pop, refusal in self._pops:
            messages: Sequence[PoppedMessage] = ()
            if pop.grant is not None and left > 0:
                messages = await self._partition.taken(pop, left)
                left -= sum([len(message.payload) for message in messages])
            else:
                self._partition.give_back(pop)
            found.append(
                Taken(tuple(messages), None if refusal is None else (refusal.what, refusal.used, refusal.limit))
            )
        return found

    def give_back(self) -> None:
        """Nobody gets them."""
        for pop, _ in self._pops:
            self._partition.give_back(pop)
