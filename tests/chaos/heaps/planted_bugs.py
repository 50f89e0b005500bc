"""Bugs of heaps for the checker to find, by name: each switches off one rule in an agent's process.

`SHOWN_BY` says at which level, and under which faults, they show.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from tests.chaos.shown import Shown

from holdfast.heap import local_heaps, partition
from holdfast.heap.dedup import Dedup
from holdfast.heap.growth import growing_partition
from holdfast.heap.journal import Journal
from holdfast.heap.lease_token import LeaseToken
from holdfast.heap.partition_state import HeapState, MessageLease
from holdfast.heap.recovery import recover
from holdfast.heap.spine.ready_budget import ReadyBudget
from holdfast.heap.waiting_pops import POP_BYTES_MAX


def lease_not_checked() -> None:
    """Whoever once had a lease of a message that is leased may acknowledge it."""

    current = partition.HeapPartition._current

    def any_lease(self: partition.HeapPartition, tokens: Sequence[LeaseToken]) -> Any:
        leases = self.state.leases
        held = [(token, leases.get(token.offset)) for token in tokens]
        taken = [token if lease is None else _of_lease(token, lease) for token, lease in held]
        return current(self, taken)

    partition.HeapPartition._current = any_lease  # type: ignore[method-assign]


def _of_lease(token: LeaseToken, lease: MessageLease) -> LeaseToken:
    return token._replace(epoch=lease.epoch, granted_at=lease.granted_at)


def dedup_off() -> None:
    """No enqueue is known again."""
    setattr(partition, "known_enqueue", lambda *args: None)  # noqa: B010 - it is imported there
    Dedup.is_next = lambda self, key: False  # type: ignore[method-assign]
    Dedup.is_next_run = lambda self, keys: False  # type: ignore[method-assign]


def grant_before_durable() -> None:
    """A message is handed out while its GRANT is on its way into the log."""
    granted = partition.HeapPartition._granted

    class Hasty:
        """The partition, with a journal that waits for nothing."""

        def __init__(self, real: partition.HeapPartition) -> None:
            self._real, self._journal = real, self

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        async def durable(self) -> None:
            """At once."""

    async def hastily(self: partition.HeapPartition, pop: Any, bytes_max: int = POP_BYTES_MAX) -> Any:
        return await granted(Hasty(self), pop, bytes_max)  # type: ignore[arg-type]

    partition.HeapPartition._granted = hastily  # type: ignore[method-assign]


def leases_forgotten() -> None:
    """A new leader begins with every leased message ready."""

    async def forgetfully(*args: Any) -> HeapState:
        state = await recover(*args)
        for offset, lease in list(state.leases.items()):
            state._end_lease(offset)
            state.ready.add(offset, lease.rank, again=True)
        return state

    setattr(local_heaps, "recover", forgetfully)  # noqa: B010 - it is imported there


def answer_before_durable() -> None:
    """Nobody waits for the log."""

    def at_once(self: Any) -> "asyncio.Future[None]":
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter.set_result(None)
        return waiter

    Journal.durable = at_once  # type: ignore[method-assign]


def spine_not_told() -> None:
    """Whatever becomes ready is acknowledged before the spine knows of it, and it is told late."""

    def acknowledged(self: ReadyBudget, event: int, rank: int) -> bool:
        return True

    ReadyBudget.ready = acknowledged  # type: ignore[method-assign]


def new_set_only() -> None:
    """An enqueue is looked for in its partition alone, and not where its key belonged before the heap grew."""

    async def nothing(self: Any, messages: Any) -> dict[int, Any]:
        return {}

    growing_partition.GrowingPartition._enqueued_before = nothing  # type: ignore[method-assign]


HEAP_BUGS: Final[dict[str, Callable[[], None]]] = {
    "lease-not-checked": lease_not_checked,
    "dedup-off": dedup_off,
    "grant-before-durable": grant_before_durable,
    "leases-forgotten": leases_forgotten,
    "answer-before-durable": answer_before_durable,
    "spine-not-told": spine_not_told,
    "new-set-only": new_set_only,
}
GROWTHS: Final = {"new-set-only": 4}  # where it takes a heap that grows to show a bug

HEAPS_SHOWN_BY: Final = {
    "lease-not-checked": Shown(level="local", faults=("freeze",)),
    "dedup-off": Shown(level="local", faults=("cut-clients",)),
    "grant-before-durable": Shown(level="object", faults=("freeze-past-ttl", "lose-disk")),
    "leases-forgotten": Shown(level="local", faults=("transfer", "drain")),
    "answer-before-durable": Shown(level="object", faults=("freeze-past-ttl", "lose-disk")),
    "spine-not-told": Shown(level="local", faults=("freeze",)),
    "new-set-only": Shown(level="local", faults=("cut-clients", "kill")),
}
