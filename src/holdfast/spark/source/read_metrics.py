"""Counts what the tasks of a query read: a line per task, in a file.

    metrics = ReadMetrics(Path("/tmp/metrics"))
    spark.read.format("holdfast").options(**metrics.options).option(…).load().count()
    metrics.read().bytes_objects

The tasks of a Python source cannot send anything to the driver, so they append to a file: on one machine, or on a shared mount.
The one rule: metrics never fail a query. A task that runs twice is counted twice.
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
    """Sums over all queries that have its options."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()

    @property
    def options(self) -> dict[str, str]:
        """The options of a reader that counts here."""
        return {"figures": str(self._path)}

    def read(self) -> ReadCounters:
        """The sum over all tasks that have ended."""
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
        # One write with O_APPEND: lines of several tasks do not interleave.
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, msgspec.json.encode(asdict(counters)) + b"\n")
        finally:
            os.close(file)
    except OSError as error:
        _log.warning("cannot write the read metrics of a task: %s", error)
