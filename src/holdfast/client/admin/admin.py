"""Admin: topics, groups and the cluster, from an event loop. librdkafka's calls block, so they run on threads.

The one rule: what the brokers refuse raises an error of ours that names the thing and says what is allowed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from holdfast.client.admin import groups, topics
from holdfast.client.admin.groups import GroupProgress, OffsetMove
from holdfast.client.admin.model import (
    BrokerInfo,
    ClusterDescription,
    GroupDescription,
    GroupListing,
    GroupMember,
    TopicDescription,
)
from holdfast.client.admin.topics import TopicSetting
from holdfast.client.connection_settings import ConnectionSettings, connection_settings
from holdfast.client.librdkafka import KafkaClient
from holdfast.client.records.assigned_source import to_position
from holdfast.client.types import KafkaConflictError, KafkaNotFoundError
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import ClosedError, HoldfastError, UsageError
from holdfast.vocabulary.settings import check_at_least

P = ParamSpec("P")
T = TypeVar("T")


class Admin:
    """Administration of any Kafka cluster. Use it as `async with Admin("localhost:9092") as admin:`."""

    def __init__(self, connection: str | ConnectionSettings = "localhost:9092") -> None:
        self._connection = connection_settings(connection)
        self._client: KafkaClient | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        self._client = await asyncio.to_thread(KafkaClient, self._connection.bootstrap())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        self._client, self._closed = None, True

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> bool:
        """Create a topic and wait for its leaders. False: it existed, which without `exist_ok` is a `KafkaConflictError`.

        `replication_factor` -1 is the cluster's default.
        """
        check_at_least("partitions", partitions, 1)
        settings = {key: str(value) for key, value in (config or {}).items()}
        made = await self._call(
            topics.create_topic,
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            config=settings,
        )
        if not made and not exist_ok:
            raise KafkaConflictError("topic", name, "exists already")
        return made

    async def list_topics(self) -> list[str]:
        """The names of all topics, in order."""
        return [each.name for each in await self._call(topics.list_topics)]

    async def describe_topic(self, name: str) -> TopicDescription:
        """A topic with leaders, replicas and offsets of its partitions. `KafkaNotFoundError`."""

        def describe(client: KafkaClient) -> TopicDescription:
            found = client.describe([name])[name]
            rows = topics.partition_rows(client, [found])[name]
            return TopicDescription(found.name, str(found.topic_id), tuple(rows))

        return await self._call(describe)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records. `KafkaNotFoundError`."""
        _raise((await self._call(topics.delete_topics, [name]))[name])

    async def add_partitions(self, name: str, count: int) -> None:
        """Grow a topic to `count` partitions. Keys then have other partitions than before."""
        check_at_least("count", count, 1)
        await self._call(topics.add_partitions, name, count)

    async def topic_config(self, name: str) -> dict[str, TopicSetting]:
        """All settings of a topic, by name."""
        found = await self._call(topics.topic_settings, [name])
        return {setting.name: setting for setting in found[name]}

    async def set_topic_config(self, name: str, config: Mapping[str, str | None]) -> None:
        """Change settings of a topic, all or none; None takes a setting back to its default."""
        given = {key: str(value) for key, value in config.items() if value is not None}
        unset = [key for key, value in config.items() if value is None]
        await self._call(topics.alter_topic_settings, name, to=given, unset=unset)

    async def list_groups(self, *states: str) -> list[GroupListing]:
        """All consumer groups, or those in the given states."""
        if unknown := [state for state in states if state not in groups.STATES]:
            raise UsageError(f"unknown state {unknown[0]!r} of a group: must be one of {', '.join(groups.STATES)}")
        found = await self._call(groups.list_groups, states)
        return [GroupListing(each.group_id, groups.state_name(each)) for each in found]

    async def describe_group(self, name: str) -> GroupDescription:
        """A group and its members. `KafkaNotFoundError`."""
        found = await self._call(groups.describe_group, name)
        if found is None:
            raise KafkaNotFoundError("group", name, f"does not exist at {self._connection.bootstrap_servers}")
        return GroupDescription(
            name, groups.state_name(found), found.partition_assignor, tuple(_member(each) for each in found.members)
        )

    async def group_lag(self, name: str) -> list[GroupProgress]:
        """Committed offset, end and lag of each partition that a group reads. `KafkaNotFoundError`."""

        def progress(client: KafkaClient) -> list[GroupProgress] | None:
            found = groups.describe_group(client, name)
            return None if found is None else groups.progress_of(client, name, found)

        rows = await self._call(progress)
        if rows is None:
            raise KafkaNotFoundError("group", name, f"does not exist at {self._connection.bootstrap_servers}")
        return rows

    async def reset_group(
        self, name: str, topic: str, *, to: str | int | datetime, partitions: Sequence[int] = ()
    ) -> list[OffsetMove]:
        """Move a group without members to a position in a topic: `earliest`, `latest`, an offset, a time, `-1h`; what was moved."""
        position = to_position(to, option="to", now_ms=RealClock().now_ms())

        def reset(client: KafkaClient) -> list[OffsetMove]:
            moves = groups.plan_reset(
                client, name, topics=[topic], partitions=list(partitions), to=position, shift=None
            )
            groups.apply_reset(client, name, moves)
            return moves

        return await self._call(reset)

    async def delete_group(self, name: str) -> None:
        """Delete a group without members, with its offsets. `KafkaNotFoundError`, `KafkaConflictError`."""
        _raise((await self._call(groups.delete_groups, [name]))[name])

    async def describe_cluster(self) -> ClusterDescription:
        """The brokers, the controller, and the id of the cluster."""

        def describe(client: KafkaClient) -> ClusterDescription:
            found = client.call_one(
                "cluster",
                str(client.bootstrap),
                lambda left_s: client.admin.describe_cluster(request_timeout=left_s),
            )
            brokers = tuple(sorted(BrokerInfo(node.id, node.host, node.port) for node in found.nodes))
            return ClusterDescription(
                found.cluster_id, None if found.controller is None else found.controller.id, brokers
            )

        return await self._call(describe)

    async def _call(self, work: Callable[..., T], *given: Any, **named: Any) -> T:
        if self._closed:
            raise ClosedError("admin client")
        if self._client is None:
            raise UsageError("open the admin client first: `async with Admin(…) as admin:`")
        return await asyncio.to_thread(work, self._client, *given, **named)


def _member(member: Any) -> GroupMember:
    places = tuple((place.topic, place.partition) for place in member.assignment.topic_partitions)
    return GroupMember(member.member_id, member.client_id, member.host, places)


def _raise(error: HoldfastError | None) -> None:
    if error is not None:
        raise error
