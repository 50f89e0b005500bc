"""The log lines of simulated agents: in the transcript of a traced run, nowhere else."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from holdfast.sim.cluster.history import ClusterHistory
from holdfast.sim.process import RUNNING

_ROOT: Final = logging.getLogger("holdfast")


@contextmanager
def collecting_logs(history: ClusterHistory) -> Iterator[None]:
    """For the body, what agents log becomes notes."""
    handler = _NoteHandler(history)
    level, propagate, handlers = _ROOT.level, _ROOT.propagate, _ROOT.handlers
    _ROOT.setLevel(logging.INFO if history.tracing else logging.CRITICAL + 1)
    _ROOT.propagate, _ROOT.handlers = False, [handler]
    try:
        yield
    finally:
        _ROOT.setLevel(level)
        _ROOT.propagate, _ROOT.handlers = propagate, handlers


class _NoteHandler(logging.Handler):
    def __init__(self, history: ClusterHistory) -> None:
        super().__init__()
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        process = RUNNING.get()
        self._history.note("loop" if process is None else process.name, f"logs: {record.getMessage()}")
