"""What the tasks of a query read, for whoever wants to know: a line per task, in a file.

    figures = ReadMetrics(Path("/tmp/figures"))
    spark.read.format("holdfast").options(**figures.options).option(…).load().count()
    figures.read().bytes_objects

Spark has no way from a Python source's tasks back to the driver, so this is a file that all of them can append to: on one machine,
or on a shared mount. The one rule: figures never fail a query. A task that runs twice is counted twice.
"""

import logging
import os
from dataclasses import asdict
from pathlib import Path
from typing import Final

import msgspec

from holdfast.spark.ranges import ReadCounters

_log: Final = logging.getLogger(__name__)


class ReadMetrics:
    """Sums over all queries that were given its options."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()

    @property
    def options(self) -> dict[str, str]:
        """What a reader needs to count here."""
        return {"figures": str(self._path)}

    def read(self) -> ReadCounters:
        """Everything counted so far, by tasks that have ended."""
        counted = ReadCounters()
        if self._path.exists():
            for line in self._path.read_bytes().splitlines():
                counted.add(msgspec.json.decode(line, type=ReadCounters))
        return counted


def append_counters(path: str, counters: ReadCounters) -> None:
    """Add a line; on an executor."""
    if not path:
        return
    try:
        # One write at the end of the file: lines of several tasks do not mix.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, msgspec.json.encode(asdict(counters)) + b"\n")
        finally:
            os.close(file)
    except OSError as error:
        _log.warning("the figures of a task are lost: %s", error)
