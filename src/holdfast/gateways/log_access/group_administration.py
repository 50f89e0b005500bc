"""Consumer groups for gateways: listed, described, moved and deleted.

The one rule: offsets of a group that has members are theirs; moving them is refused.
"""

from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka.admin import ConsumerGroupDescription  # type: ignore[attr-defined]

from holdfast.client.admin.groups import (
    GroupProgress,
    OffsetMove,
    apply_reset,
    committed_offsets,
    delete_groups,
    describe_group,
    list_groups,
    plan_reset,
    progress_of,
    state_name,
)
from holdfast.client.admin.positions import Position
from holdfast.client.librdkafka import KafkaClient
from holdfast.client.types import KafkaNotFoundError
from holdfast.gateways.log_access.backend import KafkaAdmin
from holdfast.vocabulary.errors import InvalidError

OFFSET_MAX = (1 << 63) - 1


class ListedGroup(NamedTuple):
    """A group and its state."""

    group: str
    state: str


class DescribedGroup(NamedTuple):
    """A group with its members, and its progress in each partition."""

    state: str
    found: ConsumerGroupDescription
    progress: Sequence[GroupProgress]


class GroupAdministration:
    """The consumer groups of a cluster, at one of its nodes."""

    def __init__(self, kafka: KafkaAdmin) -> None:
        self._kafka = kafka

    async def list(self) -> Sequence[ListedGroup]:
        """Every group of the cluster, by name."""
        return [ListedGroup(each.group_id, state_name(each)) for each in await self._kafka.call(list_groups, ())]

    async def describe(self, group: str) -> DescribedGroup:
        """State, members and progress. `KafkaNotFoundError`."""
        return await self._kafka.call(_describe, group)

    async def reset(
        self,
        group: str,
        *,
        topics: Sequence[str],
        partitions: Sequence[int],
        to: Position | None,
        shift: int | None,
        dry_run: bool = False,
    ) -> Sequence[OffsetMove]:
        """Move the committed offsets to a position, or by so many records. With `dry_run` nothing is moved."""

        def reset(client: KafkaClient) -> Sequence[OffsetMove]:
            moves = plan_reset(client, group, topics=topics, partitions=partitions, to=to, shift=shift)
            if not dry_run:
                apply_reset(client, group, moves)
            return moves

        return await self._kafka.call(reset)

    async def commit(self, group: str, offsets: Sequence[tuple[str, int, int]]) -> Sequence[OffsetMove]:
        """Commit (topic, partition, offset) of a group whose reader is no member of it."""
        if not offsets:
            raise InvalidError("offsets", "none", "at least one")

        def commit(client: KafkaClient) -> Sequence[OffsetMove]:
            before = committed_offsets(client, group)
            moves = [
                OffsetMove(topic, partition, before.get((topic, partition)), offset, None)
                for topic, partition, offset in offsets
            ]
            apply_reset(client, group, moves)
            return moves

        return await self._kafka.call(commit)

    async def delete(self, group: str) -> None:
        """Delete a group without members, and its offsets."""
        error = (await self._kafka.call(delete_groups, [group]))[group]
        if error is not None:
            raise error


def _describe(client: KafkaClient, group: str) -> DescribedGroup:
    found = describe_group(client, group)
    if found is None:
        raise KafkaNotFoundError("group", group, "does not exist")
    return DescribedGroup(state_name(found), found, progress_of(client, group, found))
