"""Resolved commits: an unknown outcome is looked up, within a deadline.

The one rule: a commit is repeated only once the store has answered that it never happened. Engines raise `OutcomeUnknownError` at
once; most callers want this instead.
"""

from collections.abc import Sequence

from holdfast.contracts.store import Committed, Conflict, NotCommitted, Operation, Requirement, Store
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms


async def commit_resolved(
    store: Store,
    *,
    clock: Clock,
    random: Random,
    require: Sequence[Requirement] = (),
    apply: Sequence[Operation] = (),
    within_ms: int = 10_000,
) -> Committed | Conflict:
    """Commit, resolve lost answers, retry what never happened.

    Past the deadline it raises the last error: `UnavailableError` if the commit did not happen, `OutcomeUnknownError` if that
    could not be found out.
    """
    deadline_ms = clock.boot_ms() + within_ms
    lost: OutcomeUnknownError | None = None
    attempt = 0
    while True:
        try:
            if lost is not None:
                outcome = await store.resolve(lost.commit_id)
                lost = None
                if not isinstance(outcome, NotCommitted):
                    return outcome
            return await store.commit(require=require, apply=apply)
        except OutcomeUnknownError as error:
            lost = error
            if clock.boot_ms() >= deadline_ms:
                raise
        except UnavailableError:
            if clock.boot_ms() >= deadline_ms:
                if lost is not None:
                    raise lost from None
                raise
        await clock.sleep_ms(backoff_ms(attempt, base_ms=20, max_ms=500, random=random))
        attempt += 1
