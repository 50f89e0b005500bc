"""Which replicas the plan names for a partition, by the ids of their WALs: those of live agents alone, the owner's first.

A mirror of the plan, slightly behind it: nothing is decided from it but whom a leader sends its entries to, which is written by the
commit that opens its epoch. A topic's placements are decoded when somebody asks for them: most topics have no replicas.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property

from holdfast.agent.cluster import Cluster
from holdfast.contracts.store import Entry, Store
from holdfast.kernel.keys import PLANS, plan_key
from holdfast.kernel.mirror import OPENING_ATTEMPTS, Mirror, open_mirror
from holdfast.kernel.placement import Placement
from holdfast.kernel.planner import decode_placements
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify
from holdfast.vocabulary.types import TopicPartition


class _TopicPlan:
    """The placements of one topic."""

    def __init__(self, entry: Entry) -> None:
        self._value = entry.value

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        return decode_placements(self._value)


class PlannedReplicas:
    """The plan, as far as replicas are concerned. Made by `watching_plan`."""

    def __init__(self, plan: Mirror[_TopicPlan], cluster: Cluster) -> None:
        self._plan, self._cluster = plan, cluster

    def of(self, which: TopicPartition) -> Sequence[str]:
        """The WALs of the agents that are planned for a partition and are alive."""
        topic = self._plan.items.get(plan_key(which.topic))
        if topic is None or which.number >= len(topic.placements):
            return ()
        members = (self._cluster.member(agent) for agent in topic.placements[which.number])
        return tuple(member.wal_id for member in members if member is not None and member.wal_id)


@asynccontextmanager
async def watching_plan(
    store: Store, cluster: Cluster, *, clock: Clock, random: Random
) -> AsyncIterator[PlannedReplicas]:
    """The plan for the body. `UnavailableError`: the store does not answer; once open, it is waited for."""
    async with open_mirror(
        store, PLANS, _TopicPlan, clock=clock, random=random, notify=Notify(), opening_attempts=OPENING_ATTEMPTS
    ) as plan:
        yield PlannedReplicas(plan, cluster)
