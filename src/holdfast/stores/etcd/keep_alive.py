"""Keep-alives over a few long-lived streams, one request in flight on each.

etcd handles the requests of one stream in turn and holds the response for an overdue lease until it is revoked; on a shared
stream such a lease would delay all others. A stream per call would be three times slower.
"""

import asyncio
from typing import TypeAlias

import grpc

from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.client import Endpoint, EtcdClient
from holdfast.stores.etcd.rpc_methods import LEASE_KEEP_ALIVE

KeepAliveStream: TypeAlias = "grpc.aio.StreamStreamCall[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]"


class KeepAliveStreams:
    """The keep-alive streams of one store."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client
        self._idle: list[tuple[Endpoint, KeepAliveStream]] = []

    async def renew(self, lease: int) -> pb.LeaseKeepAliveResponse:
        """Renew a lease for its full TTL; a TTL of 0 in the response means that it is dead."""

        async def once(endpoint: Endpoint, timeout_s: float) -> pb.LeaseKeepAliveResponse:
            return await self._renew(lease, endpoint, timeout_s)

        return await self._client.attempt(once)

    def close(self) -> None:
        """Cancel the idle streams."""
        while self._idle:
            self._idle.pop()[1].cancel()

    async def _renew(self, lease: int, endpoint: Endpoint, timeout_s: float) -> pb.LeaseKeepAliveResponse:
        stream = self._take(endpoint)
        answered = False
        try:
            async with asyncio.timeout(timeout_s):
                await stream.write(pb.LeaseKeepAliveRequest(ID=lease))
                response = await stream.read()
            if not isinstance(response, pb.LeaseKeepAliveResponse) or lease != response.ID:
                raise asyncio.InvalidStateError("the keep-alive stream ended")
            answered = True
            return response
        finally:
            if answered and len(self._idle) < self._client.settings.renewal_streams_max:
                self._idle.append((endpoint, stream))
            else:
                stream.cancel()

    def _take(self, endpoint: Endpoint) -> KeepAliveStream:
        while self._idle:
            at, stream = self._idle.pop()
            if at is endpoint and not stream.done():
                return stream
            stream.cancel()
        return self._client.stream(LEASE_KEEP_ALIVE, endpoint)
