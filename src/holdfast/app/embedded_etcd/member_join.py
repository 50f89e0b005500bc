"""How a node becomes a member: the steps of `member_start`, done one after another until its program can start.

Every step is decided anew from what the node and the cluster know now. So a node that died anywhere in between goes on from there.
"""

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from holdfast.app.data_directory import write_text
from holdfast.app.embedded_etcd.member_start import (
    AddLearner,
    EtcdBootstrap,
    EtcdMemberRecord,
    Refuse,
    RemoveMember,
    SetAside,
    StartAdded,
    StartOwn,
    Wait,
    next_step,
)
from holdfast.app.embedded_etcd.peer_members import members_at
from holdfast.app.embedded_etcd.place import MemberPlace
from holdfast.stores.etcd.client import EtcdClient
from holdfast.stores.etcd.members import EtcdPeer, MemberList, member_status, target, try_add_learner, try_remove
from holdfast.stores.etcd.settings import EtcdAddress, EtcdSettings
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import CorruptError, UsageError
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)

_PAUSE_MS: Final = 250
_REPORT_MS: Final = 5_000
_TIMEOUT_MS: Final = 3_000


class MemberJoin:
    """The steps of one node."""

    def __init__(self, place: MemberPlace, *, clock: Clock, random: Random) -> None:
        self._place, self._clock, self._random = place, clock, random
        self._reported_ms = clock.boot_ms() - _REPORT_MS

    async def initial_flags(self) -> dict[str, str]:
        """The flags with which the program starts now, however long it takes until it may. `UsageError`: an operator decides."""
        while True:
            step = await self._next_step()
            match step:
                case StartOwn():
                    return {}
                case EtcdBootstrap():
                    _log.info("etcd member %s begins a new cluster", self._place.name)
                    # A token of its own: with the default one, a cluster that is begun again would have the ids of the first.
                    return {
                        **self._cluster_flags(()),
                        "initial-cluster-state": "new",
                        "initial-cluster-token": self._token(),
                    }
                case StartAdded(members):
                    return {**self._cluster_flags(members), "initial-cluster-state": "existing"}
                case Refuse(message):
                    raise UsageError(message)
                case SetAside():
                    await asyncio.to_thread(self._set_aside)
                    continue
                case Wait(reason):
                    self._report("etcd member %s waits to join: %s", self._place.name, reason)
                case AddLearner():
                    await self._add()
                case RemoveMember(member):
                    await self._remove(member)
            await self._clock.sleep_ms(_PAUSE_MS)

    async def _next_step(self) -> object:
        place = self._place
        joins = place.settings.join_addresses
        if joins and all(address == place.peer for address in joins):
            raise UsageError(f"--join names this node alone ({place.peer}): name another member, or leave it out")
        return next_step(
            name=place.name,
            peer_url=place.peer_url,
            has_data=await asyncio.to_thread(has_data, place),
            record=await asyncio.to_thread(read_member_record, place),
            joins=bool(joins),
            found=await self._found(),
            replace=place.settings.replace,
        )

    async def _found(self) -> MemberList | None:
        others = [address for address in self._place.settings.join_addresses if address != self._place.peer]
        answers = await asyncio.gather(*(members_at(address, self._place.settings) for address in others))
        return next((each for each in answers if each is not None), None)

    async def _add(self) -> None:
        found = await self._found()
        if found is None:
            return
        async with clients_of(self._place, found, clock=self._clock, random=self._random) as client:
            failpoints.reached("etcd.adding")
            if reason := await try_add_learner(client, self._place.peer_url):
                self._report("etcd member %s is not added yet: %s", self._place.name, reason)
            else:
                _log.info("etcd member %s was added as a learner", self._place.name)
        failpoints.reached("etcd.added")

    async def _remove(self, member: EtcdPeer) -> None:
        """Remove the member that this node was. `UsageError`: something answers for it."""
        found = await self._found()
        if found is None:
            return
        async with clients_of(self._place, found, clock=self._clock, random=self._random) as client:
            for endpoint in map(target, member.client_urls):
                known = endpoint in (each.target for each in client.endpoints)
                if known and not isinstance(await member_status(client, endpoint), str):
                    raise UsageError(f"member {member.shown} runs at {endpoint}: give this node another --name")
            reason = await try_remove(client, member.id)
            if reason:
                self._report("the old etcd member %s is not removed yet: %s", member.shown, reason)
            else:
                _log.warning("removed the old etcd member %s: this node has lost its data", member.shown)
        failpoints.reached("etcd.removed")

    def _cluster_flags(self, members: tuple[EtcdPeer, ...]) -> dict[str, str]:
        place = self._place
        # etcd compares URLs; a member that has not started has no name to give.
        named = [
            f"{member.name or f'{member.id:x}'}={url}"
            for member in members
            for url in member.peer_urls
            if url != place.peer_url
        ]
        return {
            "initial-cluster": ",".join((*named, f"{place.name}={place.peer_url}")),
            "initial-advertise-peer-urls": place.peer_url,
        }

    def _token(self) -> str:
        return f"holdfast-{self._random.token()}"

    def _set_aside(self) -> None:
        aside = self._place.directory / f"etcd-removed-{self._random.token()[:8]}"
        _log.warning("moving the data of the removed member to %s", aside)
        self._place.data.rename(aside)
        self._place.record.unlink(missing_ok=True)

    def _report(self, text: str, *facts: object) -> None:
        if self._clock.boot_ms() - self._reported_ms >= _REPORT_MS:
            self._reported_ms = self._clock.boot_ms()
            _log.warning(text, *facts)


@asynccontextmanager
async def clients_of(
    place: MemberPlace, members: MemberList, *, clock: Clock, random: Random
) -> AsyncIterator[EtcdClient]:
    """A client of the voting members."""
    settings = place.settings
    address = EtcdAddress(
        endpoints=members.targets or (str(place.client),),
        tls=settings.tls,
        ca_path=settings.ca,
        cert_path=settings.cert,
        key_path=settings.key,
    )
    async with EtcdClient.open(address, EtcdSettings(timeout_ms=_TIMEOUT_MS), clock=clock, random=random) as client:
        yield client


def has_data(place: MemberPlace) -> bool:
    """Whether the member has started here before: its log exists."""
    return any((place.data / "member" / "wal").glob("*.wal"))


def read_member_record(place: MemberPlace) -> EtcdMemberRecord | None:
    """Which member this node is, as far as it knows."""
    try:
        return msgspec.json.decode(place.record.read_bytes(), type=EtcdMemberRecord)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise CorruptError(f"file {place.record}", str(error)) from None


def write_member_record(place: MemberPlace, record: EtcdMemberRecord) -> None:
    """Remember which member this node is."""
    write_text(place.record, msgspec.json.encode(record).decode() + "\n")


def clear_unstarted(place: MemberPlace) -> None:
    """Remove what a program that died before its first log has left: it would take that for a member's data."""
    if place.data.exists() and not has_data(place):
        shutil.rmtree(place.data)
