"""Produce (0), versions 3 to 13. By hand: record batches go from the frame to the log as the bytes they are.

Versions 0 to 2 carried older message formats; nobody current sends them. Not implemented: transactions (a transactional id is
refused), throttling.

Requests of one connection overlap, so that one fsync serves many; each begins in the order of arrival, which is all an idempotent
producer needs. With acks=0 there is no answer, so a refusal can only be told by closing the connection.
"""

import asyncio
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple
from uuid import UUID

from holdfast.gateways.kafka.api import Api, Call, Chunks
from holdfast.gateways.kafka.codes import Code, code_of
from holdfast.gateways.kafka.leadership import NOBODY, endpoints_tags, leader_field, leader_of
from holdfast.gateways.kafka.wire import INT32, NO_TAGS, MalformedRequestError, Reader, array_length, string, tagged
from holdfast.log.service import Produced, Producing
from holdfast.vocabulary.errors import HoldfastError

_TOPIC_IDS_FROM: Final = 13
_LEADERS_FROM: Final = 10
_MESSAGES_FROM: Final = 8
_START_FROM: Final = 5

_PLACED: Final = Struct(">ihqq")  # partition, error code, base offset, append time
_START: Final = Struct(">q")
_ACKS: Final = (-1, 0, 1)


class _Ask(NamedTuple):
    """What is to be appended to one partition."""

    topic: str | None  # None: nobody has this id
    number: int
    records: memoryview | None


class _Outcome(NamedTuple):
    """What became of it."""

    ask: _Ask
    code: Code
    base_offset: int = -1
    append_time_ms: int = -1
    start_offset: int = -1
    message: str | None = None


async def produce(call: Call, body: memoryview) -> Chunks | None:
    """Append to every partition named, side by side."""
    reader = Reader(body, flexible=call.api.is_flexible(call.version))
    transactional_id, acks, timeout_ms = reader.string(), reader.int16(), reader.int32()
    topics = _topics(call, reader)
    asks = [ask for _, listed in topics for ask in listed]
    refused = _refused(transactional_id, acks)
    if refused is not None:
        code, message = refused
        outcomes = [_Outcome(ask, code, message=message) for ask in asks]
    else:
        appends = [_begin(call, ask, acks) for ask in asks]
        outcomes = await _settled(appends, acks, min(timeout_ms, call.backend.settings.produce_timeout_max_ms))
    if acks == 0:
        for outcome in outcomes:
            if outcome.code is not Code.NONE:
                raise MalformedRequestError(
                    "records sent with acks=0", f"{outcome.code.name} {outcome.message or ''}".strip(), "accepted ones"
                )
        return None
    return (_encode(call, topics, outcomes),)


def _topics(call: Call, reader: Reader) -> list[tuple[str | UUID, list[_Ask]]]:
    by_id = call.version >= _TOPIC_IDS_FROM
    topics: list[tuple[str | UUID, list[_Ask]]] = []
    for _ in range(reader.array()):
        named: str | UUID = reader.uuid() if by_id else reader.text()
        topic = call.backend.cluster.name_of(named.hex) if isinstance(named, UUID) else named
        asks = []
        for _ in range(reader.array()):
            asks.append(_Ask(topic, reader.int32(), reader.bytes()))
            reader.tags()
        topics.append((named, asks))
        reader.tags()
    reader.tags()
    return topics


def _refused(transactional_id: str | None, acks: int) -> tuple[Code, str] | None:
    """Why nothing of the request can be done, if so."""
    if transactional_id is not None:
        return Code.INVALID_REQUEST, "transactions are not offered"
    if acks not in _ACKS:
        return Code.INVALID_REQUIRED_ACKS, f"acks is {acks}, allowed are 0, 1 and -1"
    return None


def _begin(call: Call, ask: _Ask, acks: int) -> "_Append":
    """Append if nothing is in the way."""
    if ask.topic is None:
        return _Append(ask, outcome=_Outcome(ask, Code.UNKNOWN_TOPIC_ID))
    if ask.records is None:
        return _Append(ask, outcome=_Outcome(ask, Code.INVALID_RECORD, message="no records"))
    log = call.backend.log
    try:
        begun = log.begin_produce(ask.topic, ask.number, ask.records)
    except HoldfastError as error:
        return _Append(ask, outcome=_failed(ask, error))
    if begun is None:
        return _Append(ask, task=asyncio.ensure_future(log.produce(ask.topic, ask.number, ask.records, acks=acks)))
    if begun.appended is None:  # it queues up now, before anything that comes later
        return _Append(ask, task=asyncio.ensure_future(begun.finish(acks=acks)))
    return _Append(ask, begun=begun)


@dataclass(slots=True)
class _Append:
    """One partition's part of a request: decided, appended, or on its way in a task of its own."""

    ask: _Ask
    outcome: _Outcome | None = None
    begun: Producing | None = None
    task: asyncio.Future[Produced] | None = None

    async def settled(self, acks: int) -> _Outcome:
        """What became of it, once that is known."""
        if self.outcome is not None:
            return self.outcome
        try:
            if self.task is not None:
                produced = await self.task
            else:
                assert self.begun is not None
                produced = await self.begun.finish(acks=acks)
        except HoldfastError as error:
            return _failed(self.ask, error)
        return _Outcome(self.ask, Code.NONE, produced.base_offset, produced.append_time_ms, produced.start_offset)


def _failed(ask: _Ask, error: HoldfastError) -> _Outcome:
    code = code_of(error)
    if code is Code.INVALID_REQUEST:  # the request is well formed; what it carries breaks a rule of the topic
        code = Code.INVALID_RECORD
    return _Outcome(ask, code, message=str(error))


async def _settled(appends: list[_Append], acks: int, timeout_ms: int) -> list[_Outcome]:
    """The outcomes in order. What is not known in time is a time-out; the records may be there all the same."""
    outcomes: list[_Outcome] = []
    try:
        async with asyncio.timeout(max(0, timeout_ms) / 1000):
            for each in appends:
                outcomes.append(await each.settled(acks))  # noqa: PERF401 - those known before a time-out count
    except TimeoutError:
        late = appends[len(outcomes) :]
        outcomes += [
            _Outcome(each.ask, Code.REQUEST_TIMED_OUT, message=f"not durable in {timeout_ms} ms") for each in late
        ]
    finally:
        for each in appends:
            if each.task is not None and not each.task.done():
                each.task.cancel()
    return outcomes


def _encode(call: Call, topics: list[tuple[str | UUID, list[_Ask]]], outcomes: list[_Outcome]) -> bytes:
    version, flexible = call.version, call.api.is_flexible(call.version)
    leaders: set[int] = set()
    out = bytearray(array_length(len(topics), flexible=flexible))
    remaining = iter(outcomes)
    for named, asks in topics:
        out += named.bytes if isinstance(named, UUID) else string(named, flexible=flexible)
        out += array_length(len(asks), flexible=flexible)
        for _ in asks:
            outcome = next(remaining)
            out += _PLACED.pack(outcome.ask.number, outcome.code, outcome.base_offset, outcome.append_time_ms)
            if version >= _START_FROM:
                out += _START.pack(outcome.start_offset)
            if version >= _MESSAGES_FROM:
                out += array_length(0, flexible=flexible) + string(outcome.message, flexible=flexible)
            if flexible:
                out += _leader_tags(call, outcome, leaders)
        if flexible:
            out += NO_TAGS
    out += INT32.pack(0)  # throttle time
    if flexible:
        out += endpoints_tags(call.backend, leaders)
    return bytes(out)


def _leader_tags(call: Call, outcome: _Outcome, leaders: set[int]) -> bytes:
    """Who leads the partition, if it is not us."""
    topic = outcome.ask.topic
    if outcome.code is not Code.NOT_LEADER_OR_FOLLOWER or topic is None or call.version < _LEADERS_FROM:
        return NO_TAGS
    leader = leader_of(call.backend.cluster, topic, outcome.ask.number)
    if leader.node == NOBODY:
        return NO_TAGS
    leaders.add(leader.node)
    return tagged({0: leader_field(leader)})


APIS: Final = (Api(key=0, name="Produce", versions=(3, 13), flexible_from=9, raw=produce, overlaps=True),)
