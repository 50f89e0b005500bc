"""Spans on their way to a collector: a bounded queue and one thread that sends.

The one rule: nobody who ends a span waits, and a collector that is away costs nothing but spans: the oldest go, and are counted.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(slots=True)
class SpanCounters:
    """Spans since the process started."""

    exported: int = 0
    failed: int = 0  # the collector did not take them
    dropped: int = 0  # they did not fit into the queue


class SpanQueue(Generic[T]):
    """`export` sends some and returns whether they were taken; it is called on the queue's own thread."""

    def __init__(
        self, export: Callable[[Sequence[T]], bool], *, queue_max: int, batch_max: int, interval_s: float
    ) -> None:
        self.counters = SpanCounters()
        self._export, self._batch_max, self._interval_s = export, batch_max, interval_s
        self._queue: deque[T] = deque()
        self._queue_max = queue_max
        self._wake, self._stopping = threading.Event(), False
        # A daemon: a collector that never answers must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name="trace-export", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, span: T) -> None:
        """Queue a span that has ended. From any thread."""
        if len(self._queue) >= self._queue_max:
            self.counters.dropped += 1
            self._queue.popleft()
        self._queue.append(span)
        if len(self._queue) >= self._batch_max:
            self._wake.set()

    def stop(self, wait_s: float) -> None:
        """Send what is queued, for as long as `wait_s`. Blocks."""
        self._stopping = True
        self._wake.set()
        self._thread.join(wait_s)

    def _run(self) -> None:
        lost = False
        while not self._stopping or self._queue:
            if not self._stopping and len(self._queue) < self._batch_max:
                self._wake.wait(self._interval_s)
            self._wake.clear()
            while batch := self._take():
                taken = self._send(batch)
                if taken:
                    self.counters.exported += len(batch)
                else:
                    self.counters.failed += len(batch)
                if taken == lost:  # one line when it is lost, one when it is back
                    lost = not taken
                    _log.warning(
                        "the trace collector %s", "does not answer: spans are lost" if lost else "answers again"
                    )
                if self._stopping and not taken:
                    return

    def _take(self) -> list[T]:
        return [self._queue.popleft() for _ in range(min(self._batch_max, len(self._queue)))]

    def _send(self, batch: Sequence[T]) -> bool:
        try:
            return self._export(batch)
        except Exception as error:  # whatever an exporter raises is not worth the thread
            _log.debug("spans were not exported: %s", error)
            return False
