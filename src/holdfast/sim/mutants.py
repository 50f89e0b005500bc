"""Mutants: the known mistakes of systems of this kind, each made once, on purpose.

The one rule: one variant, one mistake; everything else is the code that ships. The simulator must catch
them all; `tests/sim` checks that.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import AtVersion, Committed, Conflict, Delete, Operation, Put, Requirement, Store
from holdfast.kernel.keys import holder_key
from holdfast.kernel.lease import Held, Lease, acquire, commit_fenced, hold_lease
from holdfast.kernel.session import HeldSession
from holdfast.sim.mutant_stores import ForgivingStore, PredicateStore
from holdfast.sim.variant import Variant
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.random import Random


async def _commit_unfenced(
    store: Store,
    lease: Lease,
    *,
    clock: Clock,
    random: Random,
    require: Sequence[Requirement] = (),
    apply: Sequence[Operation] = (),
) -> Committed | Conflict:
    """The mistake: the caller checked its session, so the store need not check the epoch."""
    return await commit_resolved(store, clock=clock, random=random, require=require, apply=apply)


@asynccontextmanager
async def _hold_and_release_blindly(
    store: Store, resource: str, *, holder: str, session: HeldSession, clock: Clock, random: Random
) -> AsyncIterator[Lease | Held]:
    """The mistake: we acquired it, so it must be ours to release."""
    lease = await acquire(store, resource, holder=holder, session=session.id, clock=clock, random=random)
    try:
        yield lease
    finally:
        if isinstance(lease, Lease):
            with suppress(HoldfastError):
                await commit_resolved(store, clock=clock, random=random, apply=(Delete(holder_key(resource)),))


@asynccontextmanager
async def _hold_by_own_clock(
    store: Store, resource: str, *, holder: str, session: HeldSession, clock: Clock, random: Random
) -> AsyncIterator[Lease | Held]:
    """The mistake: the holder stored its deadline, our clock is past it, so it must be gone."""
    seen = await store.get(holder_key(resource))
    stamp = await store.get(_stamp_key(resource))
    overdue = stamp is not None and msgspec.json.decode(stamp.value, type=int) < clock.now_ms()
    if seen is not None and overdue:
        await commit_resolved(
            store,
            clock=clock,
            random=random,
            require=(AtVersion(seen.key, seen.version),),
            apply=(Delete(seen.key),),
        )
    async with hold_lease(store, resource, holder=holder, session=session, clock=clock, random=random) as lease:
        if isinstance(lease, Lease):
            await commit_fenced(store, lease, clock=clock, random=random, apply=(_stamp(resource, session, clock),))
        yield lease


def _stamp_key(resource: str) -> str:
    return f"until/{resource}"


def _stamp(resource: str, session: HeldSession, clock: Clock) -> Put:
    return Put(_stamp_key(resource), msgspec.json.encode(clock.now_ms() + 2 * session.ttl_ms))


_MUTANT_LIST: Final = (
    Variant(
        name="effect-unfenced",
        wrong="effects do not require the epoch",
        commit_fenced=_commit_unfenced,
    ),
    Variant(
        name="expiry-by-predicate",
        wrong="a clock that steps back brings vanished keys back",
        store=PredicateStore,
    ),
    Variant(
        name="expiry-by-own-clock",
        wrong="a contender judges by its own clock that the holder is gone",
        hold=_hold_by_own_clock,
    ),
    Variant(
        name="renewal-after-expiry",
        wrong="a keep-alive brings a dead session back",
        store=ForgivingStore,
    ),
    Variant(
        name="release-by-stale-owner",
        wrong="a release removes the lease of any holder",
        hold=_hold_and_release_blindly,
    ),
    Variant(
        name="resolve-not-final",
        wrong="a commit lands after it was resolved as never applied",
        resolve_is_final=False,
    ),
    Variant(
        name="deadline-stops-in-pause",
        wrong="local deadlines are kept on a clock that stands still while the process does",
        boot_clock_runs_through_pauses=False,
    ),
)
MUTANTS: Final = {variant.name: variant for variant in _MUTANT_LIST}
