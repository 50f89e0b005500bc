"""Opening: what is checked before a store on etcd is used, and the mark that tells it from any other.

A learner or a member of another cluster in the endpoint list is refused outright; a version with known losses needs
`?unsafe=1`. etcd does not say whether it was started with --unsafe-no-fsync: that stays the operator's word.
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.client import Endpoint, EtcdClient
from holdfast.stores.etcd.errors import CALL_ERRORS, CallFailure, classify_failure
from holdfast.stores.etcd.keyspace import Keyspace
from holdfast.stores.etcd.rpc_methods import MEMBER_LIST, RANGE, STATUS, TXN
from holdfast.stores.etcd.transactions import require_revision
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import Random

_OLDEST: Final = (3, 4)
_NOT_TOLD: Final = "version not told"  # newer servers tell it to root alone; older ones, which would be refused, to all
_INCONSISTENT: Final = ((3, 5, 0), (3, 5, 1), (3, 5, 2))


class IncarnationMark(msgspec.Struct, frozen=True):
    """What lies at `{prefix}/incarnation`. It is written once; whoever finds another one there is in another store."""

    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdServerFacts:
    """What the servers say of themselves."""

    server: str
    durability: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdIdentity:
    """Which store was opened, and at which revision."""

    cluster: int
    mark: bytes
    revision: int

    @property
    def incarnation(self) -> str:
        """For facts and errors."""
        return f"{self.cluster:x}.{decode_mark(self.mark)}"


async def check_servers(client: EtcdClient) -> EtcdServerFacts:
    """Ask every endpoint what it is; refuse what cannot keep the contract."""
    answers = await asyncio.gather(*(_status(client, endpoint) for endpoint in client.endpoints))
    statuses = [answer for answer in answers if isinstance(answer, pb.StatusResponse)]
    notes = [answer for answer in answers if isinstance(answer, str)]
    if not statuses and not any(note.startswith(_NOT_TOLD) for note in notes):
        # Another round with the whole operation's patience, and an error that says what was tried.
        statuses, notes = [await client.ask(STATUS, pb.StatusRequest())], []
    for status in statuses:
        notes += _check_server(status, unsafe=client.address.unsafe)
    clusters = {status.header.cluster_id for status in statuses}
    if len(clusters) > 1:
        found = ", ".join(f"{cluster:x}" for cluster in sorted(clusters))
        raise InvalidError(f"endpoints of {client.address.shown}", found, "members of one cluster")
    listed = (await client.ask(MEMBER_LIST, pb.MemberListRequest())).members
    members = sum(not member.isLearner for member in listed)
    if members == 1:
        notes.append("single member: when it is down the store is, and its disk is the only copy")
    versions = " and ".join(sorted({status.version for status in statuses})) or "of a version it does not tell"
    return EtcdServerFacts(
        server=f"etcd {versions}, {members} member{'' if members == 1 else 's'}",
        durability=f"raft: on disk at {members // 2 + 1} of {members} before the answer",
        notes=tuple(dict.fromkeys(notes)),
    )


async def read_or_create_identity(client: EtcdClient, keyspace: Keyspace, random: Random) -> EtcdIdentity:
    """Find the store's mark, or write it: whoever opens a store first does."""
    key = keyspace.incarnation
    answer = await client.ask(RANGE, pb.RangeRequest(key=key))
    if not answer.kvs:
        question = pb.TxnRequest()
        require_revision(question, key, 0)
        put = question.success.add().request_put
        put.key, put.value = key, msgspec.json.encode(IncarnationMark(random.token()))
        await client.ask(TXN, question)  # repeating it is harmless: the second one finds the first
        answer = await client.ask(RANGE, pb.RangeRequest(key=key))
    if not answer.kvs:
        raise UnavailableError(client.address.shown, f"{key.decode()} was removed while the store was opened")
    return EtcdIdentity(
        cluster=answer.header.cluster_id, mark=bytes(answer.kvs[0].value), revision=answer.header.revision
    )


def decode_mark(value: bytes) -> str:
    """The incarnation a mark names."""
    try:
        return msgspec.json.decode(value, type=IncarnationMark).incarnation
    except msgspec.DecodeError:
        return f"unreadable: {value[:80]!r}"


async def _status(client: EtcdClient, endpoint: Endpoint) -> pb.StatusResponse | str:
    try:
        return await client.ask_at(endpoint, STATUS, pb.StatusRequest())
    except CALL_ERRORS as error:
        failure, shown = classify_failure(error)
    if failure is CallFailure.REFUSED:
        return f"{_NOT_TOLD} by {endpoint.target} ({shown}): grant the user root's role to have it checked"
    return f"no answer at open: {endpoint.target} ({shown})"


def _check_server(status: pb.StatusResponse, *, unsafe: bool) -> list[str]:
    what = f"etcd member {status.header.member_id:x}"
    if status.isLearner:
        raise InvalidError(what, "a learner", "a voting member: promote it, or leave it out of the endpoints")
    notes = []
    version = tuple(int(number) for number in re.findall(r"\d+", status.version)[:3])
    if version < _OLDEST:
        if not unsafe:
            raise InvalidError(f"{what}: version", status.version, "3.4 or newer (or ?unsafe=1)")
        notes.append(f"unsafe: etcd {status.version} is older than 3.4")
    if version in _INCONSISTENT:
        notes.append(f"etcd {status.version} can lose consistency when it is killed: upgrade to 3.5.6 or newer")
    for alarm in status.errors:
        if "CORRUPT" in alarm and not unsafe:
            raise InvalidError(what, alarm, "a cluster without a corruption alarm (or ?unsafe=1)")
        notes.append(f"alarm: {alarm}")
    return notes
