"""Which run of a scope may write. Pure: what the fence table has goes in, the run comes out.

The one rule: the newer start wins, and a run is admitted once. A run that was replaced finds its own row, which is not the
greatest any more, and never gets a second one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.spark.clickhouse.errors import GenerationFencedError, RunFencedError
from holdfast.spark.clickhouse.scopes import WriteIdentity


class Run(NamedTuple):
    """A row of the fence table. The greatest owns the scope; runs of one epoch (started at once) are in the order of their ids."""

    generation: int
    epoch: int
    run: str
    query: str


def admit(known: Sequence[Run], identity: WriteIdentity, *, resource: str) -> Run:
    """The row of this run: one of `known`, or a new one. `RunFencedError`, `GenerationFencedError`: it may not write."""
    newest = max(known, default=None)
    own = max((each for each in known if each.run == identity.run), default=None)
    if own is not None:
        check_newest(own, newest or own, resource=resource)
        return own
    generation = _generation(known, identity)
    if newest is not None and generation < newest.generation:
        raise GenerationFencedError(resource, generation, newest.generation)
    return Run(generation, max((each.epoch for each in known), default=0) + 1, identity.run, identity.query)


def check_newest(own: Run, newest: Run, *, resource: str) -> None:
    """`RunFencedError` or `GenerationFencedError`, unless no other run is greater."""
    if newest.generation > own.generation:
        raise GenerationFencedError(resource, own.generation, newest.generation)
    if newest > own:
        raise RunFencedError(resource, own.epoch, newest.epoch)


def _generation(known: Sequence[Run], identity: WriteIdentity) -> int:
    if identity.scope is not None and identity.scope.generation is not None:
        return identity.scope.generation
    same = [each.generation for each in known if each.query == identity.query]
    return max(same) if same else max((each.generation + 1 for each in known), default=0)
