"""What an API is to the gateway: its key, its versions and its handler.

Three kinds of handlers. A *control* handler gets the request decoded by kio and returns a mapping with the field names of the
newest version; `kafka.codec` drops those the request's version lacks. A *raw* handler (Fetch) gets bytes and returns bytes, for
speed. A *direct* handler (Produce) does so without a task: it starts at once and calls back with the response.
"""

from asyncio import Lock
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar

from holdfast.gateways.kafka.api_rules import ApiRule, rule_of
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.connection_access import ADMINISTRATION, ALL_OPERATIONS, ConnectionAccess
from holdfast.gateways.kafka.fetch_room import FetchPlace
from holdfast.gateways.kafka.quota_meters import RequestMeter
from holdfast.kafka.api_keys import ApiKey
from holdfast.log.batches import Buffer
from holdfast.security.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.vocabulary.clock import stopwatch_ns
from holdfast.vocabulary.tasks import gather_limited
from holdfast.vocabulary.tracing import Span

T = TypeVar("T")
Result = TypeVar("Result")

_TURN_NS: Final = 1_000_000
_GATHERED_MAX: Final = 64  # calls that begin in one turn of the loop
_CONCURRENCY_MAX: Final = 16

ResponseFields = Mapping[str, object]
ResponseChunks = Sequence[Buffer]


@dataclass(slots=True)
class ClientInfo:
    """The client of a connection. `software`: name and version, once it has sent them.

    `line`: in which its heap requests stand, so that they begin in their order, once one had to wait for its turn.
    """

    host: str
    port: int
    software: str = ""
    line: Lock | None = None


@dataclass(slots=True)
class RequestContext:
    """What a handler knows of a request besides its body.

    `taken_bytes`: the room that it took for the response (`response_budget`); the connection gives it back.
    `waited_ns`: how long it waited for records, which is no work of the server's.
    `span`: of the request, if it is traced; `arrived_ns`: when, if traces are on.
    `access`: what its client may do; None: everything, because the listener has no authentication.
    `meter`: what it takes of its client's quotas; None: there are none.
    `begun`: false while it waits to be read: it has had no effect yet.
    `needs`: what its client must be allowed for as long as it waits; None: that was decided, or is asked again.
    `place`: the room it has among fetches of many partitions, if it is one.
    `has_slot`: whether it has one of the places for large requests.
    `turn_until_ns`: when its turn of the event loop should end; 0: it has not begun.
    `is_paced`: whether it takes the time that its client's rate gives it, and ends with its client.
    """

    api: "Api"
    version: int
    correlation: int
    client_id: str
    peer: ClientInfo
    backend: KafkaBackend
    taken_bytes: int = 0
    waited_ns: int = 0
    access: ConnectionAccess | None = None
    meter: RequestMeter | None = None
    span: Span | None = None
    arrived_ns: int = 0
    turn_until_ns: int = 0
    is_paced: bool = False
    begun: bool = True
    has_slot: bool = False
    place: FetchPlace | None = None
    needs: tuple[Operation, ResourceType, str] | None = None

    def begin_turn(self) -> None:
        """It has the event loop anew, after it has waited: for what is small, it does not stand in line behind large requests."""
        self.turn_until_ns = stopwatch_ns() + _TURN_NS

    @property
    def turn_is_over(self) -> bool:
        """Whether others should have the event loop."""
        return stopwatch_ns() > self.turn_until_ns

    async def next_turn(self) -> None:
        """Return when it has the event loop again."""
        await self.backend.large_requests.turns.next()
        self.begin_turn()

    async def each(self, entries: Iterable[T]) -> AsyncIterator[T]:
        """The entries of the request or of its response one by one, with turns of the event loop for others in between."""
        if not self.turn_until_ns:
            self.begin_turn()
        for entry in entries:
            yield entry
            if self.turn_is_over:
                await self.next_turn()

    async def gather(self, function: Callable[[T], Awaitable[Result]], entries: Iterable[T]) -> list[Result]:
        """The results of `function` for each of the entries, in their order, some calls at a time."""
        results: list[Result] = []
        left = iter(entries)
        while some := list(islice(left, _GATHERED_MAX)):
            results += await gather_limited(function, some, _CONCURRENCY_MAX)
            await self.backend.large_requests.turns.next()
        return results

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the client may do this to the resource. The rule of the API has to name it."""
        if self.access is None:
            return True
        allowed = self.access.allows(self.api.rule, operation, kind, name)
        if not allowed or operation in ADMINISTRATION:
            self.access.record(self.api.name, f"{self.client_id}/{self.correlation}", operation, kind, name, allowed)
        return allowed

    @property
    def is_denied(self) -> bool:
        """Whether it waits for what its client may no longer have."""
        return self.needs is not None and self.access is not None and not self.access.allows(self.api.rule, *self.needs)

    def allows_cluster(self, operation: Operation) -> bool:
        """Whether the client may do this to the cluster."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether there may be a resource of this type that the client may do this to."""
        return self.access is None or self.access.allows_any(self.api.rule, operation, kind)

    @property
    def throttle_ms(self) -> int:
        """The `throttle_time_ms` field of the response."""
        return 0 if self.meter is None else self.meter.throttle_ms

    def operations(self, kind: ResourceType, name: str) -> int:
        """The `authorized_operations` field of a resource."""
        return ALL_OPERATIONS[kind] if self.access is None else self.access.operations(kind, name)


ControlHandler = Callable[[RequestContext, Any], Awaitable[ResponseFields]]
RawHandler = Callable[[RequestContext, memoryview], Awaitable[ResponseChunks | None]]
OnResponse = Callable[[ResponseChunks | BaseException | None], None]
DirectHandler = Callable[[RequestContext, memoryview, OnResponse], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API. `flexible_from`: the first version with compact strings and tagged fields, also in the header.

    `rule`: who may call it. An API that `api_rules` does not list cannot be made.
    `pipelined`: a request may start before earlier ones of its connection have a response. Responses keep their order anyway.
    `long_poll`: a request may wait for long by design: a server that stops does not wait for it.
    """

    key: ApiKey
    versions: tuple[int, int]
    flexible_from: int
    control: ControlHandler | None = None
    raw: RawHandler | None = None
    direct: DirectHandler | None = None
    pipelined: bool = False
    long_poll: bool = False
    rule: ApiRule = field(init=False)
    name: str = field(init=False)
    """In Kafka's protocol."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "rule", rule_of(self.key))
        object.__setattr__(self, "name", self.key.api_name)

    def supports(self, version: int) -> bool:
        """Whether this version is implemented."""
        return self.versions[0] <= version <= self.versions[1]

    def is_flexible(self, version: int) -> bool:
        """Whether a request of this version has a flexible header."""
        return version >= self.flexible_from
