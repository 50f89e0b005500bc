"""`host:port` as text: the one place that takes it apart and puts it together. IPv6 addresses stand in brackets."""

import re
from typing import Final, NamedTuple

PORT_MAX: Final = 65_535

_HOST_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%\w+)?)\]|([^\s:\[\]/@?#,]*))(?::([0-9]{1,5}))?")


class HostPort(NamedTuple):
    """A host, "" if there is none, and a port, None if there is none."""

    host: str
    port: int | None

    def __str__(self) -> str:
        return self.host if self.port is None else join_host_port(self.host, self.port)


def split_host_port(text: str) -> HostPort | None:
    """`host:port`, `host` or `:port`; None: it is none of them. An IPv6 address without brackets is not: its port is ambiguous."""
    found = _HOST_PORT.fullmatch(text)
    if found is None or int(found[3] or 0) > PORT_MAX:
        return None
    return HostPort(found[1] or found[2] or "", int(found[3]) if found[3] else None)


def resolvable(host: str) -> bool:
    """Whether a resolver takes it: no label is empty or has more than 63 characters. Python's raises `UnicodeError` otherwise."""
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def join_host_port(host: str, port: int) -> str:
    """The text that `split_host_port` takes apart."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
