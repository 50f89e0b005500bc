"""Address and settings of an etcd store, from its URL."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import grpc

from holdfast.stores.urls import StoreUrl, is_embedded_etcd
from holdfast.vocabulary.errors import InvalidError, UsageError
from holdfast.vocabulary.host_port import join_host_port, split_host_port
from holdfast.vocabulary.settings import check_at_least, check_between, settings_from

_PORT: Final = 2379


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSettings:
    """Values an operator may tune."""

    timeout_ms: int = 5_000  # one operation, retries included
    in_flight_max: int = 64  # concurrent commits; each has a slot key in etcd
    scan_keys_max: int = 2_000  # keys per page of a scan
    ping_every_ms: int = 6_000  # etcd refuses pings less than 5 s apart
    ping_timeout_ms: int = 3_000
    writer_ttl_s: int = 7_200  # how long the slots of a closed or dead store stay readable
    writer_retired_max: int = 1_000  # slots retired before a store gets a new writer lease
    renewal_streams_max: int = 16  # idle keep-alive streams kept
    members_every_ms: int = 0  # how often the endpoints are read from the member list; 0: they stay those of the URL

    def __post_init__(self) -> None:
        check_at_least("timeout_ms", self.timeout_ms, 100)
        check_between("in_flight_max", self.in_flight_max, 1, 4_096)
        check_at_least("scan_keys_max", self.scan_keys_max, 1)
        check_at_least("ping_every_ms", self.ping_every_ms, 5_000)
        check_at_least("ping_timeout_ms", self.ping_timeout_ms, 100)
        check_at_least("writer_ttl_s", self.writer_ttl_s, 5_400)  # renewed every sixth: over an hour is always left
        check_at_least("writer_retired_max", self.writer_retired_max, 1)
        check_at_least("renewal_streams_max", self.renewal_streams_max, 1)
        check_at_least("members_every_ms", self.members_every_ms, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAddress:
    """A cluster, a prefix in it, and the login. `endpoints` are host:port."""

    endpoints: tuple[str, ...]
    prefix: str = "holdfast"
    tls: bool = False
    ca_path: str = ""
    cert_path: str = ""
    key_path: str = ""
    user: str = ""
    password: str = ""
    unsafe: bool = False

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise UsageError("an etcd URL needs an endpoint: etcd://host:port, or several separated by commas")
        if not self.prefix.isprintable() or not self.prefix.strip("/"):
            raise InvalidError("etcd prefix", self.prefix, "printable text, such as holdfast or team/holdfast")
        if bool(self.cert_path) != bool(self.key_path):
            raise UsageError("an etcd client certificate needs both cert and key")
        if bool(self.user) != bool(self.password):
            raise UsageError("an etcd login needs both user and password")

    @property
    def shown(self) -> str:
        """For errors and facts: no password."""
        return f"{'etcds' if self.tls else 'etcd'}://{','.join(self.endpoints)}/{self.prefix}"

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Read the certificates (blocking); None without TLS. Without a CA, the public ones are trusted."""
        if not self.tls:
            return None
        read = [_read(path) if path else None for path in (self.ca_path, self.key_path, self.cert_path)]
        return grpc.ssl_channel_credentials(*read)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidError("TLS file", path, f"a readable PEM file ({error.strerror})") from None


def parse_url(url: StoreUrl) -> tuple[EtcdAddress, EtcdSettings]:
    """`etcd://[user:password@]host[:port][,host…][/prefix][?ca=&cert=&key=]`; `etcds://` is TLS with public CAs."""
    if is_embedded_etcd(url.text):
        raise UsageError(
            "etcd:embedded is run by `holdfast serve`: others open it at its clients' address, such as etcd://127.0.0.1:2379"
        )
    tunable = tuple(field.name for field in fields(EtcdSettings))
    url.check_options("prefix", "ca", "cert", "key", "unsafe", *tunable)
    login, _, hosts = url.parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    options = url.options
    address = EtcdAddress(
        endpoints=tuple(_endpoint(host) for host in hosts.split(",") if host),
        prefix=(options.get("prefix") or unquote(url.parts.path)).strip("/") or "holdfast",
        tls=url.parts.scheme == "etcds" or any(name in options for name in ("ca", "cert", "key")),
        ca_path=options.get("ca", ""),
        cert_path=options.get("cert", ""),
        key_path=options.get("key", ""),
        user=unquote(user),
        password=unquote(password),
        unsafe=url.flag("unsafe"),
    )
    return address, settings_from(EtcdSettings, {name: options[name] for name in tunable if name in options})


def _endpoint(text: str) -> str:
    found = split_host_port(text)
    if found is None or not found.host or found.port == 0:
        raise InvalidError("etcd endpoint", text, "host:port")
    return join_host_port(found.host, found.port or _PORT)
