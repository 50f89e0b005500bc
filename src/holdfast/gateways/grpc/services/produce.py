"""Appending records: one request a call, or many over a stream, each acknowledged by itself.

The rules: requests of a stream are begun in the order in which they were sent. What is not acknowledged is bounded, and counts
until its acknowledgement was taken: a client that reads none is read no further. A request that fails does not end its stream.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Final

from holdfast.gateways.grpc.access import CallAccess
from holdfast.gateways.grpc.backend import GrpcBackend
from holdfast.gateways.grpc.errors import failure_of
from holdfast.gateways.grpc.records import RECORD_BYTES, to_records
from holdfast.gateways.log_access.log_appends import AppendedRecords, LogAppends, PreparedAppend
from holdfast.gateways.log_access.off_loop import off_loop
from holdfast.log.model import ACKS_ALL, ACKS_LEADER
from holdfast.security.acls import Operation, ResourceType
from holdfast.v1 import produce_service_pb2 as pb
from holdfast.vocabulary.errors import ClosedError, HoldfastError, InvalidError
from holdfast.vocabulary.tasks import Notify, background_tasks, task_group

_ACKS: Final = {pb.ACKS_UNSPECIFIED: ACKS_ALL, pb.ACKS_ALL: ACKS_ALL, pb.ACKS_LEADER: ACKS_LEADER}
RECORDS_MAX: Final = 10_000

_Acknowledged = tuple[pb.ProduceStreamResponse, int] | None
"""A response and the bytes of its request; None: there are no more."""


class ProduceService:
    """`holdfast.v1.ProduceService`."""

    def __init__(self, backend: GrpcBackend, producing: LogAppends) -> None:
        self._backend, self._producing = backend, producing

    async def produce(self, request: pb.ProduceRequest, access: CallAccess) -> pb.ProduceResponse:
        prepared = await self._prepare(request.topic, request)
        return pb.ProduceResponse(appended=await self._finish(prepared))

    async def produce_stream(
        self, requests: AsyncIterable[pb.ProduceStreamRequest], access: CallAccess
    ) -> AsyncIterator[pb.ProduceStreamResponse]:
        """Acknowledgements, each as soon as its records are durable."""
        stream = _Stream(self, requests, self._backend, access)
        async with background_tasks(stream.read()):
            while (item := await stream.acknowledged.get()) is not None:
                response, size_bytes = item
                yield response
                stream.taken(size_bytes)
        if self._backend.stopping.is_set():
            raise ClosedError("the server")

    async def _prepare(self, topic: str, request: pb.ProduceRequest | pb.ProduceStreamRequest) -> PreparedAppend:
        count = len(request.records)
        if not 1 <= count <= RECORDS_MAX:
            raise InvalidError("records", f"{count} records", f"1 to {RECORDS_MAX} records")
        if request.acks not in _ACKS:
            raise InvalidError("acks", request.acks, "ACKS_ALL or ACKS_LEADER")
        now_ms = self._backend.clock.now_ms()
        given = request.records
        records, partitions = await off_loop(_size_bytes(request), lambda: to_records(given, now_ms))
        return await self._producing.prepare(
            topic,
            records,
            partitions,
            acks=_ACKS[request.acks],
            idempotency_key=request.idempotency_key or None,
        )

    async def _finish(self, prepared: PreparedAppend) -> pb.AppendedRecords:
        appended = _places(await self._producing.finish(prepared))
        self._backend.counters.records_appended += len(appended.offsets)
        return appended


class _Stream:
    """The requests of one stream that are not acknowledged."""

    def __init__(
        self,
        service: ProduceService,
        requests: AsyncIterable[pb.ProduceStreamRequest],
        backend: GrpcBackend,
        access: CallAccess,
    ) -> None:
        self.acknowledged: asyncio.Queue[_Acknowledged] = asyncio.Queue()
        self._service, self._requests, self._backend, self._access = service, requests, backend, access
        self._count = self._bytes = 0
        self._room = Notify()

    def taken(self, size_bytes: int) -> None:
        """An acknowledgement is with the transport."""
        self._count -= 1
        self._bytes -= size_bytes
        self._room.notify()

    async def read(self) -> None:
        """Begin request after request; then wait for those under way."""
        async with task_group() as appending:
            reading = appending.create_task(self._read(appending))
            stopping = asyncio.ensure_future(self._backend.stopping.wait())
            try:
                await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
            finally:
                reading.cancel()  # the server stops: what was begun is finished
                stopping.cancel()
        self.acknowledged.put_nowait(None)

    async def _read(self, appending: asyncio.TaskGroup) -> None:
        topic = ""
        async for request in self._requests:
            topic = request.topic or topic
            size_bytes = _size_bytes(request)
            await self._wait_for_room()
            self._count += 1
            self._bytes += size_bytes
            try:
                self._access.require(Operation.WRITE, ResourceType.TOPIC, topic)
                prepared = await self._service._prepare(topic, request)
            except HoldfastError as error:
                self._acknowledge(
                    pb.ProduceStreamResponse(request_id=request.request_id, error=_error(error)), size_bytes
                )
            else:
                appending.create_task(self._append(request.request_id, prepared, size_bytes))

    async def _append(self, request_id: int, prepared: PreparedAppend, size_bytes: int) -> None:
        try:
            appended = await self._service._finish(prepared)
            response = pb.ProduceStreamResponse(request_id=request_id, appended=appended)
        except HoldfastError as error:
            response = pb.ProduceStreamResponse(request_id=request_id, error=_error(error))
        self._acknowledge(response, size_bytes)

    def _acknowledge(self, response: pb.ProduceStreamResponse, size_bytes: int) -> None:
        self.acknowledged.put_nowait((response, size_bytes))

    async def _wait_for_room(self) -> None:
        settings = self._backend.settings
        while self._count >= settings.produce_requests_max or self._bytes >= settings.produce_bytes_max:
            await self._room.wait()


def _size_bytes(request: pb.ProduceRequest | pb.ProduceStreamRequest) -> int:
    return request.ByteSize() + RECORD_BYTES * len(request.records)


def _places(found: AppendedRecords) -> pb.AppendedRecords:
    """Partition and offset of each record, by its place in the request."""
    if len(found.offsets) == 1:
        ((partition, offset),) = found.offsets.items()
        count = len(found.members[partition])
        return pb.AppendedRecords(partitions=[partition] * count, offsets=range(offset, offset + count))
    count = sum(map(len, found.members.values()))
    partitions, offsets = [0] * count, [0] * count
    for partition, members in found.members.items():
        _fill(partitions, offsets, members, partition, found.offsets[partition])
    return pb.AppendedRecords(partitions=partitions, offsets=offsets)


def _fill(partitions: list[int], offsets: list[int], members: Sequence[int], partition: int, first: int) -> None:
    for offset, at in enumerate(members, first):
        partitions[at], offsets[at] = partition, offset


def _error(error: HoldfastError) -> pb.RequestError:
    failure = failure_of(error)
    number, _ = failure.code.value
    return pb.RequestError(code=number, reason=failure.reason, message=failure.detail)
