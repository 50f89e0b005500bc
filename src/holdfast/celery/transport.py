"""Kombu's transport: `holdfast://host:9092`, or several nodes as `holdfast://a:9092;holdfast://b:9092`.

The rules: connections to nodes are made, lost and made again below it, on the thread of leases; to Kombu, a connection is lost only
if nothing answers when it is made. It wakes the worker's loop through a file descriptor, and polls nothing. In a fork it publishes,
and can be closed: what it consumes is its parent's.
"""

import os
from collections.abc import Sequence
from typing import Any, Final

from kombu.transport import virtual
from kombu.utils.url import parse_url

from holdfast.celery.broker import CeleryBroker, broker_of
from holdfast.celery.channel import Channel
from holdfast.celery.exchanges import TemporaryQueue
from holdfast.celery.inbox import Inbox
from holdfast.celery.settings import transport_settings
from holdfast.heaps.background import BackgroundHeaps, background_heaps
from holdfast.log.errors import NotLeaderError
from holdfast.vocabulary.errors import ClosedError, InvalidError, UnavailableError

DEFAULT_PORT: Final = 9092


class Transport(virtual.Transport):  # type: ignore[misc]
    """One connection of Kombu."""

    Channel = Channel
    driver_type = "holdfast"
    driver_name = "holdfast"
    default_port = DEFAULT_PORT
    connection_errors = (UnavailableError, NotLeaderError, ClosedError, TimeoutError, OSError)
    channel_errors = virtual.Transport.channel_errors
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self.settings = transport_settings(client.transport_options)
        self.bootstrap = bootstrap_of(client)
        self.inbox = Inbox()
        self.temporary: dict[str, TemporaryQueue] = {}
        self._hub: Any = None
        self._process = os.getpid()

    @property
    def heaps(self) -> BackgroundHeaps:
        """The clients of this process: after a fork, others."""
        return background_heaps(self.bootstrap)

    @property
    def broker(self) -> CeleryBroker:
        """What this process knows of the queues."""
        return broker_of(self.heaps, self.settings.prefix)

    def driver_version(self) -> str:
        """Ours."""
        from holdfast import __version__

        return __version__

    def establish_connection(self) -> Any:
        """Connect. `connection_errors`: nothing answers."""
        self.broker.check(self.settings.connect_timeout)
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Close it. What was not started is given back."""
        is_inherited = self._process != os.getpid()  # a fork shares its parent's epoll, and has none of its readers
        if self._hub is not None and not is_inherited:
            self._hub.remove_reader(self.inbox.fileno())
        self._hub = None
        super().close_connection(connection)
        if self.temporary and not is_inherited:
            exchanges = self.broker.exchanges
            for queue in self.temporary.values():
                exchanges.release(queue, self.inbox)
        self.temporary.clear()
        self.inbox.close()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """Be called by the worker's loop when there is a message."""
        self._hub = loop
        loop.add_reader(self.inbox.fileno(), self.inbox.run)

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver one message, waiting for it. `socket.timeout`."""
        if not self.inbox.run_one(timeout):
            raise TimeoutError


def bootstrap_of(client: Any) -> str:
    """The addresses in a connection's URLs."""
    urls: Sequence[str] = client.alt or []
    places = [parse_url(url) for url in urls] or [
        {"hostname": client.hostname, "port": client.port, "userid": client.userid, "password": client.password}
    ]
    for place in places:
        if place.get("userid") or place.get("password"):
            raise InvalidError("broker URL", "holdfast://user:password@…", "one without user and password")
    return ",".join(f"{place.get('hostname') or '127.0.0.1'}:{place.get('port') or DEFAULT_PORT}" for place in places)
