"""Where a node's member is: its name, files and URLs, and the store URL of its clients. No I/O."""

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from holdfast.app.addresses import Address, AdvertisedAddress
from holdfast.app.config import ServeSettings
from holdfast.app.config.etcd_member import EtcdMemberSettings
from holdfast.stores.urls import is_embedded_etcd, parse_store_url

MEMBERS_EVERY_MS: Final = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlace:
    """One node's member."""

    settings: EtcdMemberSettings
    name: str
    directory: Path
    peer_listen: Address
    client_listen: Address
    peer: Address
    client: Address
    unsafe: bool
    insecure: bool

    @property
    def data(self) -> Path:
        """etcd's own data directory."""
        return self.directory / "etcd"

    @property
    def log(self) -> Path:
        """What etcd logs."""
        return self.directory / "etcd.log"

    @property
    def record(self) -> Path:
        """Which member this node is."""
        return self.directory / "etcd-member.json"

    @property
    def peer_url(self) -> str:
        """Where other members reach this one."""
        return self.url(self.peer)

    def url(self, address: Address) -> str:
        """An address as etcd's flags take it."""
        return f"{'https' if self.settings.tls else 'http'}://{address}"


def member_place(settings: ServeSettings, name: str) -> MemberPlace:
    """The member of a node; `name` is used if the settings have none."""
    etcd = settings.etcd
    peer, client = (Address.parse("address", each) for each in (etcd.peer_listen, etcd.client_listen))
    return MemberPlace(
        settings=etcd,
        name=etcd.name or name,
        directory=settings.data,
        peer_listen=peer,
        client_listen=client,
        peer=_advertised(settings, etcd.peer_advertise, peer),
        client=_advertised(settings, etcd.client_advertise, client),
        unsafe=parse_store_url(settings.store).flag("unsafe"),
        insecure=settings.insecure,
    )


def opened_store_url(settings: ServeSettings) -> str:
    """The store URL to open: the given one, or that of the embedded member, whose clients learn of the other members."""
    if not is_embedded_etcd(settings.store):
        return settings.store
    etcd = settings.etcd
    options = {"members_every_ms": str(MEMBERS_EVERY_MS), **parse_store_url(settings.store).options}
    if etcd.tls:
        options |= {"ca": etcd.ca, "cert": etcd.cert, "key": etcd.key}
    client = _advertised(settings, etcd.client_advertise, Address.parse("address", etcd.client_listen))
    return f"{'etcds' if etcd.tls else 'etcd'}://{client}?{urlencode(options, safe='/')}"


def _advertised(settings: ServeSettings, given: str, listen: Address) -> Address:
    parsed = AdvertisedAddress.parse("address", given)
    host = parsed.host or settings.advertise.host
    return AdvertisedAddress(host, parsed.port).resolve(listen, host_name=socket.gethostname())
