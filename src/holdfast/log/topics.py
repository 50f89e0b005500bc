"""Topics: names, numbers of partitions and settings, kept in the store.

The one rule: a topic and what the planner needs to place it are created by one commit, grow by one, and go by one. A topic's id is
never used again, so that a topic of the same name begins empty. Partitions are added and never removed.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import Final

import msgspec

from holdfast.contracts.commits import commit_resolved
from holdfast.contracts.compare_and_swap import Swap, compare_and_swap
from holdfast.contracts.store import Absent, AtVersion, Committed, Delete, Entry, Operation, Put, Requirement, Store
from holdfast.contracts.validation import prefix_end
from holdfast.kernel.keys import assignment_key, workload_key
from holdfast.kernel.placement import TopicAssignment, Workload
from holdfast.kernel.placement_requests import assignment_write, read_assignment
from holdfast.log.errors import HeapTopicError
from holdfast.log.keys import TOPICS, deleted_key, topic_id_key, topic_key
from holdfast.log.metadata import DeletedTopic
from holdfast.log.settings import TopicSettings
from holdfast.log.topic_config import FIXED_COUNT, NAMES, NO_LIMIT, TopicConfig, check_replication, read_config, typed
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import MIB, check_between

LOG: Final = "log"  # kinds of topics
HEAP: Final = "heap"
NAME_MAX: Final = 249
PARTITIONS_MAX: Final = 10_000

# Of the log below a heap. What it holds is live until the heap says otherwise, whatever its age or key. A heap grows by
# `with_partitions` all the same: the count is fixed for releases that would forget how many partitions there were before.
HEAP_SETTINGS: Final[Mapping[str, object]] = {
    "cleanup_policy": "delete",
    "retention_ms": NO_LIMIT,
    "retention_bytes": NO_LIMIT,
    "message_timestamp_type": "create_time",
    "max_message_bytes": 32 * MIB,
    "unclean_takeover": False,
    "partition_count": FIXED_COUNT,
}

EARLIER: Final = "earlier_partitions"  # in `Topic.heap`: how many there were before each growth, and when it grew
GROWTHS_MAX: Final = 64  # that a heap remembers
_GROWTH_KEPT_MS: Final = 2 * 31 * 86_400_000  # twice the longest window in which a heap finds a repeated enqueue

_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


class UnknownTopicError(InvalidError):
    """There is no such topic."""

    def __init__(self, topic: str) -> None:
        super().__init__("topic", topic, "a topic that exists")
        self.args = (topic,)
        self.topic = topic

    def __str__(self) -> str:
        return f"topic {self.topic[:300]!r} does not exist"


class TopicExistsError(InvalidError):
    """The name is taken."""

    def __init__(self, topic: str) -> None:
        super().__init__("name of a new topic", topic, "a name that is not taken")
        self.args = (topic,)
        self.topic = topic

    def __str__(self) -> str:
        return f"topic {self.topic!r} already exists"


class TopicNameError(InvalidError):
    """No topic can have this name."""

    def __init__(self, name: str) -> None:
        super().__init__("topic name", name[:300], f"1 to {NAME_MAX} letters, digits, . _ and -, but not . or ..")
        self.args = (name,)
        self.name = name


class PartitionCountError(InvalidError):
    """A topic cannot get this number of partitions: it has as many already, or more, or it is above the limit."""

    def __init__(self, topic: str, count: int, current: int) -> None:
        super().__init__("number of partitions", count, f"between {current + 1} and {PARTITIONS_MAX}")
        self.args = (topic, count, current)
        self.topic, self.count, self.current = topic, count, current

    def __str__(self) -> str:  # the text is Kafka's, where it has one
        if self.count > self.current:
            return super().__str__()
        if self.count == self.current:
            return f"Topic already has {self.current} partition(s)."
        return (
            f"The topic {self.topic} currently has {self.current} partition(s); {self.count} would not be an increase."
        )


class FixedPartitionsError(InvalidError):
    """The number of partitions is fixed, by the topic's own setting or the server's (`setting`)."""

    def __init__(self, topic: str, current: int, setting: str) -> None:
        super().__init__(f"number of partitions of {topic}", "more", f"{current}, while {setting} is {FIXED_COUNT}")
        self.args = (topic, current, setting)
        self.topic, self.current, self.setting = topic, current, setting

    def __str__(self) -> str:
        return (
            f"topic {self.topic} keeps its {self.current} partitions, because {self.setting} is {FIXED_COUNT}: "
            "with more, keys would move between partitions"
        )


class Topic(msgspec.Struct, frozen=True, kw_only=True, dict=True):  # the dict holds what is worked out once
    """What stands under `topic/…`. `overrides` are the settings that were set; `config` is all of them.

    `kind`: what writes its records, for as long as it exists. `heap`: the settings of a heap, which are the heap's business, and
    `EARLIER`, if it has grown.
    """

    id: str
    name: str
    partitions: int
    created_at_ms: int
    overrides: dict[str, object] = msgspec.field(name="config", default_factory=dict)
    format: int = 1
    kind: str = LOG
    heap: dict[str, object] = msgspec.field(default_factory=dict)

    @cached_property
    def config(self) -> TopicConfig:
        """Every setting, with defaults for those that were never set."""
        # A newer release may have written settings this one does not know: they are kept, and not looked at.
        return read_config({name: value for name, value in self.overrides.items() if name in NAMES})

    @property
    def is_heap(self) -> bool:
        """Whether its records are the operations of a heap."""
        return self.kind == HEAP


def read_topic(entry: Entry) -> Topic:
    """The topic in a store entry."""
    return msgspec.json.decode(entry.value, type=Topic)


def check_name(name: str) -> None:
    """Refuse a name that Kafka would refuse. `TopicNameError`."""
    if not 0 < len(name) <= NAME_MAX or not _NAME.fullmatch(name) or name in (".", ".."):
        raise TopicNameError(name)


def check_growth(topic: Topic, count: int | None, rules: TopicSettings) -> None:
    """`FixedPartitionsError`: no topic of the server gets more partitions than it has."""
    if count is not None and count > topic.partitions and rules.partitions == FIXED_COUNT:
        raise FixedPartitionsError(topic.name, topic.partitions, "topics.partitions")


def with_partitions(topic: Topic, count: int, *, now_ms: int = 0) -> Topic:
    """The topic with `count` partitions; raises what `Topics.add_partitions` refuses. Writes nothing. `now_ms`: when it grows."""
    if not topic.partitions < count <= PARTITIONS_MAX:
        raise PartitionCountError(topic.name, count, topic.partitions)
    if topic.is_heap:
        heap = {**topic.heap, EARLIER: _earlier(topic, now_ms)}
        return msgspec.structs.replace(topic, partitions=count, heap=heap)
    if topic.config.partition_count == FIXED_COUNT:
        raise FixedPartitionsError(topic.name, topic.partitions, "holdfast.partitions")
    return msgspec.structs.replace(topic, partitions=count)


def earlier_partitions(topic: Topic) -> tuple[tuple[int, int], ...]:
    """How many partitions a heap had before each growth, and when it grew, oldest first: the first is what it was created with."""
    found: tuple[tuple[int, int], ...] = msgspec.convert(topic.heap.get(EARLIER, ()), tuple[tuple[int, int], ...])
    return found


def _earlier(topic: Topic, now_ms: int) -> list[tuple[int, int]]:
    """The growths of a heap after one more. The first is kept for ever, the others while a repeated enqueue may look for them."""
    first, *others = (*earlier_partitions(topic), (topic.partitions, now_ms))
    kept = [first, *(each for each in others if each[1] > now_ms - _GROWTH_KEPT_MS)]
    if len(kept) > GROWTHS_MAX:
        raise InvalidError(f"number of times heap {topic.name} grew", len(kept), f"at most {GROWTHS_MAX} in two months")
    return kept


def with_settings(topic: Topic, changes: Mapping[str, object | None]) -> Topic:
    """The topic with other settings, None: the default; raises what `Topics.alter` refuses. Writes nothing."""
    if topic.is_heap and (fixed := changes.keys() & HEAP_SETTINGS.keys()):
        raise HeapTopicError(topic.name, "a change of " + ", ".join(sorted(fixed)))
    given = typed({setting: value for setting, value in changes.items() if value is not None})
    kept = {setting: value for setting, value in topic.overrides.items() if setting not in changes}
    altered = msgspec.structs.replace(topic, overrides={**kept, **given})
    check_replication(altered.config)  # together they must be valid, too
    return altered


class Topics:
    """The topics of a store. Safe to use from any process."""

    def __init__(self, store: Store, *, clock: Clock, random: Random) -> None:
        self._store, self._clock, self._random = store, clock, random

    async def create(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, object] | None = None,
        *,
        assigned: TopicAssignment | None = None,
        heap: Mapping[str, object] | None = None,
    ) -> Topic:
        """Create the topic and what places its partitions. `TopicExistsError` if the name is taken.

        `assigned`: agents for its partitions, as an operator would assign them. `heap`: it is a heap with these settings.
        """
        topic = self.planned(name, partitions, config, heap=heap)
        outcome = await commit_resolved(
            self._store,
            clock=self._clock,
            random=self._random,
            require=(Absent(topic_key(name)), Absent(workload_key(name)), Absent(topic_id_key(topic.id))),
            apply=(
                Put(topic_key(name), msgspec.json.encode(topic)),
                Put(topic_id_key(topic.id), msgspec.json.encode({"name": name})),
                _workload(topic),
                assignment_write(name, assigned or {}),  # none: of a topic that a release without assignments deleted
            ),
        )
        if not isinstance(outcome, Committed):
            raise TopicExistsError(name)
        return topic

    def planned(
        self,
        name: str,
        partitions: int,
        config: Mapping[str, object] | None = None,
        *,
        heap: Mapping[str, object] | None = None,
    ) -> Topic:
        """The topic that `create` would make; raises what it would refuse. Writes nothing."""
        check_name(name)
        check_between("number of partitions", partitions, 1, PARTITIONS_MAX)
        topic = Topic(
            id=blake2b((self._random.token() + self._random.token()).encode(), digest_size=16).hexdigest(),
            name=name,
            partitions=partitions,
            created_at_ms=self._clock.now_ms(),
            overrides=typed({**(config or {}), **(HEAP_SETTINGS if heap is not None else {})}),
            kind=LOG if heap is None else HEAP,
            heap=dict(heap or {}),
        )
        check_replication(topic.config)
        return topic

    async def get(self, name: str) -> Topic:
        """The topic of this name. `UnknownTopicError`."""
        check_name(name)
        return _existing(name, await self._store.get(topic_key(name)))

    async def by_id(self, topic_id: str) -> Topic:
        """The topic of this id. `UnknownTopicError`."""
        found = await self._store.get(topic_id_key(topic_id))
        if found is None:
            raise UnknownTopicError(topic_id)
        topic = await self.get(msgspec.json.decode(found.value, type=dict[str, str])["name"])
        if topic.id != topic_id:
            raise UnknownTopicError(topic_id)
        return topic

    async def list(self) -> Sequence[Topic]:
        """Every topic, by name."""
        return [read_topic(entry) for entry in (await self._store.scan(TOPICS, prefix_end(TOPICS))).entries]

    async def alter(
        self, name: str, changes: Mapping[str, object | None], *, assigned: TopicAssignment | None = None
    ) -> Topic:
        """Set settings; None takes one back to its default. All or none of the changes are made.

        `assigned`: agents for partitions, by the same commit, as an operator would assign them; none withdraw what is assigned.
        """
        for setting in changes:
            if setting not in NAMES:
                raise InvalidError("setting", setting, "one of " + ", ".join(sorted(NAMES)))

        async def decide(entry: Entry | None) -> Swap[Topic]:
            topic = _existing(name, entry)
            altered = with_settings(topic, changes)
            placed = [_workload(altered)] if _placed_as(altered) != _placed_as(topic) else []
            writes: list[Operation] = [Put(topic_key(name), msgspec.json.encode(altered)), *placed]
            if not assigned:
                return Swap(altered, writes)
            write, unchanged = await self._assign(name, assigned)
            return Swap(altered, [*writes, write], (unchanged,))

        return await self._change(name, decide)

    async def alter_heap(
        self, name: str, change: Callable[[Topic], Mapping[str, object]], *, partitions: int | None = None
    ) -> Topic:
        """Give a heap the settings that `change` returns for it; it raises if that cannot be. `partitions`: how many it has then,
        by the same commit; as many as it has already are no change. `PartitionCountError`: it has more.
        """

        async def decide(entry: Entry | None) -> Swap[Topic]:
            topic = _existing(name, entry)
            altered = msgspec.structs.replace(topic, heap=dict(change(topic)))
            placed: list[Operation] = []
            if partitions is not None and partitions != topic.partitions:
                altered = with_partitions(altered, partitions, now_ms=self._clock.now_ms())
                placed.append(_workload(altered))
            return Swap(altered, (Put(topic_key(name), msgspec.json.encode(altered)), *placed))

        return await self._change(name, decide)

    async def add_partitions(self, name: str, count: int, *, assigned: TopicAssignment | None = None) -> Topic:
        """Grow the topic to `count` partitions, for its readers and for the planner by the same commit.

        `assigned`: agents for the new ones, as an operator would assign them.

        `PartitionCountError`: `count` is no increase; whoever lost the answer to the same call gets it, too.
        `FixedPartitionsError`: the topic's own setting forbids it.
        """

        async def decide(entry: Entry | None) -> Swap[Topic]:
            grown = with_partitions(_existing(name, entry), count, now_ms=self._clock.now_ms())
            writes: list[Operation] = [Put(topic_key(name), msgspec.json.encode(grown)), _workload(grown)]
            if not assigned:
                return Swap(grown, writes)
            write, unchanged = await self._assign(name, assigned)
            return Swap(grown, [*writes, write], (unchanged,))

        return await self._change(name, decide)

    async def _assign(self, name: str, changes: TopicAssignment) -> tuple[Operation, Requirement]:
        """What to write and to require so that partitions are assigned together with another change."""
        before = await self._store.get(assignment_key(name))
        both = {**(read_assignment(before) if before is not None else {}), **changes}
        unchanged = Absent(assignment_key(name)) if before is None else AtVersion(before.key, before.version)
        return assignment_write(name, {number: agents for number, agents in both.items() if agents}), unchanged

    async def delete(self, name: str, *, topic_id: str | None = None) -> Topic:
        """Delete the topic. Its records are out of reach at once, and removed by maintenance afterwards.

        With `topic_id`, only if it still has this id: a new topic of the same name is another one.
        """

        async def decide(entry: Entry | None) -> Swap[Topic]:
            topic = _existing(name, entry)
            if topic_id is not None and topic.id != topic_id:
                raise UnknownTopicError(topic_id)
            mark = DeletedTopic(topic=name, deleted_at_ms=self._clock.now_ms())
            operations = (
                Delete(topic_key(name)),
                Delete(topic_id_key(topic.id)),
                Delete(workload_key(name)),
                Delete(assignment_key(name)),
                Put(deleted_key(topic.id), msgspec.json.encode(mark)),
            )
            return Swap(topic, operations)

        return await self._change(name, decide)

    async def _change(self, name: str, decide: Callable[[Entry | None], Awaitable[Swap[Topic]]]) -> Topic:
        check_name(name)
        topic, _ = await compare_and_swap(self._store, topic_key(name), decide, clock=self._clock, random=self._random)
        return topic


def _workload(topic: Topic) -> Put:
    """What the planner places for the topic."""
    return Put(workload_key(topic.name), msgspec.json.encode(_placed_as(topic)))


def _placed_as(topic: Topic) -> Workload:
    config = topic.config
    return Workload(
        topic=topic.name,
        partitions=topic.partitions,
        group=config.agent_group,
        replicas=config.replication_factor,
        rotates=config.rotates,
    )


def _existing(name: str, entry: Entry | None) -> Topic:
    if entry is None:
        raise UnknownTopicError(name)
    return read_topic(entry)
