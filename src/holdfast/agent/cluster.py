"""The cluster as this process sees it: topics, members, lease holders, replicas, what is offline. Mirrors of the store, slightly
behind it.

For answers about other nodes (metadata, redirects). Nothing is decided from it alone: every change is a commit that checks.
"""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from holdfast.agent.departures import Departures
from holdfast.agent.partition_replicas import PartitionReplicas, ReplicaMirrors
from holdfast.contracts.store import Entry, Store
from holdfast.kafka.special_offsets import NO_EPOCH
from holdfast.kernel.keys import NODES, PLACED, PLANNER, holder_key, member_key, members_prefix, partition_resource
from holdfast.kernel.lease import Held, read_holder
from holdfast.kernel.membership import read_member, read_node_id
from holdfast.kernel.mirror import OPENING_ATTEMPTS, Mirror, open_mirror
from holdfast.log.keys import OFFLINE, REPLICA_SETS, TOPICS, WAL_AGENTS, offline_key, replica_set_key, topic_key
from holdfast.log.offline_partitions import OfflinePartition, read_offline
from holdfast.log.replica_sets import read_replica_set
from holdfast.log.topics import Topic, read_topic
from holdfast.log.wal_owners import read_wal_agent
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.tasks import Notify, background_tasks
from holdfast.vocabulary.types import Member, TopicPartition

T = TypeVar("T")


class Cluster:
    """What the mirrors show."""

    def __init__(
        self,
        topics: Mirror[Topic],
        holders: Mirror[Held],
        members: Mirror[Member],
        planners: Mirror[Held],
        offline: Mirror[OfflinePartition],
        replicas: ReplicaMirrors,
    ) -> None:
        self._topics, self._holders, self._members, self._planners = topics, holders, members, planners
        self._offline, self.replica_mirrors, self.departures = offline, replicas, Departures()
        self._epochs = {key: held.epoch for key, held in holders.items.items()}  # the last of each placed lease
        self._ids: dict[str, str] = {}
        self._ids_at = -1
        self.changed = Notify()  # topics, holders, members or marks changed
        self.members_changed = Notify()
        self.on_topics: Callable[[Collection[str]], None] = lambda _: (
            None
        )  # called with the names of topics that changed

    @property
    def version(self) -> tuple[int, ...]:
        """Changes with every topic, holder, member, mark, replica and agent that looks dead.

        What was derived from them is valid while it is the same.
        """
        return (
            self._topics.version,
            self._holders.version,
            self._members.version,
            self._offline.version,
            self.departures.version,
            *self.replica_mirrors.version,
        )

    @property
    def planner(self) -> str | None:
        """The id of the agent that plans, if there is one."""
        return next((held.holder for held in self._planners.items.values()), None)

    def topic(self, name: str) -> Topic | None:
        """The topic of this name."""
        return self._topics.items.get(topic_key(name))

    def name_of(self, topic_id: str) -> str | None:
        """The name of the topic with this id (32 hex digits)."""
        if self._ids_at != self._topics.version:
            self._ids = {topic.id: topic.name for topic in self._topics.items.values()}
            self._ids_at = self._topics.version
        return self._ids.get(topic_id)

    @property
    def topics(self) -> list[Topic]:
        """Every topic, by name."""
        return [self._topics.items[key] for key in sorted(self._topics.items)]

    @property
    def members(self) -> list[Member]:
        """Every live agent, by id."""
        return [self._members.items[key] for key in sorted(self._members.items)]

    def leader(self, topic: str, number: int) -> Held | None:
        """Who holds the lease of a log partition, and at which epoch."""
        return self.holder(partition_resource(TopicPartition(topic, number)))

    def last_epoch(self, topic: Topic, number: int) -> int:
        """The last epoch of a partition that this process has heard of, whether anybody holds its lease now or not; -1: none.

        Epochs of holders that were gone when this process started are known of partitions with replicas alone.
        """
        seen = self._epochs.get(holder_key(partition_resource(TopicPartition(topic.name, number))), NO_EPOCH)
        replicas = self.replica_mirrors.sets.items.get(replica_set_key(topic.id, number))
        return max(seen, replicas.epoch) if replicas is not None else seen

    def holders_changed(self, keys: Collection[str]) -> None:
        """Remember the epochs of these holders, for when they are gone."""
        for key in keys:
            held = self._holders.items.get(key)
            if held is not None:
                self._epochs[key] = held.epoch

    def topics_deleted(self, names: Collection[str]) -> None:
        """Forget the epochs of these topics. One of the same name has later ones."""
        gone = tuple(holder_key(partition_resource(TopicPartition(name, 0))).rstrip("0") for name in names)
        for key in [each for each in self._epochs if each.startswith(gone)] if gone else ():
            del self._epochs[key]

    def holder(self, resource: str) -> Held | None:
        """Who holds a placed lease, and at which epoch."""
        return self._holders.items.get(holder_key(resource))

    def held_by(self, member_id: str) -> list[Held]:
        """The placed leases of an agent. Looks at all of them."""
        return [held for held in self._holders.items.values() if held.holder == member_id]

    @property
    def leases(self) -> list[Held]:
        """Every placed lease."""
        return list(self._holders.items.values())

    def leaders(self, topic: str, count: int) -> list[Held | None]:
        """Who holds the leases of the partitions from 0 to `count`: `leader` for thousands at a time."""
        first = holder_key(partition_resource(TopicPartition(topic, 0)))
        stem, digits = first.rstrip("0"), len(first) - len(first.rstrip("0"))
        found = self._holders.items.get
        return [found(f"{stem}{number:0{digits}d}") for number in range(count)]

    def offline(self, held: Held) -> OfflinePartition | None:
        """Why a partition cannot be opened by the holder of its lease, if it is so."""
        if not self._offline.items:
            return None  # as nearly always
        mark = self._offline.items.get(offline_key(held.resource))
        return mark if mark is not None and mark.epoch == held.epoch else None

    def member(self, member_id: str) -> Member | None:
        """A live agent."""
        return self._members.items.get(member_key("agent", member_id))

    def reachable_member(self, member_id: str) -> Member | None:
        """A live agent that does not look dead from here."""
        member = self.member(member_id)
        return None if member is None or self.departures.looks_dead(member) else member

    def node(self, member_id: str) -> int | None:
        """The numeric id of an agent that is here, or was."""
        member = self.member(member_id)
        return member.node if member is not None else self.replica_mirrors.node(member_id)

    @property
    def has_replicas(self) -> bool:
        """Whether any partition has replicas: where none has, nothing need be looked up."""
        return bool(self.replica_mirrors.sets.items)

    def replicas(self, topic_id: str, number: int) -> PartitionReplicas | None:
        """Who keeps the tail of a partition; None: its leader alone."""
        return self.replica_mirrors.of(topic_id, number) if self.replica_mirrors.sets.items else None

    def in_sync(self, topic: str, number: int) -> tuple[str, ...]:
        """The agents whose copy of a partition's tail keeps up, as far as this process knows."""
        known = self.topic(topic)
        replicas = self.replicas(known.id, number) if known is not None else None
        return replicas.in_sync if replicas is not None else ()


@asynccontextmanager
async def watching_cluster(store: Store, *, clock: Clock, random: Random) -> AsyncIterator[Cluster]:
    """The cluster for the body. `UnavailableError`: the store does not answer; once open, it is waited for."""
    topics_changed, owners_changed = Notify(), Notify()

    def mirror(prefix: str, read: Callable[[Entry], T], notify: Notify) -> AbstractAsyncContextManager[Mirror[T]]:
        return open_mirror(
            store, prefix, read, clock=clock, random=random, notify=notify, opening_attempts=OPENING_ATTEMPTS
        )

    async with (
        mirror(TOPICS, read_topic, topics_changed) as topics,
        mirror(holder_key(PLACED), read_holder, owners_changed) as holders,
        mirror(members_prefix("agent"), read_member, owners_changed) as members,
        mirror(holder_key(PLANNER), read_holder, Notify()) as planners,
        mirror(OFFLINE, read_offline, owners_changed) as offline,
        mirror(REPLICA_SETS, read_replica_set, owners_changed) as replica_sets,
        mirror(WAL_AGENTS, read_wal_agent, Notify()) as wal_agents,
        mirror(NODES, read_node_id, Notify()) as nodes,
    ):
        replicas = ReplicaMirrors(replica_sets, wal_agents, nodes, members)
        cluster = Cluster(topics, holders, members, planners, offline, replicas)

        def on_members(_: Collection[str]) -> None:
            cluster.departures.members_changed(members.items.values(), clock.boot_ms())
            cluster.members_changed.notify()

        members.on_changed = on_members
        holders.on_changed = cluster.holders_changed
        cluster.departures.members_changed(members.items.values(), clock.boot_ms())
        changed_names: dict[str, None] = {}
        topics.on_changed = lambda keys: changed_names.update(dict.fromkeys(key.removeprefix(TOPICS) for key in keys))

        async def notify_of_topics() -> None:
            while True:
                await topics_changed.wait()
                names = list(changed_names)
                changed_names.clear()
                cluster.topics_deleted([name for name in names if cluster.topic(name) is None])
                cluster.on_topics(names)
                cluster.changed.notify()

        async def notify_of_owners() -> None:
            while True:
                await owners_changed.wait()
                cluster.changed.notify()

        async with background_tasks(notify_of_topics(), notify_of_owners()):
            yield cluster
