"""The embedded ClickHouse as a process: it serves until it is told to stop, and then finishes what runs."""

import ipaddress
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from holdfast.clickhouse.embedded.engine import locked_data_directory, open_engine
from holdfast.clickhouse.embedded.landlock import confine
from holdfast.clickhouse.embedded.server import ClickHouseHttpServer
from holdfast.clickhouse.embedded.settings import ClickHouseSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)


def bind_socket(host: str, port: int, *, insecure: bool) -> socket.socket:
    """A socket at the address. Beyond this machine only if that is asked for: passwords travel in the clear."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
    except OSError as error:
        raise UnavailableError(f"address {host}:{port}", error.strerror or str(error)) from None
    if not insecure and not ipaddress.ip_address(made.getsockname()[0]).is_loopback:
        made.close()
        raise InvalidError("--listen", host, "an address of this machine alone; --insecure allows others")
    return made


def inherited_socket(descriptor: int) -> socket.socket:
    """A socket that listens already and was handed down by the process that started this one."""
    try:
        made = socket.socket(fileno=descriptor)
        if not made.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise InvalidError("--listen-fd", descriptor, "a socket that listens")
    except OSError as error:
        raise InvalidError("--listen-fd", descriptor, f"a socket that listens ({error.strerror})") from None
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
    """Serve until `ends` is set; running statements then have `stop_ms`. Returns the exit code.

    The engine lives on a thread that is confined; this one only says where it listens, and waits.
    """
    life = _EngineThread(settings, place, clock=clock, random=random, stop_event=stop_event)
    thread = threading.Thread(target=life.run, name="engine")
    thread.start()
    life.ready.wait()
    try:
        if life.server is not None:
            announce(life.server)
        thread.join()
    finally:
        stop_event.set()
        thread.join()
    if life.failure is not None:
        raise life.failure
    return 0


class _EngineThread:
    """The engine's thread."""

    def __init__(
        self,
        settings: ClickHouseSettings,
        place: socket.socket,
        *,
        clock: Clock,
        random: Random,
        stop_event: threading.Event,
    ) -> None:
        self._settings, self._place, self._clock, self._random, self._stop_event = (
            settings,
            place,
            clock,
            random,
            stop_event,
        )
        self.ready = threading.Event()
        self.server: ClickHouseHttpServer | None = None
        self.failure: BaseException | None = None

    def run(self) -> None:
        """From the lock of the directory to its release."""
        try:
            with locked_data_directory(self._settings.data.absolute()) as data:
                if self._settings.confined:
                    confine(data)
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
        _log.warning("%d statements were still running after %d ms and are cancelled", len(late), settings.stop_ms)
        for one in late:
            one.cancel()
        server.engine.query("KILL QUERY WHERE 1 ASYNC")
        server.registry.wait_until_none(settings.stop_ms)
    server.executor.sessions.close()
    server.server_close()


def stop_on_signal() -> threading.Event:
    """Set by the first SIGTERM or SIGINT; the second ends the process by itself."""
    stop_event = threading.Event()

    def told(number: int, _: object) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        _log.info("%s: stopping; once more ends at once", signal.Signals(number).name)
        stop_event.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, told)
    return stop_event


def stop_on_parent_exit(descriptor: int, stop_event: threading.Event) -> None:
    """Have `ends` set when a pipe comes to its end, whose other side is held by a process that may be killed."""

    def watch() -> None:
        # Not through a file object: a thread that waits in one holds its lock, and the interpreter cannot end without it.
        while os.read(descriptor, 4096):
            pass
        stop_event.set()

    threading.Thread(target=watch, name="parent", daemon=True).start()
