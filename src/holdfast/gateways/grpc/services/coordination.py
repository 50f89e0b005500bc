"""Sessions, leases, keys and watches for programs.

The one rule: nothing of a session is kept here. It lives in the store until its TTL has passed, whatever becomes of the connection
or the node that it was opened at.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import suppress
from typing import Final

from holdfast.contracts.store import Change, Committed, Entry, Operation, Resync
from holdfast.contracts.validation import next_key, prefix_end
from holdfast.gateways.grpc.access import CallAccess
from holdfast.gateways.grpc.backend import GrpcBackend
from holdfast.gateways.grpc.entries import check_count
from holdfast.gateways.grpc.open_streams import open_stream, until_stopped
from holdfast.gateways.grpc.user_space import (
    SPACE,
    UserSpace,
    delete,
    own_entries,
    put,
    requirement,
    shown,
    space_lease,
)
from holdfast.kernel import lease as kernel
from holdfast.kernel.keys import holder_key
from holdfast.v1 import coordination_service_pb2 as pb
from holdfast.vocabulary.errors import ClosedError, InvalidError
from holdfast.vocabulary.tasks import background_tasks

_TTL_MS: Final = 30_000
_WAIT_MS_MAX: Final = 600_000
_SCAN: Final = 1_000
_OPERATIONS_MAX: Final = 1_000  # that are looked at; a store takes fewer


class CoordinationService:
    """`holdfast.v1.CoordinationService`."""

    def __init__(self, backend: GrpcBackend) -> None:
        self._backend = backend
        self._space = UserSpace(backend.store, clock=backend.clock, random=backend.random)

    # ── sessions ──

    async def open_session(self, request: pb.OpenSessionRequest, access: CallAccess) -> pb.OpenSessionResponse:
        most = self._backend.settings.session_ttl_ms_max
        if not 0 <= request.ttl_ms <= most:
            raise InvalidError("ttl_ms", request.ttl_ms, f"0 to {most}")
        opened = await self._space.open_session(request.name, request.ttl_ms or min(_TTL_MS, most))
        return pb.OpenSessionResponse(session_id=opened.id, ttl_ms=opened.ttl_ms)

    async def renew_session(self, request: pb.RenewSessionRequest, access: CallAccess) -> pb.RenewSessionResponse:
        await self._space.renew(request.session_id)
        return pb.RenewSessionResponse()

    async def keep_alive(
        self, requests: AsyncIterable[pb.KeepAliveRequest], access: CallAccess
    ) -> AsyncIterator[pb.KeepAliveResponse]:
        """A response to each request, once the store has renewed the session."""
        session = ""
        async for request in until_stopped(requests, self._backend.stopping):
            session = request.session_id or session
            await self._space.renew(session)
            yield pb.KeepAliveResponse(session_id=session)

    async def close_session(self, request: pb.CloseSessionRequest, access: CallAccess) -> pb.CloseSessionResponse:
        await self._space.close_session(request.session_id)
        return pb.CloseSessionResponse()

    # ── leases ──

    async def acquire_lease(self, request: pb.AcquireLeaseRequest, access: CallAccess) -> pb.AcquireLeaseResponse:
        if not 0 <= request.wait_ms <= _WAIT_MS_MAX:
            raise InvalidError("wait_ms", request.wait_ms, f"0 to {_WAIT_MS_MAX}")
        found = await self._space.acquire(request.session_id, request.resource)
        if isinstance(found, kernel.Held) and request.wait_ms:
            with open_stream(self._backend), suppress(TimeoutError):
                async with asyncio.timeout(request.wait_ms / 1000), background_tasks(access.ended(request)):
                    found = await self._acquire_when_free(request, found)
        if isinstance(found, kernel.Held):
            held = pb.LeaseHolder(resource=shown(found.resource), holder=found.holder, epoch=found.epoch)
            return pb.AcquireLeaseResponse(held=held)
        return pb.AcquireLeaseResponse(lease=_lease(found))

    async def _acquire_when_free(self, request: pb.AcquireLeaseRequest, held: kernel.Held) -> kernel.Lease:
        key = holder_key(held.resource)
        async with self._space.store.watch(key, from_version=held.version) as changes:
            async for change in until_stopped(changes, self._backend.stopping):
                if isinstance(change, Resync) or any(each.key == key and not each.entry for each in change.changes):
                    found = await self._space.acquire(request.session_id, request.resource)
                    if isinstance(found, kernel.Lease):
                        return found
        raise ClosedError("the watch")

    async def release_lease(self, request: pb.ReleaseLeaseRequest, access: CallAccess) -> pb.ReleaseLeaseResponse:
        return pb.ReleaseLeaseResponse(released=await self._space.release(_given(request.lease)))

    # ── keys ──

    async def get_key(self, request: pb.GetKeyRequest, access: CallAccess) -> pb.GetKeyResponse:
        entry = await self._space.get(request.key)
        return pb.GetKeyResponse(entry=None if entry is None else _entry(entry))

    async def scan_keys(self, request: pb.ScanKeysRequest, access: CallAccess) -> pb.ScanKeysResponse:
        if not 0 <= request.limit <= _SCAN:
            raise InvalidError("limit", request.limit, f"0 to {_SCAN}")
        prefix = SPACE + request.prefix
        start = max(prefix, next_key(SPACE + request.after)) if request.after else prefix
        end = prefix_end(prefix)
        if start >= end:
            raise InvalidError("after", request.after, f"a key below the prefix {request.prefix!r}")
        found = await self._space.store.scan(start, end, limit=request.limit or _SCAN)
        return pb.ScanKeysResponse(version=found.version, entries=map(_entry, found.entries), more=found.more)

    async def commit(self, request: pb.CommitRequest, access: CallAccess) -> pb.CommitResponse:
        lease = _given(request.lease) if request.HasField("lease") else None
        check_count("require", request.require, _OPERATIONS_MAX)
        check_count("apply", request.apply, _OPERATIONS_MAX)
        require = [requirement(each.key, each.version) for each in request.require]
        apply = [_operation(number, each) for number, each in enumerate(request.apply)]
        outcome = await self._space.commit(lease, require, apply)
        if isinstance(outcome, Committed):
            return pb.CommitResponse(committed=pb.Committed(version=outcome.version))
        found = map(_entry, own_entries(outcome.found.values()))
        return pb.CommitResponse(conflict=pb.Conflict(found=found))

    async def watch(self, request: pb.WatchRequest, access: CallAccess) -> AsyncIterator[pb.WatchResponse]:
        """Commits after a version, as they are made."""
        if request.from_version < 0:
            raise InvalidError("from_version", request.from_version, "at least 0")
        with open_stream(self._backend):
            async with self._space.store.watch(SPACE + request.prefix, from_version=request.from_version) as changes:
                async for change in until_stopped(changes, self._backend.stopping):
                    if isinstance(change, Resync):
                        yield pb.WatchResponse(version=change.version, resync=True)
                    else:
                        yield pb.WatchResponse(version=change.version, changes=map(_change, change.changes))


def _change(change: Change) -> pb.KeyChange:
    return pb.KeyChange(key=shown(change.key), entry=None if change.entry is None else _entry(change.entry))


def _operation(number: int, given: pb.Operation) -> Operation:
    match given.WhichOneof("operation"):
        case "put":
            return put(given.put.key, given.put.value, given.put.session_id)
        case "delete":
            return delete(given.delete.key)
    raise InvalidError(f"apply[{number}]", "nothing", "put or delete")


def _given(lease: pb.Lease) -> kernel.Lease:
    return space_lease(lease.resource, lease.holder, lease.epoch, lease.version)


def _lease(lease: kernel.Lease) -> pb.Lease:
    return pb.Lease(resource=shown(lease.resource), holder=lease.holder, epoch=lease.epoch, version=lease.version)


def _entry(entry: Entry) -> pb.KeyValue:
    return pb.KeyValue(
        key=shown(entry.key), value=entry.value, version=entry.version, ephemeral=entry.session is not None
    )
