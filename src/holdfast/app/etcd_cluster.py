"""What operators see of an etcd store's members and ask of them, wherever the members run."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.client import EtcdClient
from holdfast.stores.etcd.maintenance import compact, defragment, disarm_space_alarms
from holdfast.stores.etcd.members import (
    EtcdPeer,
    list_members,
    member_status,
    refresh_endpoints,
    target,
    try_add_learner,
    try_remove,
)
from holdfast.stores.etcd.settings import parse_url
from holdfast.stores.urls import parse_store_url
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import InvalidError, UnavailableError, UsageError
from holdfast.vocabulary.random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    """One member, for display. `state`: leader, voter, learner, not started, or unreachable."""

    id: str
    name: str
    state: str
    peer: str
    client: str
    version: str = ""
    bytes: int | None = None
    used_bytes: int | None = None
    problems: tuple[str, ...] = ()


class EtcdCluster:
    """The members of an etcd store. Made by `etcd_cluster`."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client

    async def members(self) -> list[MemberRow]:
        """Every member, and what each says of itself."""
        listed = (await list_members(self._client, linearizable=False)).members
        every = tuple(target(url) for member in listed for url in member.client_urls)
        await self._client.use_endpoints(every)
        return sorted(await asyncio.gather(*map(self._row, listed)), key=lambda row: row.name)

    async def add(self, peer: str) -> str:
        """Add a learner for the node whose peer address this is; its id. A repetition finds the first."""
        url = f"{'https' if self._client.address.tls else 'http'}://{peer}"
        reason = ""
        if await self._at(url) is None:
            reason = await try_add_learner(self._client, url)
        added = await self._at(url)
        if added is None:
            raise UnavailableError(f"adding {peer}", reason)
        return f"{added.id:x}"

    async def find(self, name_or_id: str) -> EtcdPeer:
        """A member by its name or id."""
        listed = (await list_members(self._client)).members
        found = [member for member in listed if name_or_id in (member.name, f"{member.id:x}")]
        if len(found) != 1:
            known = ", ".join(member.shown for member in listed)
            raise InvalidError("member", name_or_id, f"the name or id of one of {known}")
        return found[0]

    async def remove(self, member: EtcdPeer) -> None:
        """Remove a member for good. `UnavailableError`: the others would not be a majority, or do not answer."""
        reason = await try_remove(self._client, member.id)
        if any(each.id == member.id for each in (await list_members(self._client)).members):
            raise UnavailableError(f"removing {member.shown}", reason)

    async def defragment(self, on_member: Callable[[str, int], None]) -> int:
        """Drop old history, give free space back, member by member, and allow writes again; how many alarms were disarmed."""
        await compact(self._client)
        await refresh_endpoints(self._client)
        for done, endpoint in enumerate(tuple(self._client.endpoints)):
            on_member(endpoint.target, done)
            await defragment(self._client, endpoint)
        return await disarm_space_alarms(self._client)

    async def _at(self, url: str) -> EtcdPeer | None:
        listed = (await list_members(self._client)).members
        return next((member for member in listed if url in member.peer_urls), None)

    async def _row(self, member: EtcdPeer) -> MemberRow:
        row = MemberRow(
            id=f"{member.id:x}",
            name=member.name,
            state="not started",
            peer=", ".join(map(target, member.peer_urls)),
            client=", ".join(map(target, member.client_urls)),
        )
        if not member.client_urls:
            return row
        status = await member_status(self._client, target(member.client_urls[0]))
        if isinstance(status, str):
            return replace(row, state="unreachable", problems=(status,))
        return replace(
            row,
            state=_state(status),
            version=status.version,
            bytes=status.dbSize,
            used_bytes=status.dbSizeInUse,
            problems=tuple(status.errors),
        )


def _state(status: pb.StatusResponse) -> str:
    if status.isLearner:
        return "learner"
    return "leader" if status.leader == status.header.member_id else "voter"


@asynccontextmanager
async def etcd_cluster(url: str, *, clock: Clock, random: Random) -> AsyncIterator[EtcdCluster]:
    """The members of the store at `url`. `UsageError`: it is no etcd."""
    parsed = parse_store_url(url)
    if parsed.parts.scheme not in ("etcd", "etcds"):
        raise UsageError(
            f"{parsed.shown} has no members: give --store etcd://host:port, or etcd:embedded and its --data"
        )
    address, settings = parse_url(parsed)
    async with EtcdClient.open(address, settings, clock=clock, random=random) as client:
        yield EtcdCluster(client)
