"""TLS for servers of tests that are built without it: a proxy ends it for them, also as PostgreSQL begins it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

SSL_REQUEST: Final = (8).to_bytes(4, "big") + (80_877_103).to_bytes(4, "big")


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


@asynccontextmanager
async def ending_tls(port: int, context: ssl.SSLContext, *, postgres: bool = False) -> AsyncIterator[int]:
    """The port of a proxy for the server at `port`. `postgres`: TLS begins when the client asks for it, and only then."""
    links: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(1 << 16):
                writer.write(chunk)

    async def encrypted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the client has begun TLS as PostgreSQL's do; one that asks for none is hung up on."""
        try:
            if await reader.readexactly(len(SSL_REQUEST)) != SSL_REQUEST:
                return False
            writer.write(b"S")
            await writer.start_tls(context)
        except (OSError, EOFError):  # it does not trust us
            return False
        return True

    async def link(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        links.add(task)
        if postgres and not await encrypted(reader, writer):
            writer.transport.abort()
            return
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", port)
        pumps = [asyncio.ensure_future(copy(reader, up_writer)), asyncio.ensure_future(copy(up_reader, writer))]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, up_writer):
            each.transport.abort()
        await asyncio.gather(*pumps, return_exceptions=True)

    async with await asyncio.start_server(link, "127.0.0.1", 0, ssl=None if postgres else context) as listening:
        yield listening.sockets[0].getsockname()[1]
        await asyncio.gather(*links)
