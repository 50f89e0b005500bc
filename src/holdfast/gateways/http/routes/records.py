"""Records: produce one, a batch, lines or raw bytes; consume, browse and follow them."""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Annotated, Literal

import msgspec
from litestar import get, post
from litestar.params import FromPath, HeaderParameter, QueryParameter
from litestar.response import Stream

from holdfast.client.admin.positions import AtOffset, Beginning, EndPosition, Position, parse_position
from holdfast.gateways.http.access import RequestAccess, access_of, require
from holdfast.gateways.http.asgi import header_value
from holdfast.gateways.http.log.records import (
    BatchedRecord,
    NewRecord,
    ReadRecord,
    from_record,
    line_records,
    line_values,
    to_record,
)
from holdfast.gateways.http.log.tail import parse_event_id, tail_events
from holdfast.gateways.http.middleware import BODY
from holdfast.gateways.http.routes.bodies import JsonAnswer, RequestBody, decoded_body, decoded_entries
from holdfast.gateways.http.routes.dependencies import HttpRequest
from holdfast.gateways.http.routes.log_dependencies import LOG_PATH, LogDependency, LogRoutes, log_routes
from holdfast.gateways.http.routes.topics import TOPIC_PATH
from holdfast.gateways.log_access.off_loop import off_loop
from holdfast.gateways.log_access.topic_tail import PARTITIONS_MAX
from holdfast.log.batches import Record
from holdfast.log.model import ACKS_ALL, ACKS_LEADER
from holdfast.log.topics import Topic
from holdfast.security.acls import Operation, ResourceType
from holdfast.security.identity import AuthenticationError
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.settings import MIB
from holdfast.vocabulary.tasks import gather_limited

NDJSON = "application/x-ndjson"
OCTETS = "application/octet-stream"
Acks = Literal["all", "leader"]
_ACKS = {"all": ACKS_ALL, "leader": ACKS_LEADER}
_RECORDS_MAX = 10_000
_READS_MAX = 8
_RECORD_BYTES = 64  # what a record costs beside its value
_LINES_SPEED = 8  # values that are appended as they are cost so much less than records that are made of JSON

MaxRecords = Annotated[int, QueryParameter(name="maxRecords", ge=1, le=_RECORDS_MAX)]
MaxBytes = Annotated[int, QueryParameter(name="maxBytes", ge=1, le=16 * MIB)]
WaitMs = Annotated[int, QueryParameter(name="waitMs", ge=0, le=50_000)]
IdempotencyKey = Annotated[str | None, HeaderParameter(name="Idempotency-Key")]
LastEventId = Annotated[str, HeaderParameter(name="Last-Event-ID")]
Partition = Annotated[int | None, QueryParameter(name="partition")]


class ProduceRequest(NewRecord, frozen=True, kw_only=True, gc=False):
    """One record and its topic. `acks`: whether it has to be as durable as its topic asks for, or on its leader's disk."""

    topic: str
    acks: Acks = "all"
    ack_mode: Acks | None = msgspec.field(default=None, name="ack_mode")


class ProduceBatchRequest(RequestBody, frozen=True, kw_only=True):
    """Records of one topic. Those of one partition are appended as a whole or not at all."""

    topic: str
    records: Annotated[Sequence[BatchedRecord], msgspec.Meta(max_length=_RECORDS_MAX)]
    acks: Acks = "all"
    ack_mode: Acks | None = msgspec.field(default=None, name="ack_mode")


_ONE = msgspec.json.Decoder(ProduceRequest)
_BATCH = msgspec.json.Decoder(ProduceBatchRequest)


class Produced(msgspec.Struct, frozen=True, kw_only=True):
    """Where a record is."""

    partition: int
    offset: int


class ProducedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Where the records are, in the order they were sent."""

    count: int
    offsets: Sequence[Produced]


class ProducedRange(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive records of a partition."""

    partition: int
    offset: int
    count: int


class ProducedLines(msgspec.Struct, frozen=True, kw_only=True):
    """Where the records are, as ranges."""

    count: int
    ranges: Sequence[ProducedRange]


class Consumed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Records of a partition. The next read begins at `nextOffset`; below `endOffset` there is more."""

    records: Sequence[ReadRecord]
    next_offset: int
    start_offset: int
    end_offset: int


@post(
    f"{LOG_PATH}/produce",
    tags=["records"],
    summary="Produce a record",
    status_code=200,
    opt={"body": ProduceRequest, "answer": Produced, "header": "Idempotency-Key"},
)
async def produce(request: HttpRequest) -> JsonAnswer:
    """Append a record; returns once it is durable. With an Idempotency-Key it is appended once, however often it is sent."""
    log, key = log_routes(request), header_value(request.scope, b"idempotency-key")
    body: bytes = request.scope[BODY]  # type: ignore[typeddict-item]
    data = await off_loop(len(body), lambda: decoded_body(_ONE, body))
    require(request, Operation.WRITE, ResourceType.TOPIC, data.topic)
    acks = _ACKS[data.ack_mode or data.acks]
    now_ms = log.backend.clock.now_ms()
    record = await off_loop(len(body), lambda: _named(data, now_ms))
    found = await log.producing.append(data.topic, [record], [data.partition], acks=acks, idempotency_key=key)
    ((partition, offset),) = found.offsets.items()
    return JsonAnswer(Produced(partition=partition, offset=offset))


@post(
    f"{LOG_PATH}/produce/batch",
    tags=["records"],
    summary="Produce records",
    status_code=200,
    opt={"body": ProduceBatchRequest},
)
async def produce_batch(log: LogDependency, request: HttpRequest, key: IdempotencyKey = None) -> ProducedBatch:
    """Append records; returns once all are durable."""
    now_ms = log.backend.clock.now_ms()
    body = await request.body()

    def read() -> tuple[ProduceBatchRequest, list[Record]]:
        data = decoded_entries(_BATCH, body, "records", _RECORDS_MAX)
        return data, [to_record(number, each, now_ms) for number, each in enumerate(data.records)]

    data, records = await off_loop(len(body), read)
    require(request, Operation.WRITE, ResourceType.TOPIC, data.topic)
    found = await log.producing.append(
        data.topic,
        records,
        [each.partition for each in data.records],
        acks=_ACKS[data.ack_mode or data.acks],
        idempotency_key=key,
    )
    offsets = {
        at: Produced(partition=partition, offset=found.offsets[partition] + number)
        for partition, members in found.members.items()
        for number, at in enumerate(members)
    }
    return ProducedBatch(count=len(records), offsets=[offsets[at] for at in range(len(records))])


@post(
    f"{TOPIC_PATH}/messages",
    tags=["records"],
    summary="Produce lines or raw bytes",
    status_code=200,
    opt={"media_types": (NDJSON, OCTETS)},
)
async def produce_raw(
    log: LogDependency,
    request: HttpRequest,
    topic: FromPath[str],
    partition: Partition = None,
    record_key: Annotated[str | None, QueryParameter(name="key")] = None,
    lines: Annotated[Literal["values", "records"], QueryParameter(name="lines")] = "values",
    acks: Annotated[Acks, QueryParameter(name="acks")] = "all",
    key: IdempotencyKey = None,
) -> ProducedLines:
    """Append the body. As application/x-ndjson each line is a value, or with lines=records a record with key, value and so on.

    As application/octet-stream the whole body is one value. `key` and `partition` are those of every record that has none.
    """
    now_ms = log.backend.clock.now_ms()
    body = await request.body()
    common = None if record_key is None else record_key.encode()
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()

    if media == NDJSON:
        if (count := body.count(b"\n")) > _RECORDS_MAX:
            raise InvalidError("body", f"{count} lines", f"at most {_RECORDS_MAX} lines")
        if lines == "values" and key is None:
            values = await off_loop(len(body) // _LINES_SPEED, lambda: line_values(body))
            if not values:
                return ProducedLines(count=0, ranges=[])
            number, offset = await log.producing.append_values(
                topic, values, partition, key=common, timestamp_ms=now_ms, acks=_ACKS[acks]
            )
            appended = ProducedRange(partition=number, offset=offset, count=len(values))
            return ProducedLines(count=len(values), ranges=[appended])
    elif media != OCTETS:
        raise InvalidError("content-type", media, f"{NDJSON} or {OCTETS}; JSON goes to {LOG_PATH}/produce")

    def read() -> tuple[list[Record], list[int | None]]:
        if media == OCTETS:
            return [Record(0, now_ms, common, body)], [partition]
        if lines == "values":
            records = [Record(at, now_ms, common, bytes(value)) for at, value in enumerate(line_values(body))]
            return records, [partition] * len(records)
        given = line_records(body)
        records = [to_record(number, each, now_ms) for number, each in enumerate(given)]
        records = [each if each.key is not None else each._replace(key=common) for each in records]
        return records, [partition if each.partition is None else each.partition for each in given]

    records, partitions = await off_loop(len(body), read)
    found = await log.producing.append(topic, records, partitions, acks=_ACKS[acks], idempotency_key=key)
    ranges = [
        ProducedRange(partition=partition, offset=offset, count=len(found.members[partition]))
        for partition, offset in sorted(found.offsets.items())
    ]
    return ProducedLines(count=len(records), ranges=ranges)


@get(f"{LOG_PATH}/consume", tags=["records"], summary="Consume a partition")
async def consume(
    log: LogDependency,
    request: HttpRequest,
    topic: Annotated[str, QueryParameter(name="topic")],
    partition: Annotated[int, QueryParameter(name="partition")] = 0,
    offset: Annotated[str, QueryParameter(name="offset")] = "earliest",
    max_records: MaxRecords = 100,
    max_bytes: MaxBytes = MIB,
    wait_ms: WaitMs = 0,
) -> Consumed:
    """Records from an offset on; `earliest`, `latest`, a time and a duration such as `-1h` are offsets, too.

    At the end it waits up to `waitMs` for the next record.
    """
    require(request, Operation.READ, ResourceType.TOPIC, topic)
    found = await log.reading.topic(topic, partition)
    start = await log.reading.offset(found, partition, _position(log, offset))
    read = await _consumed(log, found, partition, start, max_records, max_bytes)
    if not wait_ms or read.next_offset != start:
        return read
    waiting = _consumed(log, found, partition, start, max_records, max_bytes, wait_ms)
    access = access_of(request)
    ended = partial(access.ended, Operation.READ, ResourceType.TOPIC, topic) if access is not None else None
    waited = await log.waits.run(waiting, request.receive, ended)
    if access is not None and not access.is_valid(Operation.READ, ResourceType.TOPIC, topic):
        raise AuthenticationError("the credentials were revoked while the request waited")
    return waited or read


@get(f"{TOPIC_PATH}/messages", tags=["records"], summary="Browse a topic")
async def messages(
    log: LogDependency,
    topic: FromPath[str],
    partition: Partition = None,
    offset: Annotated[str, QueryParameter(name="offset")] = "",
    max_records: Annotated[int, QueryParameter(name="limit", ge=1, le=1_000)] = 100,
) -> list[ReadRecord]:
    """Records of a partition from an offset on, or without one the last ones, of one partition or of all, oldest first."""
    found = await log.reading.topic(topic, partition)
    chosen = range(found.partitions) if partition is None else (partition,)
    if len(chosen) > PARTITIONS_MAX:
        raise InvalidError("partition", "none", f"given: topic {topic} has more than {PARTITIONS_MAX}")
    position: Position | None = _position(log, offset) if offset else None

    async def read(number: int) -> Sequence[ReadRecord]:
        if position is None:
            return await _last(log, found, number, max_records)
        start = await log.reading.offset(found, number, position)
        return (await _consumed(log, found, number, start, max_records, MIB)).records

    lists = await gather_limited(read, chosen, _READS_MAX)
    shown = sorted((each for records in lists for each in records), key=lambda each: (each.timestamp, each.offset))
    return shown[:max_records] if position is not None else shown[-max_records:]


@get(f"{TOPIC_PATH}/tail", tags=["records"], summary="Follow a topic", media_type="text/event-stream")
async def tail(
    log: LogDependency,
    request: HttpRequest,
    topic: FromPath[str],
    partition: Partition = None,
    offset: Annotated[str, QueryParameter(name="offset")] = "latest",
    last_event_id: LastEventId = "",
) -> Stream:
    """Server-sent events, one for each record that becomes visible. Ends after a while: connect again with Last-Event-ID."""
    found = await log.reading.topic(topic, partition)
    chosen = range(found.partitions) if partition is None else (partition,)
    if len(chosen) > PARTITIONS_MAX:
        raise InvalidError("partition", "none", f"given: topic {topic} has more than {PARTITIONS_MAX}")
    if len(log.tails) >= log.settings.tails_max:
        raise UnavailableError("tail", f"{log.settings.tails_max} are open, which is the limit (http.tails_max)")
    known = parse_event_id(last_event_id)
    position = _position(log, offset)
    positions = {
        number: known[number] if number in known else await log.reading.offset(found, number, position)
        for number in chosen
    }
    access = access_of(request)
    return Stream(_counted(log, found, positions, access), media_type="text/event-stream")


async def _counted(
    log: LogRoutes, topic: Topic, positions: dict[int, int], access: RequestAccess | None
) -> AsyncIterator[bytes]:
    if len(log.tails) >= log.settings.tails_max:
        return  # others were faster; the client connects again
    me = object()
    log.tails.add(me)
    clock = log.backend.clock
    try:
        events = tail_events(
            log.reading,
            topic,
            positions,
            clock=clock,
            until_ms=clock.boot_ms() + log.settings.request_ms * 0.8,
            stop=log.stop,
            ended=None if access is None else partial(access.ended, Operation.READ, ResourceType.TOPIC, topic.name),
        )
        with log.waits.counted():
            async for event in events:
                yield event
    finally:
        log.tails.discard(me)


async def _last(log: LogRoutes, topic: Topic, partition: int, count: int) -> Sequence[ReadRecord]:
    """The last records of a partition: as many as asked for, or as few as a read of 1 MiB has room for."""
    first = await log.reading.offset(topic, partition, Beginning())
    end = await log.reading.offset(topic, partition, EndPosition())
    while True:
        read = await _consumed(log, topic, partition, max(first, end - count), count, MIB)
        if read.next_offset >= end or count == 1:
            return read.records
        count //= 2  # they are large: it did not get to the end


async def _consumed(
    log: LogRoutes, topic: Topic, partition: int, offset: int, max_records: int, max_bytes: int, wait_ms: int = 0
) -> Consumed:
    found = await log.reading.read(
        topic, partition, offset, records_max=max_records, bytes_max=max_bytes, wait_ms=wait_ms
    )
    size_bytes = sum(_RECORD_BYTES + len(each.value or b"") for each in found.records)
    shown = await off_loop(size_bytes, lambda: [from_record(partition, record) for record in found.records])
    return Consumed(
        records=shown,
        next_offset=found.next_offset,
        start_offset=found.start_offset,
        end_offset=found.high_watermark,
    )


def _position(log: LogRoutes, text: str) -> Position:
    position = parse_position(text, option="offset", now_ms=log.backend.clock.now_ms())
    if isinstance(position, AtOffset) and position.offset >= 1 << 63:
        raise InvalidError("offset", text, "below 2^63")
    return position


def _named(given: NewRecord, now_ms: int) -> Record:
    """The record of a request that has one: its errors name the field alone."""
    try:
        return to_record(0, given, now_ms)
    except InvalidError as error:
        raise InvalidError(error.what.removeprefix("records[0]."), error.given, error.allowed) from None


HANDLERS = (produce, produce_batch, produce_raw, consume, messages, tail)
