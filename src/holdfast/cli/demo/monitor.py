"""The demo's progress: produced, stored, distinct, lag and rate, from the producer, ClickHouse and the pipeline's status."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdfast.cli.demo.events import EventStream
    from holdfast.cli.demo.row_count import RowCount
    from holdfast.client.http_client import HttpClient

_RATE_WINDOW_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class DemoSnapshot:
    """The demo at one moment."""

    seconds: float
    produced: int
    stored: int = 0
    distinct: int = 0
    lag_rows: int | None = None
    rows_per_second: float = 0.0
    state: str = "starting"
    refused: int = 0

    @property
    def exact(self) -> bool:
        """Whether every event is stored, once."""
        return self.stored == self.produced == self.distinct


class DemoMonitor:
    """Takes snapshots. `reasons`: why the pipeline does not run, as of the last one."""

    def __init__(self, client: "HttpClient", path: str, stream: "EventStream", count: "Callable[[], RowCount]") -> None:
        self._client, self._path, self._stream, self._count = client, path, stream, count
        self._began = time.monotonic()
        self._recent: list[tuple[float, int]] = []
        self.reasons: tuple[str, ...] = ()

    def snapshot(self) -> DemoSnapshot:
        """The progress now."""
        produced = self._stream.acknowledged
        status = self._client.get(f"{self._path}/status")
        counted = self._count()
        now = time.monotonic()
        self._recent = [*(each for each in self._recent if now - each[0] < _RATE_WINDOW_S), (now, counted.rows)]
        first = self._recent[0]
        rate = (counted.rows - first[1]) / (now - first[0]) if now > first[0] else 0.0
        self.reasons = tuple(status["reasons"])
        return DemoSnapshot(
            seconds=round(now - self._began, 1),
            produced=produced,
            stored=counted.rows,
            distinct=counted.distinct,
            lag_rows=max(0, produced - counted.rows),
            rows_per_second=round(max(0.0, rate), 1),
            state=status["state"],
            refused=status["dlqRows"],
        )
