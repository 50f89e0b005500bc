"""The members of a cluster, asked of one at its peer address: what `--join` names, and what a learner answers, too."""

import asyncio
import http.client
import ssl
from typing import Final

import msgspec

from holdfast.app.addresses import Address
from holdfast.app.config.etcd_member import EtcdMemberSettings
from holdfast.stores.etcd.members import EtcdPeer, MemberList

_TIMEOUT_S: Final = 2.0


class _Listed(msgspec.Struct, frozen=True, rename="camel"):
    id: int
    peer_urls: tuple[str, ...] = msgspec.field(name="peerURLs", default=())
    name: str = ""
    client_urls: tuple[str, ...] = msgspec.field(name="clientURLs", default=())
    is_learner: bool = False


async def members_at(peer: Address, settings: EtcdMemberSettings) -> MemberList | None:
    """The members as the one at `peer` knows them; None if it does not answer."""
    return await asyncio.to_thread(_ask, peer, settings)


def _ask(peer: Address, settings: EtcdMemberSettings) -> MemberList | None:
    connection = _connection(peer, settings)
    try:
        connection.request("GET", "/members")
        response = connection.getresponse()
        listed = msgspec.json.decode(response.read(), type=list[_Listed])
        cluster = int(response.headers.get("X-Etcd-Cluster-ID", ""), 16)
    except (OSError, http.client.HTTPException, msgspec.MsgspecError, ValueError):
        return None
    finally:
        connection.close()
    return MemberList(cluster, tuple(_member(each) for each in listed))


def _connection(peer: Address, settings: EtcdMemberSettings) -> http.client.HTTPConnection:
    if not settings.tls:
        return http.client.HTTPConnection(peer.host, peer.port, timeout=_TIMEOUT_S)
    context = ssl.create_default_context(cafile=settings.ca)
    context.load_cert_chain(settings.cert, settings.key)
    return http.client.HTTPSConnection(peer.host, peer.port, timeout=_TIMEOUT_S, context=context)


def _member(each: _Listed) -> EtcdPeer:
    return EtcdPeer(
        id=each.id, name=each.name, peer_urls=each.peer_urls, client_urls=each.client_urls, learner=each.is_learner
    )
