"""Maintenance of an etcd cluster: snapshots, defragmentation, alarms.

A snapshot is a member's database followed by its SHA-256: whoever reads one can tell that it is whole.
"""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.client import Endpoint, EtcdClient
from holdfast.stores.etcd.errors import CALL_ERRORS, CompactedError, classify_failure, error_for
from holdfast.stores.etcd.rpc_methods import ALARM, COMPACT, DEFRAGMENT, RANGE, SNAPSHOT, STATUS
from holdfast.vocabulary.errors import CorruptError, UnavailableError, UsageError

_HASH_BYTES: Final = hashlib.sha256().digest_size
_PAGE_BYTES: Final = 512
_PIECE_BYTES: Final = 1 << 20
_DEFRAGMENT_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class SnapshotPiece:
    """A part of a snapshot, and how many bytes follow."""

    body: bytes
    remaining_bytes: int


async def snapshot(client: EtcdClient) -> AsyncGenerator[SnapshotPiece, None]:
    """A snapshot of the member in use, piece by piece. `UnavailableError`: it broke off; begin again."""
    await client.call(STATUS, pb.StatusRequest())  # from a member that answers
    endpoint = client.in_use
    call = endpoint.channel.unary_stream(
        SNAPSHOT.path, SNAPSHOT.request.SerializeToString, SNAPSHOT.response.FromString
    )(pb.SnapshotRequest())
    try:
        async for response in call:
            yield SnapshotPiece(response.blob, response.remaining_bytes)
    except CALL_ERRORS as error:
        raise UnavailableError(endpoint.target, f"the snapshot broke off: {classify_failure(error)[1]}") from None
    finally:
        call.cancel()


def check_snapshot(path: Path) -> str:
    """The SHA-256 of a snapshot in a file, checked. `CorruptError`: it is not whole. Blocks."""
    size = path.stat().st_size
    if size % _PAGE_BYTES != _HASH_BYTES:
        raise CorruptError(f"snapshot {path}", f"{size} bytes are no database followed by its hash: it was cut off")
    seen, left = hashlib.sha256(), size - _HASH_BYTES
    with path.open("rb") as file:
        while left:
            piece = file.read(min(left, _PIECE_BYTES))
            if not piece:
                raise CorruptError(f"snapshot {path}", "it became shorter while it was read")
            seen.update(piece)
            left -= len(piece)
        expected = file.read(_HASH_BYTES)
    if seen.digest() != expected:
        raise CorruptError(f"snapshot {path}", f"its content has SHA-256 {seen.hexdigest()}, not {expected.hex()}")
    return seen.hexdigest()


async def compact(client: EtcdClient) -> int:
    """Drop the history before now; the revision."""
    revision = (await client.call(RANGE, pb.RangeRequest(key=b"\0", limit=1))).header.revision
    with suppress(CompactedError):  # somebody else was faster
        await client.call(COMPACT, pb.CompactionRequest(revision=revision, physical=True))
    return revision


async def defragment(client: EtcdClient, endpoint: Endpoint) -> None:
    """Give a member's free space back to its file system. The member answers nothing meanwhile."""
    try:
        await client.call_at(
            endpoint, DEFRAGMENT, pb.DefragmentRequest(), require_leader=False, within_ms=_DEFRAGMENT_MS
        )
    except CALL_ERRORS as error:
        failure, shown = classify_failure(error)
        raise error_for(failure, f"defragmentation: {shown}", endpoint.target) from None


async def disarm_space_alarms(client: EtcdClient) -> int:
    """Allow writes again where there is space; how many alarms there were. `UsageError`: a member's data are corrupt."""
    alarms = (await client.call(ALARM, pb.AlarmRequest(action=pb.AlarmRequest.GET))).alarms
    if corrupt := [f"{each.memberID:x}" for each in alarms if each.alarm == pb.CORRUPT]:
        raise UsageError(f"members with corrupt data: {', '.join(corrupt)}; remove and replace them")
    for each in alarms:
        request = pb.AlarmRequest(action=pb.AlarmRequest.DEACTIVATE, memberID=each.memberID, alarm=each.alarm)
        await client.call(ALARM, request)
    return len(alarms)
