"""The listening side of ClickHouse's HTTP interface: a thread per connection, and a limit on them."""

import logging
import socket
import sys
import threading
from http.server import ThreadingHTTPServer
from typing import Final

from holdfast.clickhouse.embedded.engine import ChdbEngine
from holdfast.clickhouse.embedded.executor import QueryExecutor
from holdfast.clickhouse.embedded.request_handler import RequestHandler
from holdfast.clickhouse.embedded.running_queries import RunningQueries
from holdfast.clickhouse.embedded.settings import ClickHouseSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)


class ClickHouseHttpServer(ThreadingHTTPServer):
    """Accepts connections on a socket that listens already."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        listening: socket.socket,
        engine: ChdbEngine,
        settings: ClickHouseSettings,
        *,
        clock: Clock,
        random: Random,
    ) -> None:
        super().__init__(listening.getsockname()[:2], RequestHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.settings, self.random, self.engine = settings, random, engine
        self.registry = RunningQueries(settings, clock=clock, random=random)
        self.executor = QueryExecutor(engine, self.registry, settings, clock=clock)
        self._connection_slots = threading.BoundedSemaphore(settings.connections_max)

    def process_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        """Start a thread for the connection, unless the limit is reached."""
        if not self._connection_slots.acquire(blocking=False):
            _log.warning("connection refused: limit of %d reached", self.settings.connections_max)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(
        self, request: socket.socket | tuple[bytes, socket.socket], client_address: object
    ) -> None:
        """Serve the connection until it is closed."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connection_slots.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that disconnects is no failure of this server, so it gets no traceback."""
        error = sys.exception()
        if isinstance(error, ConnectionError | TimeoutError):
            _log.debug("client %s disconnected: %s", client_address, error)
        else:
            _log.error("connection of %s failed", client_address, exc_info=error)
