"""Watchers: streams of events that reconnect by themselves.

One stream per watcher, on the endpoint in use. After a failure it resumes from its last revision, on any endpoint; if etcd has
compacted that revision, it yields `HistoryCompacted`. All events of a revision come together.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Self, TypeAlias

import grpc

from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.client import Endpoint, EtcdClient
from holdfast.stores.etcd.errors import CALL_ERRORS, CallFailure, classify_failure, error_for
from holdfast.stores.etcd.rpc_methods import WATCH
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import UnavailableError
from holdfast.vocabulary.random import Random, backoff_ms

WatchStream: TypeAlias = "grpc.aio.StreamStreamCall[pb.WatchRequest, pb.WatchResponse]"
Response: TypeAlias = "pb.WatchResponse | grpc.aio.EOFType"


@dataclass(frozen=True, slots=True)
class RevisionEvents:
    """The events of one revision in the watched range."""

    revision: int
    events: tuple[pb.Event, ...]


@dataclass(frozen=True, slots=True)
class HistoryCompacted:
    """Events up to `revision` were compacted."""

    revision: int


class EtcdWatchers:
    """All watchers of one store. `verify` is called before each connection: it checks that the store is still the same."""

    def __init__(
        self, client: EtcdClient, *, verify: Callable[[], Awaitable[None]], clock: Clock, random: Random
    ) -> None:
        self.client = client
        self.ended: Exception | None = None
        self._verify, self._clock, self._random = verify, clock, random
        self._watchers: set[EtcdWatcher] = set()

    def end(self, error: Exception) -> None:
        """Every watcher, present and future, ends with `error`."""
        self.ended = self.ended or error
        for watcher in self._watchers:
            watcher.drop_stream()

    @asynccontextmanager
    async def follow(self, key: bytes, range_end: bytes, *, after: int) -> AsyncIterator["EtcdWatcher"]:
        """A watcher of [key, range_end) after a revision."""
        watcher = EtcdWatcher(self, key, range_end, after)
        self._watchers.add(watcher)
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
            await watcher.close()

    async def connect(self, create: pb.WatchCreateRequest) -> tuple[Endpoint, WatchStream]:
        """A stream with a created watch, however long it takes to connect."""
        attempt = 0
        while True:
            if self.ended is not None:
                raise self.ended
            try:
                await self._verify()
                await self.client.log_in()
                return await self.client.attempt(lambda at, timeout_s: self._create(create, at, timeout_s))
            except UnavailableError:
                await self._clock.sleep_ms(backoff_ms(attempt, base_ms=50, max_ms=1_000, random=self._random))
                attempt += 1

    async def _create(
        self, create: pb.WatchCreateRequest, endpoint: Endpoint, timeout_s: float
    ) -> tuple[Endpoint, WatchStream]:
        stream = self.client.stream(WATCH, endpoint)
        created = False
        try:
            async with asyncio.timeout(timeout_s):
                await stream.write(pb.WatchRequest(create_request=create))
                response = await stream.read()
            if not isinstance(response, pb.WatchResponse) or not response.created:
                raise asyncio.InvalidStateError("the watch stream ended")
            if response.canceled:
                raise error_for(CallFailure.REFUSED, response.cancel_reason, self.client.address.shown)
            created = True
            return endpoint, stream
        finally:
            if not created:
                stream.cancel()


class EtcdWatcher:
    """One watcher's position in the history of its range.

    Not a generator: a caller's timeout would end it for good. A pending read outlives the caller's wait too: cancelling a read
    cancels the whole gRPC stream.
    """

    def __init__(self, watching: EtcdWatchers, key: bytes, range_end: bytes, after: int) -> None:
        self._watching, self._key, self._range_end, self._after = watching, key, range_end, after
        self._stream: WatchStream | None = None
        self._endpoint: Endpoint | None = None
        self._reading: asyncio.Future[Response] | None = None
        self._parts: list[pb.Event] = []  # of a response that etcd sends in fragments
        self._progress = 0
        self._pending: deque[RevisionEvents | HistoryCompacted] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> RevisionEvents | HistoryCompacted:
        while True:
            if self._watching.ended is not None:
                raise self._watching.ended
            if self._pending:
                event = self._pending.popleft()
                self._after = event.revision
                return event
            if self._stream is None:
                create = pb.WatchCreateRequest(
                    key=self._key,
                    range_end=self._range_end,
                    start_revision=self._after + 1,
                    progress_notify=True,
                    fragment=True,
                )
                self._endpoint, self._stream = await self._watching.connect(create)
                self._parts.clear()
                self._progress = 0
                continue  # the store may have been closed meanwhile, when there was no stream to drop
            response = await self._read(self._stream)
            if response is not None:
                self._take(response)
            elif self._watching.ended is None and self._endpoint is not None:
                self.drop_stream()
                self._watching.client.leave(self._endpoint)

    def drop_stream(self) -> None:
        """Cancel the stream; a pending read ends."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    async def close(self) -> None:
        """Cancel the stream and the pending read."""
        self.drop_stream()
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait((reading,))
            if not reading.cancelled():
                reading.exception()  # retrieved, so that asyncio does not warn

    async def _read(self, stream: WatchStream) -> pb.WatchResponse | None:
        """The next response; None when the stream is broken."""
        if self._reading is None:
            self._reading = asyncio.ensure_future(stream.read())
        await asyncio.wait((self._reading,))
        reading, self._reading = self._reading, None
        if reading.cancelled():
            return None
        try:
            response = reading.result()
        except CALL_ERRORS as error:
            failure, shown = classify_failure(error)
            if failure is CallFailure.REFUSED:
                raise error_for(failure, shown, self._watching.client.address.shown) from None
            return None
        if not isinstance(response, pb.WatchResponse) or (response.canceled and not response.compact_revision):
            return None
        return response

    def _take(self, response: pb.WatchResponse) -> None:
        if response.compact_revision:
            self.drop_stream()
            self._pending.append(HistoryCompacted(max(self._after, response.compact_revision)))
        elif not response.events:
            # Before 3.5.8 a progress notification could overtake events; by the next one, minutes later, they have arrived.
            self._after, self._progress = max(self._after, self._progress), response.header.revision
        else:
            self._parts.extend(response.events)
            whole = len(self._parts)
            if response.fragment:  # the last revision may continue in the next fragment
                last = self._parts[-1].kv.mod_revision
                while whole and self._parts[whole - 1].kv.mod_revision == last:
                    whole -= 1
            for revision, events in groupby(self._parts[:whole], key=_revision):
                if revision > self._after:
                    self._pending.append(RevisionEvents(revision, tuple(events)))
            del self._parts[:whole]


def _revision(event: pb.Event) -> int:
    return event.kv.mod_revision
