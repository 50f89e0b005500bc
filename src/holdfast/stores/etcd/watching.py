"""Watching: streams of events that mend themselves.

One stream per watcher, on the endpoint in use. After a break it goes on from the last revision it saw, wherever it gets a
connection; when etcd has compacted that revision away, it says so. All events of a revision come together.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import grpc

from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.client import Endpoint, EtcdClient, was_cancelled
from holdfast.stores.etcd.failures import BROKEN, Failure, failure_of, refusal
from holdfast.stores.etcd.methods import WATCH
from holdfast.vocabulary.clock import Chance, Clock, backoff_ms
from holdfast.vocabulary.errors import UnavailableError

WatchStream: TypeAlias = "grpc.aio.StreamStreamCall[pb.WatchRequest, pb.WatchResponse]"
Connected: TypeAlias = tuple[Endpoint, WatchStream, pb.WatchResponse]  # and the first response


@dataclass(frozen=True, slots=True)
class Events:
    """What happened at one revision in the watched range."""

    revision: int
    events: tuple[pb.Event, ...]


@dataclass(frozen=True, slots=True)
class Compacted:
    """Events up to `revision` are no longer kept."""

    revision: int


class Watching:
    """All watch streams of one store. `settle` is asked before each connection: it checks that the store is still the same."""

    def __init__(
        self, client: EtcdClient, *, settle: Callable[[], Awaitable[None]], clock: Clock, chance: Chance
    ) -> None:
        self._client, self._settle, self._clock, self._chance = client, settle, clock, chance
        self._streams: set[WatchStream] = set()
        self._ended: Exception | None = None

    def end(self, error: Exception) -> None:
        """Every watcher, present and future, ends with `error`."""
        self._ended = self._ended or error
        for stream in self._streams:
            stream.cancel()

    async def follow(self, key: bytes, range_end: bytes, *, after: int) -> AsyncGenerator[Events | Compacted, None]:
        """Everything that happens in [key, range_end) after a revision."""
        stream: WatchStream | None = None
        held: list[pb.Event] = []  # of a response that etcd sends in parts
        progress = 0
        try:
            while True:
                response: pb.WatchResponse | None
                if stream is None:
                    endpoint, stream, response = await self._connect(key, range_end, after)
                    held.clear()
                    progress = 0
                else:
                    response = await self._next(stream)
                if response is None or (response.canceled and not response.compact_revision):
                    self._drop(stream)
                    stream = None
                    self._client.leave(endpoint)
                elif response.compact_revision:
                    self._drop(stream)
                    stream = None
                    after = max(after, response.compact_revision)
                    yield Compacted(after)
                elif not response.events and not response.created:
                    # Before 3.5.8 a progress note could overtake events; by the next one, minutes later, they are through.
                    after, progress = max(after, progress), response.header.revision
                else:
                    held.extend(response.events)
                    whole = len(held)
                    if response.fragment:
                        last = held[-1].kv.mod_revision
                        while whole and held[whole - 1].kv.mod_revision == last:
                            whole -= 1
                    for revision, events in groupby(held[:whole], key=_revision):
                        if revision > after:
                            after = revision
                            yield Events(revision, tuple(events))
                    del held[:whole]
        finally:
            if stream is not None:
                self._drop(stream)

    async def _connect(self, key: bytes, range_end: bytes, after: int) -> Connected:
        create = pb.WatchCreateRequest(
            key=key, range_end=range_end, start_revision=after + 1, progress_notify=True, fragment=True
        )
        attempt = 0
        while True:
            self._raise_if_ended()
            try:
                await self._settle()
                await self._client.log_in()
                return await self._client.attempt(lambda at, timeout_s: self._create(create, at, timeout_s))
            except UnavailableError:
                await self._clock.sleep_ms(backoff_ms(attempt, base_ms=50, max_ms=1_000, chance=self._chance))
                attempt += 1

    async def _create(self, create: pb.WatchCreateRequest, endpoint: Endpoint, timeout_s: float) -> Connected:
        stream = self._client.stream(WATCH, endpoint)
        self._streams.add(stream)
        created = False
        try:
            async with asyncio.timeout(timeout_s):
                await stream.write(pb.WatchRequest(create_request=create))
                response = await self._next(stream)
            if response is None:
                raise asyncio.InvalidStateError("the watch stream ended")
            if response.canceled and not response.compact_revision:
                raise refusal(Failure.REFUSED, response.cancel_reason, self._client.address.shown)
            created = True
            return endpoint, stream, response
        except asyncio.CancelledError:
            self._raise_if_ended()
            raise
        finally:
            if not created:
                self._drop(stream)

    async def _next(self, stream: WatchStream) -> pb.WatchResponse | None:
        """The next response; None when the stream is broken."""
        try:
            response = await stream.read()
        except BROKEN as error:
            failure, shown = failure_of(error)
            if failure is Failure.REFUSED:
                raise refusal(failure, shown, self._client.address.shown) from None
            return None
        except asyncio.CancelledError:
            self._raise_if_ended()
            raise
        return response if isinstance(response, pb.WatchResponse) else None

    def _raise_if_ended(self) -> None:
        if self._ended is not None and not was_cancelled():  # the stream was cancelled, not its reader
            raise self._ended from None

    def _drop(self, stream: WatchStream) -> None:
        self._streams.discard(stream)
        stream.cancel()


def _revision(event: pb.Event) -> int:
    return event.kv.mod_revision
