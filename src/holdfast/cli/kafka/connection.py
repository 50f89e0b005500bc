"""The connection of a Kafka command. If nothing listens it fails at once: librdkafka alone retries until the timeout."""

import socket
from typing import TYPE_CHECKING, Final

from holdfast.cli.kafka.options import DEFAULT_PORT
from holdfast.client.addresses import Bootstrap, parse_bootstrap
from holdfast.vocabulary.errors import UnavailableError

if TYPE_CHECKING:
    from holdfast.client.librdkafka import KafkaClient

_PROBE_S_MAX: Final = 2.0


def connect(bootstrap: Bootstrap) -> "KafkaClient":
    """A client of a cluster that responded; `UnavailableError` if none did."""
    if "bootstrap.servers" not in bootstrap.properties and _refused_by_all(bootstrap):
        reason = "connection refused; start a server with `holdfast serve`, or name one with --bootstrap"
        raise UnavailableError(f"Kafka at {bootstrap}", reason)
    from holdfast.client.librdkafka import KafkaClient  # after the probe: it takes a while to import

    return KafkaClient(bootstrap)


def _refused_by_all(bootstrap: Bootstrap) -> bool:
    """Whether every address refuses connections. What else may be wrong, librdkafka says better."""
    for address in parse_bootstrap(bootstrap.servers, name="bootstrap", default_port=DEFAULT_PORT):
        try:
            socket.create_connection(address, timeout=min(bootstrap.timeout_s, _PROBE_S_MAX)).close()
        except ConnectionRefusedError:
            continue
        except OSError:
            return False
        return False
    return True
