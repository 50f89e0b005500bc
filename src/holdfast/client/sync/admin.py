"""Admin: topics, groups and the cluster, for programs without an event loop."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from holdfast.client.admin.admin import Admin as AsyncAdmin
from holdfast.client.admin.groups import GroupProgress, OffsetMove
from holdfast.client.admin.model import ClusterDescription, GroupDescription, GroupListing, TopicDescription
from holdfast.client.admin.topics import TopicSetting
from holdfast.client.connection_settings import ConnectionSettings
from holdfast.client.sync.loop_calls import LoopCalls


class Admin:
    """Administration of any Kafka cluster. Use it as `with Admin("localhost:9092") as admin:`."""

    def __init__(self, connection: str | ConnectionSettings = "localhost:9092") -> None:
        self._admin, self._run = AsyncAdmin(connection), LoopCalls("admin client").run

    def __enter__(self) -> Self:
        self._run(self._admin.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._run(self._admin.close())

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> bool:
        """Create a topic and wait for its leaders. False: it existed, which without `exist_ok` is a `KafkaConflictError`."""
        return self._run(
            self._admin.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, config=config, exist_ok=exist_ok
            )
        )

    def list_topics(self) -> list[str]:
        """The names of all topics, in order."""
        return self._run(self._admin.list_topics())

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic with leaders, replicas and offsets of its partitions. `KafkaNotFoundError`."""
        return self._run(self._admin.describe_topic(name))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records. `KafkaNotFoundError`."""
        self._run(self._admin.delete_topic(name))

    def add_partitions(self, name: str, count: int) -> None:
        """Grow a topic to `count` partitions. Keys then have other partitions than before."""
        self._run(self._admin.add_partitions(name, count))

    def topic_config(self, name: str) -> dict[str, TopicSetting]:
        """All settings of a topic, by name."""
        return self._run(self._admin.topic_config(name))

    def set_topic_config(self, name: str, config: Mapping[str, str | None]) -> None:
        """Change settings of a topic, all or none; None takes a setting back to its default."""
        self._run(self._admin.set_topic_config(name, config))

    def list_groups(self, *states: str) -> list[GroupListing]:
        """All consumer groups, or those in the given states."""
        return self._run(self._admin.list_groups(*states))

    def describe_group(self, name: str) -> GroupDescription:
        """A group and its members. `KafkaNotFoundError`."""
        return self._run(self._admin.describe_group(name))

    def group_lag(self, name: str) -> list[GroupProgress]:
        """Committed offset, end and lag of each partition that a group reads. `KafkaNotFoundError`."""
        return self._run(self._admin.group_lag(name))

    def reset_group(
        self, name: str, topic: str, *, to: str | int | datetime, partitions: Sequence[int] = ()
    ) -> list[OffsetMove]:
        """Move a group without members to a position in a topic: `earliest`, `latest`, an offset, a time, `-1h`; what was moved."""
        return self._run(self._admin.reset_group(name, topic, to=to, partitions=partitions))

    def delete_group(self, name: str) -> None:
        """Delete a group without members, with its offsets. `KafkaNotFoundError`, `KafkaConflictError`."""
        self._run(self._admin.delete_group(name))

    def describe_cluster(self) -> ClusterDescription:
        """The brokers, the controller, and the id of the cluster."""
        return self._run(self._admin.describe_cluster())
