"""Opening a store: the checks of the etcd servers, and the incarnation record that identifies the store.

A learner or a member of another cluster in the endpoint list is always refused; a version with known data loss needs `?unsafe=1`.
Whether etcd was started with --unsafe-no-fsync cannot be read from it: that is up to the operator.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import msgspec

from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.client import Endpoint, EtcdClient
from holdfast.stores.etcd.errors import CALL_ERRORS, CallFailure, classify_failure
from holdfast.stores.etcd.keyspace import Keyspace
from holdfast.stores.etcd.rpc_methods import MEMBER_LIST, RANGE, STATUS, TXN
from holdfast.stores.etcd.transactions import require_revision
from holdfast.stores.etcd.versions import OLDEST, known_fault, parse_version
from holdfast.vocabulary.errors import InvalidError, UnavailableError, UsageError
from holdfast.vocabulary.random import Random

_HIDDEN: Final = "version hidden"  # newer servers show it to root alone; older ones, which would be refused, to all


class IncarnationRecord(msgspec.Struct, frozen=True):
    """The value at `{prefix}/incarnation`. Written once: another value means another store."""

    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdServerFacts:
    """Facts about the servers."""

    server: str
    durability: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdIdentity:
    """Which store was opened, and at which revision."""

    cluster: int
    record: bytes
    revision: int

    @property
    def incarnation(self) -> str:
        """For facts and errors."""
        return f"{self.cluster:x}.{decode_record(self.record)}"


async def check_servers(client: EtcdClient) -> EtcdServerFacts:
    """Get the status of every endpoint; refuse servers that cannot keep the contract."""
    responses = await asyncio.gather(*(_status(client, endpoint) for endpoint in client.endpoints))
    statuses = [each for each in responses if isinstance(each, pb.StatusResponse)]
    notes = [each for each in responses if isinstance(each, str)]
    if not statuses and not any(note.startswith(_HIDDEN) for note in notes):
        # Once more with the timeout of a whole operation, and an error with what was tried.
        statuses, notes = [await client.call(STATUS, pb.StatusRequest())], []
    for status in statuses:
        notes += _check_server(status, unsafe=client.address.unsafe)
    clusters = {status.header.cluster_id for status in statuses}
    if len(clusters) > 1:
        found = ", ".join(f"{cluster:x}" for cluster in sorted(clusters))
        raise InvalidError(f"endpoints of {client.address.shown}", found, "members of one cluster")
    listed = (await client.call(MEMBER_LIST, pb.MemberListRequest())).members
    members = sum(not member.isLearner for member in listed)
    if members == 1:
        notes.append("single member: no failover, and its disk is the only copy")
    versions = " and ".join(sorted({status.version for status in statuses})) or "of unknown version"
    return EtcdServerFacts(
        server=f"etcd {versions}, {members} member{'' if members == 1 else 's'}",
        durability=f"raft: on disk at {members // 2 + 1} of {members} before the response",
        notes=tuple(dict.fromkeys(notes)),
    )


async def read_or_create_identity(client: EtcdClient, keyspace: Keyspace, random: Random) -> EtcdIdentity:
    """Read the incarnation record, or write it if this is a new store."""
    key = keyspace.incarnation
    response = await client.call(RANGE, pb.RangeRequest(key=key))
    if not response.kvs:
        request = pb.TxnRequest()
        require_revision(request, key, 0)
        put = request.success.add().request_put
        put.key, put.value = key, msgspec.json.encode(IncarnationRecord(random.token()))
        await client.call(TXN, request)  # idempotent: a repeated write finds the first
        response = await client.call(RANGE, pb.RangeRequest(key=key))
    if not response.kvs:
        raise UnavailableError(client.address.shown, f"{key.decode()} was removed while the store was being opened")
    return EtcdIdentity(
        cluster=response.header.cluster_id, record=bytes(response.kvs[0].value), revision=response.header.revision
    )


def decode_record(value: bytes) -> str:
    """The incarnation in a record."""
    try:
        return msgspec.json.decode(value, type=IncarnationRecord).incarnation
    except msgspec.DecodeError:
        return f"unreadable: {value[:80]!r}"


async def _status(client: EtcdClient, endpoint: Endpoint) -> pb.StatusResponse | str:
    try:
        return await client.call_at(endpoint, STATUS, pb.StatusRequest())
    except CALL_ERRORS as error:
        failure, shown = classify_failure(error)
    if failure is CallFailure.REFUSED:
        return f"{_HIDDEN} by {endpoint.target} ({shown}): grant the user the root role to have it checked"
    return f"no response at open: {endpoint.target} ({shown})"


def _check_server(status: pb.StatusResponse, *, unsafe: bool) -> list[str]:
    what = f"etcd member {status.header.member_id:x}"
    if status.isLearner:
        raise InvalidError(f"role of {what}", "learner", "a voting member: promote it, or remove it from the endpoints")
    notes = []
    version = parse_version(status.version)
    if version < OLDEST:
        if not unsafe:
            raise InvalidError(f"version of {what}", status.version, "3.4 or newer (?unsafe=1 accepts it)")
        notes.append(f"unsafe: etcd {status.version} is older than 3.4")
    if fault := known_fault(version):
        notes.append(f"etcd {status.version} {fault}")
    for alarm in status.errors:
        if "CORRUPT" in alarm and not unsafe:
            raise UsageError(f"{what} has a corruption alarm ({alarm}): repair the cluster, or open it with ?unsafe=1")
        notes.append(f"alarm: {alarm}")
    return notes
