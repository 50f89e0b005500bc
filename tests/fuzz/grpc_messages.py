"""Messages and metadata of gRPC, changed: `python -m tests.fuzz.grpc_messages --inputs 300000`.

A real gateway with security on a real agent, in this process; its handlers are called as gRPC calls them, without a socket: gRPC's
own framing is not ours to test. The corpus is a message of every rpc, with its fields filled by their types.
"""

import asyncio
import base64
import logging
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from tests.fuzz.callers import known_callers
from tests.fuzz.campaign import Target, main
from tests.fuzz.mutations import mutated, random_of
from tests.support.grpc_gateway import RunningGrpcGateway, grpc_cluster
from tests.support.waiting import async_until

from holdfast.gateways.grpc.access import GrpcSecurity
from holdfast.gateways.grpc.call_limits import CallLimits
from holdfast.gateways.grpc.calls import rpc_name, service_handler
from holdfast.gateways.grpc.server import SERVICES, _served
from holdfast.v1 import topic_service_pb2
from holdfast.v1.topic_service_pb2_grpc import TopicServiceStub

TOPIC = "orders"
# These ask another node, or the one they run on, over Kafka's protocol: none is there.
ELSEWHERE = ("ConsumerGroupService/", "TopicService/AlterTopic", "TopicService/GetTopic")
PATIENCE_S = 0.02
RESPONSES_MAX = 3
_log = logging.getLogger("holdfast.fuzz")


class Rpc(NamedTuple):
    """An rpc as gRPC calls it, and an example of what it takes."""

    name: str
    handler: Any
    example: bytes


def example(kind: Descriptor, depth: int = 0) -> Message:
    """A message with every field set."""
    made = GetMessageClass(kind)()
    for field in kind.fields:
        if field.message_type is not None:
            if depth > 3 or field.message_type.GetOptions().map_entry:
                continue
            inner = example(field.message_type, depth + 1)
            getattr(made, field.name).MergeFrom([inner] if field.is_repeated else inner)
            continue
        value = _value(field)
        if field.is_repeated:
            getattr(made, field.name).append(value)
        else:
            setattr(made, field.name, value)
    return made


def _value(field: FieldDescriptor) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            if field.type == FieldDescriptor.TYPE_BYTES:
                return b"x"
            return TOPIC if field.name in ("topic", "name") else "x"
        case FieldDescriptor.CPPTYPE_BOOL:
            return True
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return 1.0
    return 0 if field.name == "partition" else 1


class Context:
    """What a handler sees of its call. Its client takes a few responses, and goes."""

    def __init__(self, authorization: str, data: bytes) -> None:
        self._data = data
        self._metadata = (("authorization", authorization),) if authorization else ()
        self._written, self._code = 0, grpc.StatusCode.OK

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        return self._metadata

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    def code(self) -> grpc.StatusCode:
        return self._code

    async def read(self) -> bytes:
        return self._data

    async def write(self, response: Message) -> None:
        response.SerializeToString()
        self._written += 1
        if self._written > RESPONSES_MAX:
            raise asyncio.CancelledError

    async def abort(self, code: grpc.StatusCode, detail: str, metadata: Sequence[tuple[str, str]]) -> None:
        assert all(value.isascii() for _, value in metadata), metadata
        self._code = code
        raise grpc.aio.AbortError


class GrpcTarget:
    """The gateway of one campaign."""

    def __init__(self, made: RunningGrpcGateway, security: GrpcSecurity, keys: Mapping[str, str]) -> None:
        self._neighbour, self._keys = made, keys
        backend = replace(made.server.backend, security=security)
        served = _served(backend, made.server._forward)
        parsing, limits = made.server._parsing, CallLimits(backend.settings)
        self._rpcs = [
            rpc
            for name, service in SERVICES.items()
            for rpc in _rpcs(service, service_handler(service, served[name], backend, parsing, limits))
            if not rpc.name.startswith(ELSEWHERE)
        ]
        self._corpus = [each.example for each in self._rpcs]
        wrong = base64.b64encode(b"ann:wrong").decode()
        self._authorizations = [f"Bearer {keys['ann']}".encode(), f"Basic {wrong}".encode(), b"Bearer ", b"x"]

    def input(self, seed: int, number: int) -> bytes:
        return mutated(self._rpcs[number % len(self._rpcs)].example, random_of(seed, number), self._corpus)

    async def feed(self, inputs: Sequence[bytes], numbers: Sequence[int]) -> None:
        calls = {asyncio.ensure_future(self._call(data, number)) for data, number in zip(inputs, numbers, strict=True)}
        await asyncio.wait(calls, timeout=PATIENCE_S)
        for call in calls:  # what waits by design is cancelled, as when its client goes
            call.cancel()
        for found in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(found, Exception) and not isinstance(found, grpc.aio.AbortError):
                _log.error("a call raised", exc_info=found)

    async def _call(self, data: bytes, number: int) -> None:
        rpc = self._rpcs[number % len(self._rpcs)]
        call = rpc.handler.stream_stream if rpc.handler.response_streaming else rpc.handler.stream_unary
        answer = await call(_twice(data), Context(self._authorization(number), data))
        if answer is not None:
            rpc.handler.response_serializer(answer)

    def _authorization(self, number: int) -> str:
        if number % 8 == 0:
            random = random_of(0, number)
            return mutated(random.choice(self._authorizations), random, self._authorizations).decode("latin-1")
        return f"Bearer {self._keys['root' if number % 16 == 1 else 'ann']}"

    async def neighbour_is_served(self) -> bool:
        found = await TopicServiceStub(self._neighbour.channel).ListTopics(topic_service_pb2.ListTopicsRequest())
        return TOPIC in [each.name for each in found.topics]


def _rpcs(service: ServiceDescriptor, generic: Any) -> Iterator[Rpc]:
    for method in service.methods:
        handler = generic.service(SimpleNamespace(method=rpc_name(method), invocation_metadata=()))
        name = f"{service.name}/{method.name}"
        yield Rpc(name, handler, example(method.input_type).SerializeToString())


async def _twice(data: bytes) -> AsyncIterator[bytes]:
    for _ in range(2):
        yield data


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Target]:
    """A topic, and two users. The neighbour has a gateway of its own on the same agent, without security."""
    async with grpc_cluster(folder) as world:
        store, clock, random = world.cluster.store, world.cluster.clock, world.cluster.random
        await world.node.service.create_topic(TOPIC, 2, {})
        await async_until(lambda: all(world.node.service.is_serving(TOPIC, number) for number in range(2)))
        async with known_callers(store, clock=clock, random=random) as callers:
            security = GrpcSecurity(authenticator=callers.authenticator, audit=callers.audit)
            yield GrpcTarget(await world.gateway(), security, callers.keys)


if __name__ == "__main__":
    sys.exit(main("grpc_messages", opened))
