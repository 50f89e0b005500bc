"""Kafka addresses as options give them: `host:port`, several with commas, IPv6 in brackets."""

from typing import Final, NamedTuple

from holdfast.vocabulary.errors import InvalidError

_FORM: Final = "host:port, or several with commas between them"


class BrokerAddress(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> tuple[BrokerAddress, ...]:
    """Every address, in the order given. `InvalidError`."""
    found = []
    for each in text.split(","):
        host, colon, port = each.strip().rpartition(":")
        if not host or not colon or not port.isdecimal() or not 0 < int(port) < 65_536:
            raise InvalidError("option bootstrap", text, _FORM)
        found.append(BrokerAddress(host.strip("[]"), int(port)))
    return tuple(found)
