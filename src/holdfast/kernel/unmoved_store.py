"""A store as clients may change it: not after its cluster has moved away (`cluster_move`).

Agents are stopped by their session and their epochs. What a gateway writes for its clients (topics, users, ACLs, pipelines) has
neither: a node that leads nothing, or one that was suspended, would acknowledge it at the old place.
"""

from collections.abc import Sequence

from holdfast.contracts.forwarding_store import ForwardingStore
from holdfast.contracts.store import Absent, Committed, Conflict, Operation, Requirement
from holdfast.kernel.cluster_move import MOVED_KEY, ClusterMovedError, decode_moved


class UnmovedStore(ForwardingStore):
    """A commit that changes anything requires that the cluster is still there."""

    async def commit(
        self, *, require: Sequence[Requirement] = (), apply: Sequence[Operation] = ()
    ) -> Committed | Conflict:
        """`ClusterMovedError`: the cluster has left this store; nothing was applied."""
        if not apply:  # a read, of as many keys as a commit may have
            return await self._store.commit(require=require)
        outcome = await self._store.commit(require=(*require, Absent(MOVED_KEY)), apply=apply)
        if isinstance(outcome, Conflict) and (moved := outcome.found.get(MOVED_KEY)) is not None:
            raise ClusterMovedError(moved=decode_moved(moved), migration=None)
        return outcome
