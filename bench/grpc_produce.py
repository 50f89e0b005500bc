"""Producing over gRPC, for `bench.rest`: a call for one record or 100, and streams of requests of 1, 100 and 1,000 records.

As over HTTP, 16 callers send as soon as they are answered; a stream has 16 requests that are not acknowledged.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio

from holdfast.v1.produce_service_pb2 import ProduceRequest, ProduceStreamRequest
from holdfast.v1.produce_service_pb2_grpc import ProduceServiceStub
from holdfast.v1.record_pb2 import NewRecord

IN_FLIGHT = 16
STREAMS = 2


async def figures(
    address: str, topic: str, value: bytes, seconds: float, cpu_s: Callable[[], float]
) -> dict[str, tuple[float, float, float]]:
    """Of each kind: requests a second, events a second, and events a second and core of the server."""
    found: dict[str, tuple[float, float, float]] = {}
    async with grpc.aio.insecure_channel(address) as channel:
        stub = ProduceServiceStub(channel)
        for name, count, work in (
            ("gRPC, single", 1, _calls),
            ("gRPC, 100", 100, _calls),
            ("stream, 1", 1, _streams),
            ("stream, 100", 100, _streams),
            ("stream, 1,000", 1_000, _streams),
        ):
            records = [NewRecord(value=value)] * count
            began, used_s = time.perf_counter(), cpu_s()
            done = await work(stub, topic, records, began + seconds)
            took_s, used_s = time.perf_counter() - began, cpu_s() - used_s
            found[name] = (done / took_s, done * count / took_s, done * count / max(used_s, 0.01))
    return found


async def _calls(stub: Any, topic: str, records: list[NewRecord], until_s: float) -> int:
    request, done = ProduceRequest(topic=topic, records=records), 0

    async def call() -> None:
        nonlocal done
        while time.perf_counter() < until_s:
            await stub.Produce(request)
            done += 1

    await asyncio.gather(*(call() for _ in range(IN_FLIGHT)))
    return done


async def _streams(stub: Any, topic: str, records: list[NewRecord], until_s: float) -> int:
    request, done = ProduceStreamRequest(topic=topic, records=records), 0

    async def stream() -> None:
        nonlocal done
        room = asyncio.Semaphore(IN_FLIGHT)

        async def requests() -> AsyncIterator[ProduceStreamRequest]:
            while time.perf_counter() < until_s:
                await room.acquire()
                yield request

        async for answer in stub.ProduceStream(requests()):
            if answer.HasField("error"):
                raise SystemExit(f"refused: {answer.error.message}")
            room.release()
            done += 1

    await asyncio.gather(*(stream() for _ in range(STREAMS)))
    return done
