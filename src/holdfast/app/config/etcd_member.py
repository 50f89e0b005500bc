"""Settings of the etcd member that `--store etcd:embedded` runs beside the server."""

from dataclasses import dataclass
from typing import Final

from holdfast.app.addresses import Address, AdvertisedAddress
from holdfast.vocabulary.errors import InvalidError, UsageError
from holdfast.vocabulary.host_port import split_host_port
from holdfast.vocabulary.settings import MIB, check_at_least

PEER_PORT: Final = 2380


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdMemberSettings:
    """`name` is empty for the agent's id. `join`: peer addresses of members, separated by commas; empty: begin a new cluster.

    `replace`: a node that has lost its data comes back as a new member, once the old one of its name is removed.
    `peer_listen` and `client_listen` have fixed ports: other members remember them. What is advertised is, by default, that port
    at the host that Kafka's clients use. `ca`, `cert` and `key`: TLS between members and to clients, both proving who they are.
    `quota_bytes`: beyond this size etcd refuses writes. History is compacted every `compact_every_min`.
    `stop_ms` bounds a graceful stop of the member.
    """

    program: str = "etcd"
    name: str = ""
    join: str = ""
    replace: bool = False
    peer_listen: str = f"127.0.0.1:{PEER_PORT}"
    peer_advertise: str = ""
    client_listen: str = "127.0.0.1:2379"
    client_advertise: str = ""
    ca: str = ""
    cert: str = ""
    key: str = ""
    quota_bytes: int = 2048 * MIB
    compact_every_min: int = 10
    heartbeat_ms: int = 100
    election_ms: int = 1_000
    stop_ms: int = 10_000

    def __post_init__(self) -> None:
        for what in ("peer_listen", "client_listen"):
            address = Address.parse(what, getattr(self, what))
            if not address.port:
                raise InvalidError(what, str(address), "a fixed port: other members remember it")
        for what in ("peer_advertise", "client_advertise"):
            AdvertisedAddress.parse(what, getattr(self, what))
        if not self.program:
            raise InvalidError("program", "", "the name or path of an etcd program")
        if "=" in self.name or "," in self.name or not self.name.isprintable():
            raise InvalidError("name", self.name, "printable text without = and ,")
        for given in self._joined():
            found = split_host_port(given)
            if found is None or not found.host or found.port == 0:
                raise InvalidError("join", self.join, "HOST:PORT of members, separated by commas")
        if len({bool(self.ca), bool(self.cert), bool(self.key)}) > 1:
            raise UsageError("TLS of the embedded etcd needs etcd.ca, etcd.cert and etcd.key together")
        check_at_least("quota_bytes", self.quota_bytes, 16 * MIB)
        check_at_least("compact_every_min", self.compact_every_min, 1)
        check_at_least("heartbeat_ms", self.heartbeat_ms, 10)
        check_at_least("election_ms", self.election_ms, 5 * self.heartbeat_ms)
        check_at_least("stop_ms", self.stop_ms, 0)

    def _joined(self) -> list[str]:
        return [each.strip() for each in self.join.split(",") if each.strip()]

    @property
    def join_addresses(self) -> tuple[Address, ...]:
        """Where members to join are reached by their peers."""
        found = [split_host_port(each) for each in self._joined()]
        return tuple(Address(each.host, each.port or PEER_PORT) for each in found if each is not None)

    @property
    def tls(self) -> bool:
        """Whether members and clients speak TLS."""
        return bool(self.cert)
