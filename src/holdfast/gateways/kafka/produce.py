"""Produce (0), versions 3 to 13. By hand: record batches go from the frame to the log as they are.

Versions 0 to 2 carried older message formats; no current client sends them. Not implemented: transactions (a transactional id is
rejected).

A batch is appended whole or not at all, as in Kafka. From version 8 on the response names the records at fault (KIP-467); clients
fail those with their message, and the others of the batch with one that says so.

Requests of one connection are pipelined, so that one fsync serves many; they start in the order of arrival, which is all an
idempotent producer needs. With acks=0 there is no response: an error closes the connection.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.gateways.kafka.api import Api, OnResponse, RequestContext
from holdfast.gateways.kafka.errors import RecordError, code_of, record_errors
from holdfast.gateways.kafka.leaders import current_leader_tags, endpoints_tags
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.enums import Acks
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import NO_OFFSET, NO_TIMESTAMP
from holdfast.kafka.wire import INT32, NO_TAGS, MalformedRequestError, WireReader, encode_length, encode_string
from holdfast.log.pending_produce import ProduceResult
from holdfast.security.acls import Operation, ResourceType
from holdfast.vocabulary.errors import HoldfastError
from holdfast.vocabulary.native import native

TOPIC_IDS_FROM: Final = 13
_LEADERS_FROM: Final = 10
_MESSAGES_FROM: Final = 8
_START_FROM: Final = 5
_CURRENT_LEADER_TAG: Final = 0

_RESULT: Final = Struct(">ihqq")  # partition, error code, base offset, append time
_BASE_OFFSET_AT: Final = 6
_START: Final = Struct(">q")
_ACKS: Final = (int(Acks.ALL), int(Acks.NONE), int(Acks.LEADER))


class PartitionData(NamedTuple):
    """The records for one partition."""

    topic: str | None  # None: an unknown topic id
    number: int
    records: memoryview | None


class PartitionResult(NamedTuple):
    """The outcome for one partition."""

    data: PartitionData
    code: ErrorCode
    base_offset: int = NO_OFFSET
    append_time_ms: int = NO_TIMESTAMP
    start_offset: int = NO_OFFSET
    message: str | None = None
    record_errors: Sequence[RecordError] = ()


ProducedTopics = list[tuple[str | UUID, list[PartitionData]]]


def produce(call: RequestContext, body: memoryview, on_response: OnResponse) -> None:
    """Append to all partitions of the request concurrently."""
    transactional_id, acks, timeout_ms, topics = _read(call, body)
    rejected = _reject(transactional_id, acks)
    if rejected is None:
        start_produce(call, topics, acks=acks, timeout_ms=timeout_ms, on_response=on_response)
        return
    code, message = rejected
    partitions = [data for _, listed in topics for data in listed]
    pending = _PendingProduce(call, topics, partitions, acks, on_response)
    for at, data in enumerate(partitions):
        pending.settle(at, PartitionResult(data, code, message=message))
    pending.wait(0)


def start_produce(
    call: RequestContext, topics: ProducedTopics, *, acks: int, timeout_ms: int, on_response: OnResponse
) -> None:
    """Append to all partitions of a request that was read."""
    partitions = [data for _, listed in topics for data in listed]
    pending = _PendingProduce(call, topics, partitions, acks, on_response)
    for at in range(len(partitions)):
        pending.begin(at)
    pending.wait(min(timeout_ms, call.backend.settings.produce_timeout_max_ms))


def _read(call: RequestContext, body: memoryview) -> tuple[str | None, int, int, ProducedTopics]:
    """Transactional id, acks, timeout and records."""
    flexible, by_id = call.api.is_flexible(call.version), call.version >= TOPIC_IDS_FROM
    entries_max = call.backend.settings.produce_entries_max
    scanned = native.produce(body, flexible, by_id, entries_max) if native is not None else None
    if scanned is None:  # the slow way, whose errors name the field
        reader = WireReader(body, flexible=flexible, entries_max=entries_max)
        return reader.string(), reader.int16(), reader.int32(), _topics(call, reader, by_id=by_id)
    transactional_id, acks, timeout_ms, listed = scanned
    topics: ProducedTopics = []
    for name, places in listed:
        named = UUID(bytes=name) if by_id else name
        topic = call.backend.cluster.name_of(named.hex) if isinstance(named, UUID) else named
        partitions = [
            PartitionData(topic, number, body[start:end] if start >= 0 else None) for number, start, end in places
        ]
        topics.append((named, partitions))
    return transactional_id, acks, timeout_ms, topics


def _topics(call: RequestContext, reader: WireReader, *, by_id: bool) -> ProducedTopics:
    topics: ProducedTopics = []
    for _ in range(reader.array()):
        named: str | UUID = reader.uuid() if by_id else reader.text()
        topic = call.backend.cluster.name_of(named.hex) if isinstance(named, UUID) else named
        partitions = []
        for _ in range(reader.array()):
            partitions.append(PartitionData(topic, reader.int32(), reader.bytes()))
            reader.tags()
        topics.append((named, partitions))
        reader.tags()
    reader.tags()
    return topics


def _reject(transactional_id: str | None, acks: int) -> tuple[ErrorCode, str] | None:
    """Why the whole request is rejected, if it is."""
    if transactional_id is not None:
        return ErrorCode.INVALID_REQUEST, "transactions are not supported"
    if acks not in _ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS, f"invalid acks {acks}: must be 0, 1 or -1"
    return None


def may_produce(call: RequestContext, topic: str) -> bool:
    """Whether the client may write to the topic."""
    return call.allows(Operation.WRITE, ResourceType.TOPIC, topic)


class _PendingProduce:
    """A request until every append is done, or until its timeout."""

    __slots__ = ("_acks", "_call", "_cancels", "_left", "_on_response", "_outcomes", "_partitions", "_timer", "_topics")

    def __init__(
        self,
        call: RequestContext,
        topics: ProducedTopics,
        partitions: list[PartitionData],
        acks: int,
        on_response: OnResponse,
    ) -> None:
        self._call, self._topics, self._partitions, self._acks, self._on_response = (
            call,
            topics,
            partitions,
            acks,
            on_response,
        )
        self._outcomes: list[PartitionResult | None] = [None] * len(partitions)
        self._left = len(partitions) + 1  # one for `wait`: no response before every append has begun
        self._cancels: list[Callable[[], object]] = []  # of what has to be waited for
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, at: int) -> None:
        """Append, at once if possible; an append that has to wait is queued now, before later requests."""
        data, log = self._partitions[at], self._call.backend.log
        if data.topic is None:
            self.settle(at, PartitionResult(data, ErrorCode.UNKNOWN_TOPIC_ID))
            return
        if self._call.access is not None and not may_produce(self._call, data.topic):
            denied = PartitionResult(data, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message="not authorized to write")
            self.settle(at, denied)
            return
        if data.records is None:
            self.settle(at, PartitionResult(data, ErrorCode.INVALID_RECORD, message="no records"))
            return
        try:
            begun = log.begin_produce(data.topic, data.number, data.records, self._call.span)
        except HoldfastError as error:
            self.settle(at, failed_result(data, error))
            return
        if begun is not None and begun.appended is not None:
            cancel = begun.notify(partial(self._on_result, at), acks=self._acks)
            if cancel is not None:
                self._cancels.append(cancel)
            return
        task: asyncio.Future[ProduceResult]
        if begun is None:
            task = asyncio.ensure_future(log.produce(data.topic, data.number, data.records, acks=self._acks))
            self._cancels.append(task.cancel)
        else:
            task = begun.start(acks=self._acks)
            self._cancels.append(begun.cancel)
        task.add_done_callback(partial(self._finished, at))

    def wait(self, timeout_ms: int) -> None:
        """Every append has begun: respond once all are done, or after `timeout_ms`."""
        if self._left > 1:
            after_s = max(0, timeout_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(after_s, self._expired, timeout_ms)
        self._count_down()

    def settle(self, at: int, outcome: PartitionResult) -> None:
        """Note the outcome of one append."""
        if self._outcomes[at] is None:
            self._outcomes[at] = outcome
            self._count_down()

    def _on_result(self, at: int, result: ProduceResult | BaseException) -> None:
        data = self._partitions[at]
        if isinstance(result, ProduceResult):
            done = PartitionResult(data, ErrorCode.NONE, result.base_offset, result.append_time_ms, result.start_offset)
            self.settle(at, done)
        elif isinstance(result, HoldfastError):
            self.settle(at, failed_result(data, result))
        else:
            self._respond(result)

    def _finished(self, at: int, task: "asyncio.Future[ProduceResult]") -> None:
        if not task.cancelled():
            self._on_result(at, task.exception() or task.result())

    def _count_down(self) -> None:
        self._left -= 1
        if not self._left:
            self._respond(None)

    def _expired(self, timeout_ms: int) -> None:
        """Appends that are not done time out; their records may become durable all the same."""
        for at, data in enumerate(self._partitions):
            self.settle(at, timed_out_result(data, timeout_ms))

    def _respond(self, error: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for cancel in self._cancels:
            cancel()
        outcomes = [outcome for outcome in self._outcomes if outcome is not None]
        if error is None and self._acks == 0:
            error = next((UnackedError(each) for each in outcomes if each.code is not ErrorCode.NONE), None)
        if error is not None or self._acks == 0:
            self._on_response(error)
        else:
            self._on_response((encode_results(self._call, self._topics, outcomes),))


class UnackedError(MalformedRequestError):
    """With acks=0 there is no response: closing the connection is the only way to report an error."""

    def __init__(self, outcome: PartitionResult) -> None:
        super().__init__("records with acks=0", f"{outcome.code.name} {outcome.message or ''}".strip(), "valid")

    def __str__(self) -> str:
        return f"records with acks=0 rejected: {self.given}"


def failed_result(data: PartitionData, error: HoldfastError) -> PartitionResult:
    """The outcome of an append that raised."""
    code = code_of(error)
    if code is ErrorCode.INVALID_REQUEST:  # the request is well formed; its records break a rule of the topic
        code = ErrorCode.INVALID_RECORD
    return PartitionResult(data, code, message=str(error), record_errors=record_errors(error))


def timed_out_result(data: PartitionData, timeout_ms: int) -> PartitionResult:
    """The outcome of an append that was not durable in time."""
    return PartitionResult(data, ErrorCode.REQUEST_TIMED_OUT, message=f"not durable after {timeout_ms} ms")


def base_offset_at(call: RequestContext, named: str | UUID) -> int:
    """Where the base offset is in the body of a response for one partition of the topic."""
    flexible = call.api.is_flexible(call.version)
    name = named.bytes if isinstance(named, UUID) else encode_string(named, flexible=flexible)
    return 2 * len(encode_length(1, flexible=flexible)) + len(name) + _BASE_OFFSET_AT


def encode_results(call: RequestContext, topics: ProducedTopics, outcomes: Sequence[PartitionResult]) -> bytes:
    """The body of a response."""
    version, flexible = call.version, call.api.is_flexible(call.version)
    leaders: set[int] = set()
    out = bytearray(encode_length(len(topics), flexible=flexible))
    remaining = iter(outcomes)
    for named, partitions in topics:
        out += named.bytes if isinstance(named, UUID) else encode_string(named, flexible=flexible)
        out += encode_length(len(partitions), flexible=flexible)
        for _ in partitions:
            outcome = next(remaining)
            out += _RESULT.pack(outcome.data.number, outcome.code, outcome.base_offset, outcome.append_time_ms)
            if version >= _START_FROM:
                out += _START.pack(outcome.start_offset)
            if version >= _MESSAGES_FROM:
                out += _encode_record_errors(outcome.record_errors, flexible=flexible)
                out += encode_string(outcome.message, flexible=flexible)
            if flexible:
                out += _leader_tags(call, outcome, leaders)
        if flexible:
            out += NO_TAGS
    out += INT32.pack(call.throttle_ms)
    if flexible:
        out += endpoints_tags(call.backend, leaders)
    return bytes(out)


def _encode_record_errors(errors: Sequence[RecordError], *, flexible: bool) -> bytes:
    out = bytearray(encode_length(len(errors), flexible=flexible))
    for number, message in errors:
        out += INT32.pack(number) + encode_string(message, flexible=flexible)
        if flexible:
            out += NO_TAGS
    return bytes(out)


def _leader_tags(call: RequestContext, outcome: PartitionResult, leaders: set[int]) -> bytes:
    """The leader of the partition, if it is another node."""
    topic = outcome.data.topic
    if outcome.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER or topic is None or call.version < _LEADERS_FROM:
        return NO_TAGS
    return current_leader_tags(call.backend, topic, outcome.data.number, tag=_CURRENT_LEADER_TAG, leaders=leaders)


PRODUCE_API: Final = Api(key=ApiKey.PRODUCE, versions=(3, 13), flexible_from=9, direct=produce, pipelined=True)
APIS: Final = (PRODUCE_API,)
