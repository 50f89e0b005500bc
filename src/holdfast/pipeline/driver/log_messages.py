"""The driver's own log records as messages to the worker, which logs them at their level.

What Spark, py4j and other libraries log goes to stderr, which a worker logs at debug.
"""

import logging
from collections.abc import Callable

from holdfast.pipeline.model.driver_protocol import DriverLog, FromDriver


class MessageHandler(logging.Handler):
    """Sends log records as `DriverLog`."""

    def __init__(self, send: Callable[[FromDriver], None]) -> None:
        super().__init__()
        self._send = send
        self._traces = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """One record, with the traceback of its exception."""
        try:
            trace = self._traces.formatException(record.exc_info) if record.exc_info else ""
            self._send(DriverLog(level=record.levelname, logger=record.name, text=record.getMessage(), trace=trace))
        except Exception:
            self.handleError(record)


def configure_logging(send: Callable[[FromDriver], None], level: str) -> None:
    """Own records become messages from this level on; libraries log warnings to stderr."""
    logging.basicConfig(level=logging.WARNING)
    own = logging.getLogger("holdfast")
    own.setLevel(level.upper())
    own.addHandler(MessageHandler(send))
    own.propagate = False
