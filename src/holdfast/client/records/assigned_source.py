"""Partitions that the caller names, read from a position on. No group, and nothing is committed: reading leaves no trace.

The one rule: the partitions are decided when the consumer is opened; those that a topic gets later are not read.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from holdfast.client.admin.offsets import offsets_at
from holdfast.client.admin.positions import AtOffset, AtTime, Position, parse_position
from holdfast.client.librdkafka import KafkaClient
from holdfast.client.partition_offsets import require_partition_offsets
from holdfast.client.records.model import TopicPartition
from holdfast.client.records.partition_source import SourceContext
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, InvalidError, UsageError

_NO_GROUP: Final = "this consumer has no group: give it a group_id, or make it with Consumer.from_registry"


class AssignedSource:
    """Fixed partitions: all of `topics`, and `partitions`."""

    def __init__(
        self, topics: Sequence[str], partitions: Sequence[TopicPartition], start: object, *, clock: Clock
    ) -> None:
        if not topics and not partitions:
            raise UsageError("a consumer needs at least one topic or partition")
        self._topics, self._partitions = topics, partitions
        self._start = to_position(start, option="start", now_ms=clock.now_ms())

    def properties(self) -> Mapping[str, Any]:
        # librdkafka requires the name of a group; it is never joined.
        return {"group.id": "holdfast-standalone", "auto.offset.reset": "earliest"}

    async def open(self, context: SourceContext) -> None:
        offsets = await asyncio.to_thread(self._offsets, context.fetcher.client)
        await context.events.assigned(list(offsets))
        await context.fetcher.assign(offsets)

    def _offsets(self, client: KafkaClient) -> dict[TopicPartition, int]:
        described = client.describe(self._topics) if self._topics else {}
        wanted = [TopicPartition(each.name, info.id) for each in described.values() for info in each.partitions]
        wanted += [TopicPartition(*each) for each in self._partitions]
        return resolve_position(client, self._start, wanted)

    def check(self) -> None:
        """There is no membership that could end."""

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, HoldfastError]:
        raise UsageError(_NO_GROUP)

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        raise UsageError(_NO_GROUP)

    async def lost_error(self, partition: TopicPartition) -> HoldfastError:
        raise UsageError(_NO_GROUP)

    async def close(self) -> None:
        """Nobody has to be told."""


def to_position(given: object, *, option: str, now_ms: int) -> Position:
    """The position that an offset, a time or a text such as `earliest` or `-1h` means."""
    if isinstance(given, str):
        return parse_position(given, option=option, now_ms=now_ms)
    if isinstance(given, datetime):
        return AtTime(max(0, round(given.timestamp() * 1_000)))
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return AtOffset(given)
    raise InvalidError(option, given, "an offset, a datetime, or text such as earliest, latest or -1h")


def resolve_position(
    client: KafkaClient, position: Position, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offset that a position means in each partition."""
    found = require_partition_offsets(client, partitions)
    return {TopicPartition(*each): offset for each, offset in offsets_at(client, position, found).items()}
