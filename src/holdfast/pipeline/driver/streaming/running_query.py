"""A started query: its batches, counted, and a stop that waits for the last of them.

The one rule: after `stop` nothing of the query runs. Spark's own `stop` does not wait for a batch that is in Python.
"""

from collections.abc import Callable
from contextlib import suppress
from threading import Condition
from typing import TYPE_CHECKING, Any

from holdfast.pipeline.driver.streaming.checkpoint_folder import CheckpointFolders
from holdfast.pipeline.driver.streaming.query_listener import ListenedSession
from holdfast.pipeline.driver.streaming.stream_store import StreamStore
from holdfast.pipeline.model.definition import Revision
from holdfast.pipeline.sinks.clickhouse.stream_sink import ClickHouseStreamSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Batches:
    """Spark's calls of `foreachBatch`."""

    def __init__(self, write: Callable[["DataFrame", int], None]) -> None:
        self._write, self._changed, self._running = write, Condition(), 0
        self.failure: Exception | None = None

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        with self._changed:
            self._running += 1
        try:
            self._write(frame, batch)
        except Exception as error:
            self.failure = error
            raise
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @property
    def idle(self) -> bool:
        """Whether none is under way."""
        return self._running == 0

    def wait(self) -> None:
        """Until none is under way."""
        with self._changed:
            self._changed.wait_for(lambda: self._running == 0)


class RunningStream:
    """A started query and what it writes with."""

    def __init__(
        self, epoch: int, revision: Revision, store: StreamStore, folders: CheckpointFolders, sink: ClickHouseStreamSink
    ) -> None:
        self.epoch, self.revision, self.store, self.folders, self.sink = epoch, revision, store, folders, sink
        self.query: Any = None
        self.batches: Batches | None = None
        self.listened: ListenedSession | None = None
        self.cleaned = False

    def stop(self) -> None:
        """Stop it, and wait until nothing of it runs."""
        if self.query is not None:
            with suppress(Exception):  # it may have failed by itself
                self.query.stop()
        if self.batches is not None:
            self.batches.wait()
        if self.listened is not None:
            with suppress(Exception):  # a JVM that is gone reports nothing
                self.listened.close()
        self.sink.close()
