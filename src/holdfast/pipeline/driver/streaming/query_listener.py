"""What Spark reports of a slot's queries, from its listener: every batch, and every end.

The one rule: totals are over all queries that the slot has started. A poll would miss the batches between two of them.
"""

from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.pipeline.driver.spark_jobs import cause_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class QueryFigures:
    """Of one slot. Written by Spark's listener thread, read by the slot's."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.report: dict[str, Any] = {}
        """Spark's last `StreamingQueryProgress`; empty: the running query has reported none."""
        self.input_rows = 0
        self.late_rows = 0
        self.failures = 0
        self.failure = ""
        """Why a query ended the last time."""

    def started(self) -> None:
        """A query was started: figures of an earlier one are not its own."""
        with self._lock:
            self.report = {}

    def add(self, report: dict[str, Any]) -> None:
        """A batch, or a moment without one, which has no rows."""
        with self._lock:
            self.report = report
            self.input_rows += max(0, report.get("numInputRows", 0))
            self.late_rows += sum(
                max(0, each.get("numRowsDroppedByWatermark", 0)) for each in report.get("stateOperators", [])
            )

    def terminated(self, exception: str | None) -> None:
        """A query ended; by itself, if there is an exception."""
        if exception:
            with self._lock:
                self.failures += 1
                self.failure = cause_of(Exception(exception))


class ListenedSession:
    """A session whose queries report to `figures`, from here until `close`."""

    def __init__(self, session: "SparkSession", figures: QueryFigures) -> None:
        self._session, self._listener = session, _listener(figures)
        session.streams.addListener(self._listener)

    def close(self) -> None:
        """Report no more. Doing it twice does nothing."""
        self._session.streams.removeListener(self._listener)


def _listener(figures: QueryFigures) -> Any:
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802 (Spark calls it so)
            figures.started()

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802 (Spark calls it so)
            figures.add(msgspec.json.decode(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802 (Spark calls it so)
            pass

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 (Spark calls it so)
            figures.terminated(event.exception)

    return Listener()
