"""The members of an etcd cluster: listed, changed, and used as endpoints.

The one rule: a change is tried, never assumed. Whatever was answered, or lost, the caller lists the members again and decides from
what it finds; so a process that dies between two steps goes on where it was.
"""

import logging
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from holdfast.stores.errors import AnswerLostError
from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.client import EtcdClient
from holdfast.stores.etcd.errors import CALL_ERRORS, classify_failure
from holdfast.stores.etcd.rpc_methods import (
    MEMBER_ADD,
    MEMBER_LIST,
    MEMBER_PROMOTE,
    MEMBER_REMOVE,
    MEMBER_UPDATE,
    STATUS,
    A,
    Q,
    RpcMethod,
)
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import HoldfastError, InvalidError, UnavailableError

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdPeer:
    """One member. `name` is empty until it has started for the first time."""

    id: int
    name: str
    peer_urls: tuple[str, ...]
    client_urls: tuple[str, ...]
    learner: bool

    @property
    def shown(self) -> str:
        """For logs and errors."""
        return f"{self.name or 'not started'} ({self.id:x})"


@dataclass(frozen=True, slots=True)
class MemberList:
    """The members of one cluster at one moment."""

    cluster: int
    members: tuple[EtcdPeer, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        """host:port of every voting member that serves clients: a learner refuses most calls."""
        return tuple(target(url) for member in self.members if not member.learner for url in member.client_urls)


def target(url: str) -> str:
    """host:port of a member's URL."""
    return urlsplit(url).netloc


def member_of(listed: pb.Member) -> EtcdPeer:
    """A member as etcd lists it."""
    return EtcdPeer(
        id=listed.ID,
        name=listed.name,
        peer_urls=tuple(listed.peerURLs),
        client_urls=tuple(listed.clientURLs),
        learner=listed.isLearner,
    )


async def list_members(client: EtcdClient, *, linearizable: bool = True) -> MemberList:
    """The members; not `linearizable`: as the member that answers knows them, which needs no majority."""
    response = await client.call(MEMBER_LIST, pb.MemberListRequest(linearizable=linearizable))
    return MemberList(response.header.cluster_id, tuple(map(member_of, response.members)))


async def try_add_learner(client: EtcdClient, peer_url: str) -> str:
    """Add a member that neither votes nor counts until it is promoted. The reason if that is not known to be done."""
    return await _try(client, MEMBER_ADD, pb.MemberAddRequest(peerURLs=[peer_url], isLearner=True))


async def try_promote(client: EtcdClient, member: int) -> str:
    """Make a learner vote, if it has caught up. The reason if that is not known to be done."""
    return await _try(client, MEMBER_PROMOTE, pb.MemberPromoteRequest(ID=member))


async def try_remove(client: EtcdClient, member: int) -> str:
    """Remove a member for good. The reason if that is not known to be done."""
    return await _try(client, MEMBER_REMOVE, pb.MemberRemoveRequest(ID=member))


async def try_move(client: EtcdClient, member: int, peer_url: str) -> str:
    """Change where other members reach this one. The reason if that is not known to be done."""
    return await _try(client, MEMBER_UPDATE, pb.MemberUpdateRequest(ID=member, peerURLs=[peer_url]))


async def _try(client: EtcdClient, method: RpcMethod[Q, A], request: Q) -> str:
    try:
        await client.call(method, request, repeatable=False)
    except (AnswerLostError, UnavailableError, InvalidError) as error:
        return str(error)
    return ""


async def member_status(client: EtcdClient, endpoint: str) -> pb.StatusResponse | str:
    """The status of the member at host:port, one of the client's endpoints; why it has none."""
    found = next(each for each in client.endpoints if each.target == endpoint)
    try:
        return await client.call_at(found, STATUS, pb.StatusRequest(), require_leader=False)
    except CALL_ERRORS as error:
        return classify_failure(error)[1]


async def refresh_endpoints(client: EtcdClient) -> None:
    """Use every voting member as an endpoint, beside those of the URL; without an answer, those that were known stay."""
    try:
        listed = (await list_members(client)).targets
        await client.use_endpoints(tuple(dict.fromkeys((*client.address.endpoints, *listed))))
    except HoldfastError as error:
        _log.debug("members of %s are not known: %s", client.address.shown, error)


async def keep_endpoints(client: EtcdClient, *, clock: Clock) -> None:
    """Read the endpoints from the member list again and again, until cancelled."""
    while client.settings.members_every_ms:
        await clock.sleep_ms(client.settings.members_every_ms)
        await refresh_endpoints(client)
