"""Kafka addresses as options and flags give them: `host:port`, several separated by commas, IPv6 in brackets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.host_port import join_host_port, resolvable, split_host_port

_FORM: Final = "host:port, several separated by commas"


class BrokerAddress(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return join_host_port(self.host, self.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bootstrap:
    """Which brokers to connect to first, how long to wait for them, and further librdkafka properties."""

    servers: str
    timeout_s: float = 10.0
    properties: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.servers


def parse_bootstrap(
    text: str, *, name: str = "option bootstrap", default_port: int | None = None
) -> tuple[BrokerAddress, ...]:
    """Every address, in the order given. `InvalidError` under `name`; a port may be omitted if there is a default."""
    return tuple(_parse_address(each.strip(), text, name, default_port) for each in text.split(","))


def _parse_address(address: str, text: str, name: str, default_port: int | None) -> BrokerAddress:
    found = split_host_port(address)
    port = default_port if found is None or found.port is None else found.port
    if found is None or not resolvable(found.host) or not port:
        raise InvalidError(name, text, _FORM)
    return BrokerAddress(found.host, port)
