"""Nodes that serve the text protocol, in this process, and a client of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from struct import Struct
from types import TracebackType

from tests.support.cluster import LocalCluster, Node
from tests.support.waiting import async_until

from holdfast.cursors.keys import shard_resource
from holdfast.cursors.settings import CursorSettings
from holdfast.gateways.text.backend import TextBackend
from holdfast.gateways.text.frames import encode_frames
from holdfast.gateways.text.security import TextSecurity
from holdfast.gateways.text.server import TextServer, serving_text
from holdfast.gateways.text.settings import TextSettings
from holdfast.vocabulary.host_port import split_host_port
from holdfast.vocabulary.sockets import bind_one

LENGTH = Struct("<I")
FEW_CURSORS = CursorSettings(shards=3, save_ms=10)
PATIENT = TextSettings(request_ms=60_000)  # a busy machine is no reason for an error


class TextClient:
    """One connection."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def __aenter__(self) -> "TextClient":
        found = split_host_port(self.address)
        assert found is not None
        self.reader, self.writer = await asyncio.open_connection(found.host, found.port, limit=1 << 26)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.transport.abort()

    def send(self, *requests: bytes | str) -> None:
        self.writer.write(encode_frames(each.encode() if isinstance(each, str) else each for each in requests))

    async def reply(self) -> bytes:
        (length,) = LENGTH.unpack(await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    async def ask(self, *requests: bytes | str) -> list[bytes]:
        """Pipelined: all are sent before the first answer is read."""
        self.send(*requests)
        return [await self.reply() for _ in requests]

    async def one(self, request: bytes | str) -> bytes:
        return (await self.ask(request))[0]


class TextNode:
    """An agent and its text gateway. `stop` and `drop` end both."""

    def __init__(self, node: Node, server: TextServer, address: str, stack: AsyncExitStack) -> None:
        self.node, self.server, self.address, self._stack = node, server, address, stack

    def client(self) -> TextClient:
        return TextClient(self.address)

    async def stop(self) -> None:
        await self.server.close_gracefully()
        await self.node.stop()
        await self._stack.aclose()

    async def drop(self) -> None:
        await self._stack.aclose()
        await self.node.drop()


class TextCluster(LocalCluster):
    """Nodes that answer text requests."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.text: dict[str, TextNode] = {}
        self.security: TextSecurity | None = None

    async def text_node(
        self, name: str, settings: TextSettings = PATIENT, cursors: CursorSettings = FEW_CURSORS, **changes: object
    ) -> TextNode:
        bound = bind_one("127.0.0.1", 0)
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        node = await self.node(name, text_address=address, cursors=cursors, rotation_check_ms=5, **changes)
        await async_until(lambda: node.agent.member is not None)
        member = node.agent.member
        assert member is not None
        backend = TextBackend(
            cluster_id="test",
            agent=name,
            node=member.node,
            cluster=node.agent.cluster,
            log=node.service,
            cursors=node.agent.cursors,
            store=node.store,
            clock=self.clock,
            random=self.random,
            security=self.security,
            settings=settings,
        )
        stack = AsyncExitStack()
        server = await stack.enter_async_context(serving_text(backend, [bound]))
        self.text[name] = TextNode(node, server, address, stack)
        return self.text[name]

    async def end(self) -> None:
        for each in self.text.values():
            await each._stack.aclose()
        await super().end()


@asynccontextmanager
async def text_cluster(directory: Path, *names: str, settings: TextSettings = PATIENT) -> AsyncIterator[TextCluster]:
    """Nodes of these names for the body, each with its share of the cursors, and known to the others with it."""
    cluster = TextCluster(directory)
    try:
        for name in names:
            await cluster.text_node(name, settings)
        await async_until(lambda: all(_cursor_owners(each) == {*names} for each in cluster.text.values()))
        yield cluster
    finally:
        await cluster.end()


def _cursor_owners(node: TextNode) -> set[str]:
    held = [node.node.agent.cluster.holder(shard_resource(number)) for number in range(FEW_CURSORS.shards)]
    return {"" if each is None else each.holder for each in held}
