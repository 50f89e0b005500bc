"""EtcdClient: calls to a list of endpoints, one of them in use, the next one when it fails.

The one rule: a call is repeated only if it is idempotent or was not done; a write without a response raises `AnswerLostError`, and
the caller resolves it. It has no notion of keys, leases or watches.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar, cast

import grpc

from holdfast.stores.errors import AnswerLostError
from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.errors import CALL_ERRORS, CallFailure, classify_failure, error_for
from holdfast.stores.etcd.rpc_methods import AUTHENTICATE, A, Q, RpcMethod
from holdfast.stores.etcd.settings import EtcdAddress, EtcdSettings
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import ClosedError, InvalidError, UnavailableError, UsageError
from holdfast.vocabulary.random import Random, backoff_ms

T = TypeVar("T")
Once = Callable[["Endpoint", float], Awaitable[T]]  # endpoint, seconds

# A member without a leader then fails at once instead of holding the call until it times out.
_REQUIRE_LEADER: Final = ("hasleader", "true")


class Endpoint:
    """One member's address and the channel to it."""

    def __init__(self, target: str, credentials: grpc.ChannelCredentials | None, settings: EtcdSettings) -> None:
        self.target = target
        options = (
            ("grpc.enable_retries", 0),  # only this module repeats calls
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),  # stores share neither connections nor their failures
            ("grpc.max_receive_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 2_000),  # in effect the connect timeout
            ("grpc.max_reconnect_backoff_ms", 500),
            ("grpc.keepalive_time_ms", settings.ping_every_ms),  # detects hung servers and dropped connections
            ("grpc.keepalive_timeout_ms", settings.ping_timeout_ms),
            ("grpc.http2.max_pings_without_data", 0),
        )
        self.channel = (
            grpc.aio.insecure_channel(target, options)
            if credentials is None
            else grpc.aio.secure_channel(target, credentials, options)
        )
        self._unary: dict[str, object] = {}

    def unary(self, method: RpcMethod[Q, A]) -> "grpc.aio.UnaryUnaryMultiCallable[Q, A]":
        """The callable for a method, created once."""
        unary = self._unary.get(method.path)
        if unary is None:
            unary = self._unary[method.path] = self.channel.unary_unary(
                method.path, method.request.SerializeToString, method.response.FromString
            )
        return cast("grpc.aio.UnaryUnaryMultiCallable[Q, A]", unary)


def was_cancelled() -> bool:
    """Whether the current task itself is cancelled, rather than a call that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class EtcdClient:
    """Calls with deadlines, failover and login. `breaks` counts failed calls: after one, another server may respond."""

    def __init__(self, address: EtcdAddress, settings: EtcdSettings, *, clock: Clock, random: Random) -> None:
        self.address, self.settings = address, settings
        self.breaks = 0
        self.endpoints: list[Endpoint] = []
        self._clock, self._random = clock, random
        self._current = 0
        self._closed = False
        self._metadata = grpc.aio.Metadata(_REQUIRE_LEADER)
        self._credentials: grpc.ChannelCredentials | None = None

    @property
    def try_ms(self) -> int:
        """How long one attempt may take: with several endpoints, one that hangs must not use up the operation's timeout."""
        return max(100, self.settings.timeout_ms // 3) if len(self.endpoints) > 1 else self.settings.timeout_ms

    @classmethod
    @asynccontextmanager
    async def open(
        cls, address: EtcdAddress, settings: EtcdSettings, *, clock: Clock, random: Random
    ) -> AsyncIterator["EtcdClient"]:
        """Channels to all endpoints, logged in, for the body. Connections are made when first used."""
        client = cls(address, settings, clock=clock, random=random)
        client._credentials = await asyncio.to_thread(address.credentials)
        try:
            client.endpoints.extend(client._endpoint(target) for target in address.endpoints)
            await client.log_in()
            yield client
        finally:
            client._closed = True
            await asyncio.gather(*(endpoint.channel.close(None) for endpoint in client.endpoints))

    async def call(self, method: RpcMethod[Q, A], request: Q, *, repeatable: bool = True, within_ms: int = 0) -> A:
        """Call any endpoint that responds. `AnswerLostError` only if not `repeatable`."""

        async def once(endpoint: Endpoint, timeout_s: float) -> A:
            return await endpoint.unary(method)(request, timeout=timeout_s, metadata=self._metadata)

        return await self.attempt(once, repeatable=repeatable, within_ms=within_ms)

    async def call_at(
        self,
        endpoint: Endpoint,
        method: RpcMethod[Q, A],
        request: Q,
        *,
        require_leader: bool = True,
        within_ms: int = 0,
    ) -> A:
        """Call one endpoint once; raises gRPC's errors. Not `require_leader`: also a member that has none answers."""
        metadata = self._metadata
        if not require_leader:
            metadata = grpc.aio.Metadata(*(pair for pair in self._metadata if pair != _REQUIRE_LEADER))
        return await endpoint.unary(method)(request, timeout=(within_ms or self.try_ms) / 1000, metadata=metadata)

    async def attempt(self, once: Once[T], *, repeatable: bool = True, within_ms: int = 0) -> T:
        """Run `once` until it succeeds, on the next endpoint after a failure, within the operation's timeout."""
        within_ms = within_ms or self.settings.timeout_ms
        deadline_ms = self._clock.boot_ms() + within_ms
        left_ms, tries, logins = within_ms, 0, 0
        while True:
            endpoint = self.endpoints[self._current]
            try:
                return await once(endpoint, (min(left_ms, self.try_ms) if repeatable else left_ms) / 1000)
            except CALL_ERRORS as error:
                failure, shown = classify_failure(error)
            except asyncio.CancelledError:
                if not self._closed or was_cancelled():
                    raise
                failure, shown = CallFailure.LOST, "the store was closed"  # closing a channel cancels its calls
            if failure in (CallFailure.NOT_DONE, CallFailure.LOST):
                self.leave(endpoint)
            if failure in (CallFailure.LOST, CallFailure.NO_SPACE) and not repeatable:
                raise AnswerLostError(f"{endpoint.target}: {shown}")
            if failure is CallFailure.TOKEN and self.address.user and logins < 2:
                logins += 1
                await self.log_in()
            elif failure in (CallFailure.NOT_DONE, CallFailure.LOST):
                if self._closed:
                    raise ClosedError(self.address.shown)
                await self._clock.sleep_ms(backoff_ms(tries, base_ms=10, max_ms=250, random=self._random))
            else:
                raise error_for(failure, shown, self.address.shown)
            tries += 1
            left_ms = deadline_ms - self._clock.boot_ms()
            if left_ms <= 0:
                raise UnavailableError(
                    self.address.shown,
                    f"{tries} attempts in {within_ms} ms, the last at {endpoint.target}: {shown}; check that etcd is running,"
                    " reachable and has a leader (etcdctl endpoint health)",
                )

    @property
    def in_use(self) -> Endpoint:
        """The endpoint of the next call."""
        return self.endpoints[self._current]

    def stream(self, method: RpcMethod[Q, A], endpoint: Endpoint) -> "grpc.aio.StreamStreamCall[Q, A]":
        """Start a bidirectional stream. The caller cancels it."""
        started = endpoint.channel.stream_stream(
            method.path, method.request.SerializeToString, method.response.FromString
        )(None, metadata=self._metadata)
        return cast("grpc.aio.StreamStreamCall[Q, A]", started)

    def leave(self, endpoint: Endpoint) -> None:
        """A call or stream on `endpoint` failed: use the next one, unless that was already done."""
        self.breaks += 1
        if self.endpoints[self._current] is endpoint:
            self._current = (self._current + 1) % len(self.endpoints)

    async def use_endpoints(self, targets: Sequence[str]) -> None:
        """Use these endpoints from now on. Calls on one that is left out get the time to finish; streams end, and go elsewhere."""
        known = {endpoint.target: endpoint for endpoint in self.endpoints}
        if not targets or set(targets) == set(known):
            return
        current = self.endpoints[self._current]
        made = [known.get(target) or self._endpoint(target) for target in targets]
        left_out = [endpoint for endpoint in self.endpoints if endpoint not in made]
        self.endpoints[:] = made
        self._current = made.index(current) if current in made else 0
        await asyncio.gather(*(endpoint.channel.close(self.settings.timeout_ms / 1000) for endpoint in left_out))

    def _endpoint(self, target: str) -> Endpoint:
        return Endpoint(target, self._credentials, self.settings)

    async def log_in(self) -> None:
        """Get a token for the user, if there is one. Tokens expire, and a stream keeps its first one."""
        if not self.address.user:
            return
        request = pb.AuthenticateRequest(name=self.address.user, password=self.address.password)

        async def once(endpoint: Endpoint, timeout_s: float) -> pb.AuthenticateResponse:
            return await endpoint.unary(AUTHENTICATE)(request, timeout=timeout_s, metadata=(_REQUIRE_LEADER,))

        try:
            response = await self.attempt(once)
        except InvalidError as refused:
            raise UsageError(f"etcd refused user {self.address.user}: {refused}") from None
        self._metadata = grpc.aio.Metadata(_REQUIRE_LEADER, ("token", response.token))
