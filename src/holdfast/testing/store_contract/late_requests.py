"""Requests that arrive after their sender gave up, and after their outcome was resolved.

For engines reached over TCP: `StoreHarness.url` has host and port.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from urllib.parse import urlsplit

import pytest

from holdfast.contracts.store import Absent, Committed, Entry, NotCommitted, Put, Store
from holdfast.stores.urls import open_store
from holdfast.testing.harness import StoreHarness
from holdfast.testing.store_contract.faults import MARKER
from holdfast.testing.store_contract.suite import ContractSuite
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError


class DelayingRelay:
    """Forwards to the server a URL names; one request can be held back while its sender's connection breaks."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._upstream = (parts.hostname, parts.port)
        self._marker: bytes | None = None
        self._deliver = asyncio.Event()
        self._links: set[asyncio.Task[None]] = set()
        self.url = ""
        self.held, self.delivered = asyncio.Event(), asyncio.Event()

    @classmethod
    @asynccontextmanager
    async def running(cls, url: str) -> AsyncIterator["DelayingRelay"]:
        """A relay on a free port of 127.0.0.1, reached by its own `url`."""
        relay = cls(url)
        server = await asyncio.start_server(relay._accept, "127.0.0.1", 0)
        relay.url = url.replace(f":{relay._upstream[1]}", f":{server.sockets[0].getsockname()[1]}", 1)
        try:
            yield relay
        finally:
            server.close()
            for link in relay._links:
                link.cancel()
            await asyncio.gather(*relay._links, return_exceptions=True)

    def hold(self, marker: str) -> None:
        """Hold back the next request that mentions `marker`, and break its connection."""
        self._marker = marker.encode()

    async def deliver(self) -> None:
        """Deliver the request; returns when the server has handled it."""
        self._deliver.set()
        await self.delivered.wait()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.ensure_future(self._link(reader, writer))
        self._links.add(link)
        link.add_done_callback(lambda _: writer.transport.abort())
        link.add_done_callback(self._links.discard)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            up_reader, up_writer = await asyncio.open_connection(*self._upstream)
            answers = asyncio.ensure_future(_pump(up_reader, writer))
            try:
                while chunk := await reader.read(1 << 16):
                    if self._marker is not None and self._marker in chunk:
                        self._marker = None
                        answers.cancel()
                        writer.transport.abort()
                        self.held.set()
                        await self._deliver.wait()
                        await self._arrive(up_reader, up_writer, chunk)
                        return
                    up_writer.write(chunk)
                    await up_writer.drain()
            finally:
                up_writer.transport.abort()
                answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)

    async def _arrive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chunk: bytes) -> None:
        try:
            writer.write(chunk)
            writer.write_eof()  # no more requests; the server responds and closes
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    while await reader.read(1 << 16):
                        pass
        finally:
            self.delivered.set()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(1 << 16):
        writer.write(chunk)
        await writer.drain()


class StoreLateRequests(ContractSuite):
    """The outcome from `resolve` is final, whatever request still arrives."""

    async def test_a_commit_that_arrives_after_it_was_resolved_is_refused(self, harness: StoreHarness) -> None:
        key = f"{MARKER}/1"
        async with self.relayed(harness) as (relay, sender), harness.client() as other:
            commit_id = await self.hold_back(relay, sender, key)
            if commit_id is not None:
                assert await other.resolve(commit_id) == NotCommitted()
            await relay.deliver()
            assert await other.get(key) is None, "a commit resolved as not committed was applied"
            if commit_id is not None:
                assert await sender.resolve(commit_id) == NotCommitted()

    async def test_a_commit_that_arrives_late_does_not_undo_later_commits(self, harness: StoreHarness) -> None:
        key = f"{MARKER}/1"
        async with self.relayed(harness) as (relay, sender), harness.client() as other:
            commit_id = await self.hold_back(relay, sender, key)
            if commit_id is not None:
                assert await sender.resolve(commit_id) == NotCommitted()
            instead = await sender.commit(require=[Absent(key)], apply=[Put(key, b'"instead"')])
            assert isinstance(instead, Committed)
            await relay.deliver()
            for client in (sender, other):
                assert await client.get(key) == Entry(key, b'"instead"', instead.version)

    async def test_a_commit_that_arrives_before_it_is_resolved_is_resolved_as_it_was(
        self, harness: StoreHarness
    ) -> None:
        key = f"{MARKER}/1"
        async with self.relayed(harness) as (relay, sender), harness.client() as other:
            commit_id = await self.hold_back(relay, sender, key)
            await relay.deliver()
            entry = await other.get(key)
            outcome = NotCommitted() if commit_id is None else await other.resolve(commit_id)
            assert outcome == (NotCommitted() if entry is None else Committed(entry.version))
            assert await other.get(key) == entry

    def open_url(self, url: str) -> AbstractAsyncContextManager[Store]:
        """A client by URL. Override it for an engine that `open_store` does not open."""
        return open_store(url, clock=self.clock, random=self.random)

    @asynccontextmanager
    async def relayed(self, harness: StoreHarness) -> AsyncIterator[tuple[DelayingRelay, Store]]:
        """A client whose requests can be held back."""
        async with (
            DelayingRelay.running(harness.url) as relay,
            self.open_url(relay.url) as store,
            asyncio.timeout(self.timeout_s),
        ):
            yield relay, store

    async def hold_back(self, relay: DelayingRelay, sender: Store, key: str) -> str | None:
        """Send a commit that does not arrive yet; its id, or None if it failed as not done."""
        relay.hold(MARKER)
        with pytest.raises((OutcomeUnknownError, UnavailableError)) as lost:
            await sender.commit(apply=[Put(key, b'"late"')])
        assert relay.held.is_set(), "no request was held back"
        return lost.value.commit_id if isinstance(lost.value, OutcomeUnknownError) else None
