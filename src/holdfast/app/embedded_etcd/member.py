"""The etcd member of a server, for as long as the server runs.

It serves once it votes and has a leader. From then on losing it is no outage: the store's client uses the other members, while the
process is started again. It is stopped after everything that uses the store.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from holdfast.app.addresses import check_exposure
from holdfast.app.embedded_etcd.member_join import (
    MemberJoin,
    clear_unstarted,
    clients_of,
    has_data,
    write_member_record,
)
from holdfast.app.embedded_etcd.member_process import MemberProcess
from holdfast.app.embedded_etcd.member_start import EtcdMemberRecord
from holdfast.app.embedded_etcd.peer_members import members_at
from holdfast.app.embedded_etcd.place import MemberPlace
from holdfast.app.embedded_etcd.program import command_line, find_program
from holdfast.gateways.http.metrics.etcd_member import EtcdMemberFigures
from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.client import EtcdClient
from holdfast.stores.etcd.members import MemberList, member_status, try_move, try_promote
from holdfast.stores.etcd.settings import EtcdAddress, EtcdSettings
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.sockets import bind
from holdfast.vocabulary.tasks import background_tasks

_log: Final = logging.getLogger(__name__)

_POLL_MS: Final = 50
_OBSERVE_MS: Final = 5_000
_REPORT_MS: Final = 5_000
_EXITS_MAX: Final = 4  # before it has ever served


class EtcdMember:
    """One node's member. Made by `running_member`."""

    def __init__(self, place: MemberPlace, program: Path, *, clock: Clock, random: Random) -> None:
        self.place = place
        self.figures = EtcdMemberFigures(quota_bytes=place.settings.quota_bytes)
        self._program, self._clock, self._random = program, clock, random
        self._joining = MemberJoin(place, clock=clock, random=random)
        self.process = MemberProcess(
            self._command, place.log, stop_ms=place.settings.stop_ms, clock=clock, random=random
        )

    async def _command(self) -> list[str]:
        await asyncio.to_thread(clear_unstarted, self.place)
        return command_line(self._program, self.place, await self._joining.initial_flags())

    async def serve(self, client: EtcdClient) -> None:
        """Return once the member votes and has a leader. `UnavailableError`: its program ends again and again."""
        began_ms = reported_ms = self._clock.boot_ms()
        while True:
            if self.process.exits >= _EXITS_MAX:
                raise UnavailableError(f"etcd member {self.place.name}", await asyncio.to_thread(self.process.log_tail))
            status = await self._status(client)
            waits_for = await self._prepare(status)
            if not waits_for:
                return
            if self._clock.boot_ms() - reported_ms >= _REPORT_MS:
                reported_ms = self._clock.boot_ms()
                waited_s = (reported_ms - began_ms) // 1000
                _log.warning("etcd member %s: %s, for %d s", self.place.name, waits_for, waited_s)
            await self._clock.sleep_ms(_POLL_MS)

    async def _prepare(self, status: pb.StatusResponse | str) -> str:
        """What the member waits for; empty: it serves."""
        if isinstance(status, str):
            return f"does not answer yet ({status})"
        failpoints.reached("etcd.started")
        header = status.header
        record = EtcdMemberRecord(name=self.place.name, cluster=header.cluster_id, member=header.member_id)
        await asyncio.to_thread(write_member_record, self.place, record)
        if not status.leader:
            return "has no leader: a majority of the members must run"
        members = await members_at(self.place.peer, self.place.settings)
        if members is None:
            return "does not answer its peers yet"
        if status.isLearner:
            return await self._promote(members, header.member_id)
        await self._follow_address(members, header.member_id)
        return ""

    async def _promote(self, members: MemberList, own: int) -> str:
        async with clients_of(self.place, members, clock=self._clock, random=self._random) as client:
            reason = await try_promote(client, own)
        failpoints.reached("etcd.promoted")
        if not reason:
            _log.info("etcd member %s was promoted: it votes", self.place.name)
        return f"is a learner ({reason})" if reason else "was promoted just now"

    async def _follow_address(self, members: MemberList, own: int) -> None:
        """Tell the others if this node has moved."""
        mine = next((member for member in members.members if member.id == own), None)
        if mine is None or self.place.peer_url in mine.peer_urls:
            return
        async with clients_of(self.place, members, clock=self._clock, random=self._random) as client:
            reason = await try_move(client, own, self.place.peer_url)
        shown = ", ".join(mine.peer_urls)
        _log.warning(
            "etcd member %s moved from %s to %s%s", mine.name, shown, self.place.peer_url, reason and f": {reason}"
        )

    async def observe(self, client: EtcdClient) -> None:
        """Keep the figures up to date, and report alarms, until cancelled."""
        while True:
            alarmed = self.figures.alarms
            self._take(await self._status(client))
            if self.figures.alarms and not alarmed:
                _log.error(
                    "etcd refuses writes: %s; see `holdfast store defragment`, or raise etcd.quota_bytes",
                    ", ".join(self.figures.alarms),
                )
            await self._clock.sleep_ms(_OBSERVE_MS)

    def _take(self, status: pb.StatusResponse | str) -> None:
        figures = self.figures
        figures.restarts = self.process.exits
        figures.up = not isinstance(status, str)
        if not isinstance(status, str):
            figures.has_leader = bool(status.leader)
            figures.bytes, figures.used_bytes = status.dbSize, status.dbSizeInUse
            figures.alarms = tuple(each for each in status.errors if "alarm" in each)

    async def _status(self, client: EtcdClient) -> pb.StatusResponse | str:
        return await member_status(client, client.endpoints[0].target)


@asynccontextmanager
async def running_member(place: MemberPlace, *, clock: Clock, random: Random) -> AsyncIterator[EtcdMember]:
    """The member for the body. Leaving it stops the member and waits; an error ends it at once."""
    program = await asyncio.to_thread(find_program, place)
    await asyncio.to_thread(_check_addresses, place)
    member = EtcdMember(place, program, clock=clock, random=random)
    settings = place.settings
    own = EtcdAddress(
        endpoints=(str(place.client),),
        tls=settings.tls,
        ca_path=settings.ca,
        cert_path=settings.cert,
        key_path=settings.key,
    )
    try:
        async with (
            EtcdClient.open(own, EtcdSettings(timeout_ms=1_000), clock=clock, random=random) as client,
            background_tasks(member.process.keep()),
        ):
            _log.info(
                "etcd member starting", extra={"member": place.name, "peers": place.peer, "clients": place.client}
            )
            await member.serve(client)
            async with background_tasks(member.observe(client)):
                yield member
            await member.process.stop()
    finally:
        member.process.end()


def _check_addresses(place: MemberPlace) -> None:
    """Refuse addresses in use, and those that other machines reach without TLS. Blocks."""
    for flag, address in (("--etcd-peer", place.peer_listen), ("--etcd-client", place.client_listen)):
        try:
            bound = bind(address.host, address.port)
        except UnavailableError as error:
            if has_data(place):  # the member of a server that was killed may still be ending: etcd waits for it
                continue
            raise UnavailableError(f"address {address} ({flag})", error.reason) from None
        try:
            check_exposure(address, bound, insecure=place.insecure or place.settings.tls)
        finally:
            for each in bound:
                each.close()
