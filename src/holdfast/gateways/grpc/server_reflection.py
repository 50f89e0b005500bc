"""`grpc.reflection.v1alpha`: what a server serves, for tools. Answered like our own services, by the same limits."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any

from grpc_reflection.v1alpha._async import ReflectionServicer

from holdfast.gateways.grpc.access import CallAccess
from holdfast.gateways.grpc.open_streams import until_stopped


class ReflectionService:
    """The reflection service. `stopping`: its streams end."""

    def __init__(self, services: Sequence[str], stopping: asyncio.Event) -> None:
        self._inner, self._stopping = ReflectionServicer(services), stopping

    async def server_reflection_info(self, requests: AsyncIterable[Any], access: CallAccess) -> AsyncIterator[Any]:
        """A response to each request."""
        answers = self._inner.ServerReflectionInfo(requests, None)
        async for response in until_stopped(answers, self._stopping):
            yield response
