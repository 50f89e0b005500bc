"""The compare-and-swap loop: read a key, decide, commit if the key is unchanged, decide again if it is not.

The one rule: `decide` may be called several times, each time with the latest entry, so it has no effect of its own. What spans two
keys that must be read together (`kernel.lease.acquire`, `kernel.membership.node_id`) is written out where it belongs.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, AtVersion, Committed, Entry, Operation, Put, Requirement, Store
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ExpiredError, UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms

T = TypeVar("T")

_LOSSES_AT_ONCE: Final = 5
ATTEMPTS_MAX: Final = 100  # losing this often to changes of one key means that something is broken


@dataclass(frozen=True, slots=True)
class Swap(Generic[T]):
    """A decision: what to apply (nothing: leave the key), under which further requirements, and the result if that succeeds."""

    result: T
    apply: Sequence[Operation] = ()
    require: Sequence[Requirement] = ()


def unchanged(key: str, entry: Entry | None) -> Requirement:
    """The requirement that a key is still as it was read."""
    return Absent(key) if entry is None else AtVersion(key, entry.version)


async def compare_and_swap(
    store: Store,
    key: str,
    decide: Callable[[Entry | None], Awaitable[Swap[T]]],
    *,
    clock: Clock,
    random: Random,
    attempts_max: int = ATTEMPTS_MAX,
    known: Entry | None = None,
) -> tuple[T, int]:
    """The result of the decision that was committed, and the commit's version; 0 if it was to apply nothing.

    `known` saves the first read. Whatever `decide` raises ends the loop. `ExpiredError`: a session it puts under is dead.
    `UnavailableError`: others changed the key `attempts_max` times in between.
    """
    entry = known if known is not None else await store.get(key)
    for attempt in range(attempts_max):
        if attempt >= _LOSSES_AT_ONCE:  # many contenders: without pauses the slowest of them never gets its turn
            await clock.sleep_ms(backoff_ms(attempt - _LOSSES_AT_ONCE, base_ms=2, max_ms=100, random=random))
            entry = await store.get(key)
        swap = await decide(entry)
        if not swap.apply:
            return swap.result, 0
        outcome = await commit_resolved(
            store, clock=clock, random=random, require=[unchanged(key, entry), *swap.require], apply=swap.apply
        )
        if isinstance(outcome, Committed):
            return swap.result, outcome.version
        if outcome.dead_session is not None:
            raise ExpiredError(f"session {outcome.dead_session}", "the store has ended it")
        entry = outcome.found[key] if key in outcome.found else await store.get(key)
    raise UnavailableError(key, f"it changed {attempts_max} times while it was being updated")


async def put_if_absent(store: Store, key: str, value: bytes, *, clock: Clock, random: Random) -> bytes:
    """What `key` holds in the end: `value`, or what it held before."""

    async def decide(entry: Entry | None) -> Swap[bytes]:
        return Swap(value, [Put(key, value)]) if entry is None else Swap(entry.value)

    held, _ = await compare_and_swap(store, key, decide, clock=clock, random=random)
    return held
