"""Leases that are acquired together: one read of their epochs, one commit for as many as fit into it.

The one rule: nobody can tell, but for the version, which they share. A lease whose race is lost is answered as `acquire` would
answer it, and the others are asked for again without it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.store import Committed, Conflict, Entry, Store
from holdfast.contracts.validation import StoreLimits, next_key
from holdfast.kernel.keys import EPOCH_FLOOR, epoch_key, holder_key
from holdfast.kernel.lease import Held, Lease, acquire_commit, read_holder
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ExpiredError, UnavailableError
from holdfast.vocabulary.random import Random

LEASES_PER_COMMIT: Final = (StoreLimits().ops_max - 1) // 4  # two keys each, required and written; the floor once

_EPOCHS_SCANNED_PER_RESOURCE: Final = 4


async def read_epochs(store: Store, resources: Collection[str]) -> Mapping[str, Entry]:
    """The epochs of leases that are to be acquired, by resource, so that many do not lose a race each to find them out.

    Some may be missing: those that nobody ever held, and all if the store is away, or if too many of others lie in between.
    """
    keys = {epoch_key(resource): resource for resource in resources}
    start, end = min(keys), next_key(max(keys))
    try:
        scan = await store.scan(start, end, limit=_EPOCHS_SCANNED_PER_RESOURCE * len(keys))
    except UnavailableError:
        return {}
    return {keys[entry.key]: entry for entry in scan.entries if entry.key in keys}


async def acquire_many(
    store: Store,
    resources: Sequence[str],
    *,
    holder: str,
    session: str,
    clock: Clock,
    random: Random,
    seen: Mapping[str, Entry | None],
) -> list[Lease | Held]:
    """`acquire` for at most `LEASES_PER_COMMIT` distinct resources, in their order; what it raises is so for all of them.

    `seen`: their epochs, as far as they were read.
    """
    known = {resource: seen.get(resource) for resource in resources}
    held: dict[str, Held] = {}
    floor: Entry | None = None
    while wanted := [resource for resource in resources if resource not in held]:
        offers = {resource: acquire_commit(resource, holder, session, known[resource], floor) for resource in wanted}
        outcome = await commit_resolved(
            store,
            clock=clock,
            random=random,
            require=list({each.key: each for offer in offers.values() for each in offer.require}.values()),
            apply=[each for offer in offers.values() for each in offer.apply],
        )
        if isinstance(outcome, Committed):
            return [
                held.get(resource)
                or Lease(
                    resource=resource,
                    holder=holder,
                    session=session,
                    epoch=offers[resource].epoch,
                    version=outcome.version,
                )
                for resource in resources
            ]
        held.update(_holders(wanted, outcome))
        if outcome.dead_session is not None and len(held) < len(resources):
            raise ExpiredError(f"session {session}", "the store has ended it")
        known = {resource: outcome.found.get(epoch_key(resource)) for resource in wanted}
        floor = outcome.found.get(EPOCH_FLOOR)
    return [held[resource] for resource in resources]


def _holders(resources: Sequence[str], conflict: Conflict) -> Mapping[str, Held]:
    present = {resource: conflict.found.get(holder_key(resource)) for resource in resources}
    return {resource: read_holder(entry) for resource, entry in present.items() if entry is not None}
