"""Kafka addresses as options and flags give them: `host:port`, several separated by commas, IPv6 in brackets."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from holdfast.vocabulary.errors import InvalidError

_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9a-fA-F:.%\w]+\]|[^\s:\[\]]+)(:(?P<port>\d{1,5}))?")
_FORM: Final = "host:port, several separated by commas"


class BrokerAddress(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


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
    found = _ADDRESS.fullmatch(address)
    port = int(found["port"] or default_port or 0) if found is not None else 0
    if found is None or not 0 < port < 65_536:
        raise InvalidError(name, text, _FORM)
    return BrokerAddress(found["host"].strip("[]"), port)
