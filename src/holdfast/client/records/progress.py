"""What a consumer has delivered, processed and committed. No I/O.

The one rule: a record counts as processed when the application asks for the next one, or says so by `commit()`; offsets of
others are never committed. Thread-safe: a synchronous application delivers on its own thread.
"""

import threading
from collections.abc import Iterable, Mapping

from holdfast.client.records.model import TopicPartition

Offsets = dict[TopicPartition, int]


class ConsumerProgress:
    """Offsets are those of the next record."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: Offsets = {}  # with the application, not known to be processed
        self._processed: Offsets = {}
        self._committed: Offsets = {}
        self._lost: Offsets = {}

    def deliver(self, partition: TopicPartition, offset: int) -> None:
        """The record at `offset` is given to the application."""
        with self._lock:
            self._current[partition] = offset + 1

    def mark_processed(self) -> None:
        """Everything delivered is processed."""
        with self._lock:
            if self._current:
                self._processed.update(self._current)
                self._current.clear()

    def uncommitted(self) -> Offsets:
        """Processed, and not committed yet."""
        with self._lock:
            return {each: offset for each, offset in self._processed.items() if self._committed.get(each) != offset}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These were committed."""
        with self._lock:
            self._committed.update(offsets)

    def position(self, partition: TopicPartition) -> int | None:
        """The next record to deliver; None: nothing was delivered since it was assigned, or moved."""
        with self._lock:
            return self._current.get(partition, self._processed.get(partition))

    def lose(self, partitions: Iterable[TopicPartition]) -> None:
        """These are somebody else's now. What was delivered of them and not committed will be delivered there again."""
        with self._lock:
            for partition in partitions:
                processed = self._processed.pop(partition, None)
                delivered = self._current.pop(partition, processed)
                if delivered is not None and self._committed.get(partition) != delivered:
                    self._lost[partition] = delivered
                self._committed.pop(partition, None)

    def take_lost(self) -> Offsets:
        """What was delivered, not committed, and lost; once."""
        with self._lock:
            lost, self._lost = self._lost, {}
            return lost

    def move(self, partition: TopicPartition) -> None:
        """The application moved the position: what it had read before is not committed any more."""
        with self._lock:
            for offsets in (self._current, self._processed, self._committed):
                offsets.pop(partition, None)
