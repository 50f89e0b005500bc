"""The compare-and-swap loop: read, decide, commit, and read again when somebody else was faster.

The one rule: `decide` is called anew with what is there, so that it may be called several times and must have no effect of its own.
"""

from collections.abc import Callable, Sequence

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Absent, AtVersion, Committed, Entry, Operation, Put, Requirement, Store
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random

Decide = Callable[[Entry | None], Sequence[Operation] | None]
"""What to do about the entry that is there; None or nothing: leave it."""


def unchanged(key: str, entry: Entry | None) -> Requirement:
    """The requirement that a key is still as it was read."""
    return Absent(key) if entry is None else AtVersion(key, entry.version)


async def update(
    store: Store, key: str, decide: Decide, *, clock: Clock, random: Random, attempts_max: int | None = None
) -> Committed | None:
    """Change what `key` holds. None: `decide` wanted no change. Past `attempts_max` lost races it is an `UnavailableError`."""
    attempt = 0
    while True:
        entry = await store.get(key)
        operations = decide(entry)
        if not operations:
            return None
        outcome = await commit_resolved(
            store, clock=clock, random=random, require=[unchanged(key, entry)], apply=operations
        )
        if isinstance(outcome, Committed):
            return outcome
        attempt += 1
        if attempts_max is not None and attempt >= attempts_max:
            raise UnavailableError("store", f"{key} changed {attempt} times while it was being updated")


async def put_if_absent(store: Store, key: str, value: bytes, *, clock: Clock, random: Random) -> bytes:
    """What `key` holds in the end: `value`, or what was there before."""
    while True:
        outcome = await commit_resolved(
            store, clock=clock, random=random, require=[Absent(key)], apply=[Put(key, value)]
        )
        if isinstance(outcome, Committed):
            return value
        entry = await store.get(key)
        if entry is not None:  # otherwise it was deleted again: once more
            return entry.value
