"""The embedded ClickHouse as a process: it serves until it is stopped, and lets running statements finish."""

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.clickhouse.embedded.engine import locked_data_directory, open_engine
from holdfast.clickhouse.embedded.landlock import confine, log_unconfined, unconfined_access
from holdfast.clickhouse.embedded.server import ClickHouseHttpServer
from holdfast.clickhouse.embedded.settings import ClickHouseSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.sockets import bind_one, is_loopback, listen

_log: Final = logging.getLogger(__name__)
_SIGNAL_POLL_S: Final = 0.2


def bind_socket(host: str, port: int, *, insecure: bool) -> socket.socket:
    """A listening socket. Beyond loopback only with `insecure`: passwords travel in the clear."""
    made = bind_one(host, port)
    try:
        if not insecure and not is_loopback(made):
            raise InvalidError("--listen", host, "a loopback address; --insecure allows others")
        listen([made])
    except BaseException:
        made.close()
        raise
    return made


def inherited_socket(descriptor: int) -> socket.socket:
    """A listening socket inherited from the parent process."""
    try:
        made = socket.socket(fileno=descriptor)
        if not made.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise InvalidError("--listen-fd", descriptor, "a listening socket")
    except OSError as error:
        raise InvalidError("--listen-fd", descriptor, f"a listening socket ({error.strerror})") from None
    return made


def serve(
    settings: ClickHouseSettings,
    place: socket.socket,
    *,
    clock: Clock,
    random: Random,
    announce: Callable[[ClickHouseHttpServer], None],
    stop_event: threading.Event,
) -> int:
    """Serve until `stop_event` is set; running statements then have `stop_ms`. Returns the exit code.

    The engine runs on a confined thread; this one only announces the address, and waits.
    """
    engine = _EngineThread(settings, place, clock=clock, random=random, stop_event=stop_event)
    thread = threading.Thread(target=engine.run, name="engine")
    thread.start()
    engine.ready.wait()
    try:
        if engine.server is not None:
            announce(engine.server)
        # In turns: the kernel may give a signal to a thread of the engine, and Python handles it when this one runs again.
        while thread.is_alive():
            thread.join(_SIGNAL_POLL_S)
    finally:
        stop_event.set()
        thread.join()
    if engine.failure is not None:
        raise engine.failure
    return 0


class _EngineThread:
    """What runs on the engine's thread, and how it ended."""

    def __init__(
        self,
        settings: ClickHouseSettings,
        place: socket.socket,
        *,
        clock: Clock,
        random: Random,
        stop_event: threading.Event,
    ) -> None:
        self._settings, self._place, self._stop_event = settings, place, stop_event
        self._clock, self._random = clock, random
        self.ready = threading.Event()
        self.server: ClickHouseHttpServer | None = None
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Lock the directory, serve, release it. Never raises: `failure` has the error."""
        try:
            with locked_data_directory(self._settings.data.absolute()) as data:
                if self._settings.confined:
                    confine(data)
                else:
                    log_unconfined(unconfined_access(0))
                self._serve(data)
        except BaseException as error:
            self.failure = error
        finally:
            self.ready.set()

    def _serve(self, data: Path) -> None:
        with open_engine(self._settings, data, random=self._random) as engine:
            server = ClickHouseHttpServer(self._place, engine, self._settings, clock=self._clock, random=self._random)
            threading.Thread(target=server.serve_forever, args=(0.1,), name="accept", daemon=True).start()
            try:
                self.server = server
                self.ready.set()
                while not self._stop_event.wait(1.0):
                    server.executor.sessions.sweep()
            finally:
                _stop(server, self._settings)


def _stop(server: ClickHouseHttpServer, settings: ClickHouseSettings) -> None:
    server.registry.close()
    server.shutdown()
    if not server.registry.wait_until_none(settings.stop_ms):
        late = server.registry.all()
        _log.warning("%d statements still running after %d ms are cancelled", len(late), settings.stop_ms)
        for running in late:
            running.cancel()
        server.engine.query("KILL QUERY WHERE 1 ASYNC")
        server.registry.wait_until_none(settings.stop_ms)
    server.executor.sessions.close()
    server.server_close()


def stop_on_signal() -> threading.Event:
    """Set by the first SIGTERM or SIGINT; the second terminates the process."""
    stop_event = threading.Event()

    def stop(number: int, _: object) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        _log.info("%s: stopping; send it again to stop immediately", signal.Signals(number).name)
        stop_event.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)
    return stop_event


def stop_on_parent_exit(descriptor: int, stop_event: threading.Event) -> None:
    """Set `stop_event` at the end of a pipe that the parent process holds open: it ends even if the parent is killed."""

    def watch() -> None:
        # Not through a file object: a thread that reads one holds its lock, and the interpreter needs that lock to exit.
        while os.read(descriptor, 4096):
            pass
        stop_event.set()

    threading.Thread(target=watch, name="parent", daemon=True).start()
