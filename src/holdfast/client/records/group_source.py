"""Partitions of a consumer group: assigned by its coordinator, with offsets committed to it.

The one rule: rebalances happen inside of a poll, and their callbacks run on the event loop while the polling thread waits, so
that the offsets of what was processed are committed before a partition is given away.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException

from holdfast.client.kafka_errors import kafka_error
from holdfast.client.records.model import TopicPartition
from holdfast.client.records.partition_source import SourceContext
from holdfast.vocabulary.errors import ExpiredError, HoldfastError, InvalidError, UsageError
from holdfast.vocabulary.settings import check_one_of

_log: Final = logging.getLogger(__name__)

_CALLBACK_S: Final = 60.0


class GroupSource:
    """Membership in a group. `start`: where partitions without a committed offset begin."""

    def __init__(self, group_id: str, topics: Sequence[str], start: object) -> None:
        if not topics:
            raise UsageError("a consumer of a group needs at least one topic")
        if not isinstance(start, str):
            raise InvalidError("start", start, "earliest, latest or error for a group; use seek for another position")
        check_one_of("start", start, ("earliest", "latest", "error"))
        self._group_id, self._topics, self._start = group_id, topics, start
        self._context: SourceContext
        self._in_callback = False

    def properties(self) -> Mapping[str, Any]:
        return {
            "group.id": self._group_id,
            "auto.offset.reset": self._start,
            "partition.assignment.strategy": "cooperative-sticky",
        }

    async def open(self, context: SourceContext) -> None:
        self._context = context
        loop = asyncio.get_running_loop()

        def wait_for(work: Any) -> None:
            """From the polling thread: run it on the loop, and wait, but not for ever."""
            self._in_callback = True
            try:
                asyncio.run_coroutine_threadsafe(work, loop).result(_CALLBACK_S)
            except Exception:
                _log.exception("rebalance callback of group %s raised", self._group_id)
            finally:
                self._in_callback = False

        events, fetcher = context.events, context.fetcher

        def revoked(partitions: Sequence[TopicPartition], lost: bool) -> None:
            # On this thread: a commit of another one would wait until the callback is over, and the callback for it.
            offsets = {} if lost else events.to_commit()
            if offsets:
                try:
                    fetcher.commit_here(offsets)
                    events.was_committed(offsets)
                except KafkaException as failure:
                    _log.warning("processed records of group %s are not committed: %s", self._group_id, failure)
            wait_for(events.revoked(partitions, lost=True))

        await fetcher.subscribe(
            self._topics,
            lambda partitions: wait_for(events.assigned(partitions)),
            revoked,
        )

    def check(self) -> None:
        """A group takes its members back by itself."""

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, HoldfastError]:
        if self._in_callback:  # the coordinator answers after the callback, which would wait for it
            raise UsageError("a rebalance callback cannot commit: commit when the records are processed")
        try:
            await self._context.fetcher.commit(offsets)
        except KafkaException as failure:
            error = self._context.fetcher.client.error(
                kafka_error(failure), "group", self._group_id, change="committing offsets of"
            )
            return dict.fromkeys(offsets, error)
        return {}

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        return await self._context.fetcher.committed(partitions)

    async def lost_error(self, partition: TopicPartition) -> HoldfastError:
        return ExpiredError(
            f"assignment of {partition}", f"group {self._group_id} was rebalanced before the records were committed"
        )

    async def close(self) -> None:
        """Closing the consumer leaves the group."""
