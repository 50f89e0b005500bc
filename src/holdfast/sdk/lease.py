"""Lease and Held: the two answers to `Session.acquire`.

The one rule: a commit under a lease lands only while the store still has this session as the holder. Both answers have `commit`, so
that code which does not look at the answer is refused instead of acting without a lease.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NoReturn, overload

from holdfast.contracts.store import AtVersion, Committed, Conflict, Operation, Requirement, Store
from holdfast.kernel import lease as kernel
from holdfast.kernel.keys import holder_key
from holdfast.vocabulary.errors import ClosedError, ExpiredError, FencedError, InvalidError
from holdfast.vocabulary.runtime import Runtime

LEASES: Final = "lease/"


class Lease:
    """The right to act on `resource`, fenced by `epoch`, until it is released or its session ends. True in an `if`."""

    def __init__(
        self, grant: kernel.Lease, store: Store, runtime: Runtime, *, on_released: Callable[["Lease"], None]
    ) -> None:
        self._grant, self._store, self._runtime, self._on_released = grant, store, runtime, on_released
        self._closed = False  # no more commits
        self._released = False  # and the store has answered that it is given up

    @property
    def resource(self) -> str:
        """What is leased."""
        return self._grant.resource

    @property
    def holder(self) -> str:
        """The name of the session that holds it, as others see it in `Held.holder`."""
        return self._grant.holder

    @property
    def epoch(self) -> int:
        """The number of this ownership: one more with every new holder, never reused. Pass it on to fence other effects."""
        return self._grant.epoch

    @property
    def fence(self) -> Requirement:
        """The requirement that nobody has acquired the resource since, for commits of your own."""
        return self._grant.fence()

    @overload
    async def commit(self, *operations: Operation) -> Committed: ...

    @overload
    async def commit(self, *operations: Operation, require: Sequence[Requirement]) -> Committed | Conflict: ...

    async def commit(self, *operations: Operation, require: Sequence[Requirement] = ()) -> Committed | Conflict:
        """Apply all operations atomically and durably, if this lease is still held and all of `require` holds.

        `Conflict`: something in `require` did not hold; nothing was applied. `FencedError`: somebody newer owns the resource.
        `ExpiredError`: the session has ended and nobody owns it yet. `ClosedError`: the lease was released here. A lost answer is
        looked up; `OutcomeUnknownError` is raised only where the store stays out of reach. `UnavailableError`: nothing was applied.
        """
        self._check_open()
        for operation in operations:
            if operation.key.startswith(LEASES):
                raise InvalidError("key", operation.key, f"outside {LEASES}, where the leases themselves are kept")
        grant = self._grant
        held = AtVersion(holder_key(grant.resource), grant.version)
        outcome = await kernel.commit_fenced(
            self._store,
            grant,
            clock=self._runtime.clock,
            random=self._runtime.random,
            require=(held, *(each for each in require if each != held)),
            apply=operations,
        )
        if isinstance(outcome, Conflict):
            holder = outcome.found.get(held.key)
            if holder is None or holder.version != held.version:
                raise ExpiredError(f"lease on {grant.resource}", f"session {grant.session} no longer holds it")
            if outcome.dead_session is not None:
                raise ExpiredError(f"session {outcome.dead_session}", "the store has ended it")
        return outcome

    async def release(self) -> bool:
        """Give the lease up, so that the next one gets it at once. False: it was no longer held.

        After an error or a cancellation call it again; no commit is possible in between. Once it has returned, a second call does
        nothing.
        """
        if self._released:
            return False
        self._closed = True
        version = await kernel.release(self._store, self._grant, clock=self._runtime.clock, random=self._runtime.random)
        self._released = True
        self._on_released(self)
        return bool(version)

    def __bool__(self) -> Literal[True]:
        return True

    def __repr__(self) -> str:
        return f"Lease(resource={self.resource!r}, holder={self.holder!r}, epoch={self.epoch})"

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"lease on {self.resource}")

    def _close(self) -> None:
        self._closed = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The resource has a holder already: `holder` by name, at `epoch`. False in an `if`."""

    resource: str
    holder: str
    epoch: int

    async def commit(self, *operations: Operation, require: Sequence[Requirement] = ()) -> NoReturn:
        """Always `FencedError`: there is no lease to commit under."""
        raise FencedError(self.resource, 0, self.epoch)

    async def release(self) -> bool:
        """False: there is nothing to release."""
        return False

    def __bool__(self) -> Literal[False]:
        return False
