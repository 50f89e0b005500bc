"""Records that were fetched and not delivered yet. No I/O.

The one rule: per partition, records leave in the order they came in; those of a paused partition wait, those of a lost one are
dropped.
"""

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

from holdfast.client.records.model import TopicPartition

Fetched = tuple[TopicPartition, Any]  # a partition and librdkafka's message


class RecordBuffer:
    """Filled on the fetching thread, emptied on the event loop's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: deque[Fetched] = deque()
        self._paused: dict[TopicPartition, list[Fetched]] = {}

    def __len__(self) -> int:
        return len(self._ready)

    def add(self, fetched: Iterable[Fetched]) -> None:
        """Records in the order they were fetched."""
        with self._lock:
            for each in fetched:
                waiting = self._paused.get(each[0])
                (self._ready if waiting is None else waiting).append(each)

    def take(self, count: int) -> list[Fetched]:
        """The oldest ones."""
        with self._lock:
            ready = self._ready
            return [ready.popleft() for _ in range(min(count, len(ready)))]

    def put_back(self, taken: Iterable[Fetched]) -> None:
        """What was taken and not delivered, in its order."""
        with self._lock:
            self._ready.extendleft(reversed(list(taken)))

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the records of these partitions, and that they were paused."""
        dropped = set(partitions)
        with self._lock:
            self._ready = deque(each for each in self._ready if each[0] not in dropped)
            for each in dropped:
                self._paused.pop(each, None)

    def clear(self, partition: TopicPartition) -> None:
        """Forget the records of a partition, which stays paused if it is."""
        with self._lock:
            self._ready = deque(each for each in self._ready if each[0] != partition)
            if partition in self._paused:
                self._paused[partition] = []

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Keep the records of these partitions back."""
        with self._lock:
            for partition in partitions:
                if partition not in self._paused:
                    self._paused[partition] = [each for each in self._ready if each[0] == partition]
                    self._ready = deque(each for each in self._ready if each[0] != partition)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Deliver them again."""
        with self._lock:
            for partition in partitions:
                self._ready.extend(self._paused.pop(partition, ()))
