"""Committed offsets of groups.

    OffsetCommit   8   versions 2–10   (topics by id from version 10 on)
    OffsetFetch    9   versions 1–10   (several groups from version 8 on, topics by id from version 10 on)
    OffsetDelete  47   version 0

Not implemented: the retention time of OffsetCommit before version 5 (the server's setting holds for every group, as it does from
version 5 on); offsets inside transactions (every committed offset is stable); members of the newer group protocol (the member
fields of OffsetFetch are ignored, as for classic groups).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.errors import group_code_of, not_authorized
from holdfast.groups.model import CommittedOffset
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.codec import ZERO_UUID
from holdfast.kafka.error_codes import ErrorCode
from holdfast.kafka.special_offsets import NO_EPOCH, NO_OFFSET
from holdfast.log.topics import UnknownTopicError
from holdfast.security.acls import Operation, ResourceType
from holdfast.vocabulary.batching import in_batches
from holdfast.vocabulary.errors import HoldfastError, InvalidError
from holdfast.vocabulary.types import TopicPartition

_NO_COMMITTED_OFFSET: Final = CommittedOffset(offset=NO_OFFSET)
_FIRST_WITH_ERROR: Final = 2  # of OffsetFetch: one code for the whole response
_FIRST_WITH_GROUPS: Final = 8
_FIRST_WITH_IDS: Final = 10
_TOGETHER: Final = 500  # partitions


@dataclass(frozen=True, slots=True)
class _RequestedTopic:
    """A topic of a request; `code` is its error, if it has one."""

    name: str
    topic_id: UUID
    partitions: tuple[Any, ...]
    code: ErrorCode = ErrorCode.NONE


async def offset_commit(call: RequestContext, request: Any) -> ResponseFields:
    """Commit offsets; the response is sent once they are durable."""
    backend = call.backend
    requested = await _all_requested(call, Operation.READ, request.topics)
    offsets = {}
    async for topic in call.each(requested):
        known = backend.cluster.topic(topic.name)
        async for each in call.each(topic.partitions):
            if topic.code is ErrorCode.NONE and (known is None or 0 <= each.partition_index < known.partitions):
                offsets[TopicPartition(topic.name, each.partition_index)] = CommittedOffset(
                    offset=each.committed_offset,
                    leader_epoch=getattr(each, "committed_leader_epoch", NO_EPOCH),
                    metadata=each.committed_metadata or "",
                    topic_id="" if topic.topic_id == ZERO_UUID else topic.topic_id.hex,
                )
    codes = await _commit(call, request, offsets)
    call.begin_turn()
    return {
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "error_code": topic.code
                        or codes.get(
                            TopicPartition(topic.name, each.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        ),
                    }
                    async for each in call.each(topic.partitions)
                ],
            }
            async for topic in call.each(requested)
        ]
    }


async def _commit(
    call: RequestContext, request: Any, offsets: dict[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, ErrorCode]:
    if not call.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return dict.fromkeys(offsets, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    try:
        results = await call.backend.groups.commit_offsets(
            request.group_id,
            offsets,
            member_id=request.member_id,
            generation=request.generation_id_or_member_epoch,
            instance_id=getattr(request, "group_instance_id", None),
        )
    except HoldfastError as error:
        return dict.fromkeys(offsets, group_code_of(error))
    return {
        partition: ErrorCode.NONE if error is None else group_code_of(error) for partition, error in results.items()
    }


async def offset_fetch(call: RequestContext, request: Any) -> ResponseFields:
    """Committed offsets: of one group, or of several from version 8 on."""
    if call.version >= _FIRST_WITH_GROUPS:
        groups = call.each(_distinct(request.groups))
        return {"groups": [await _fetch(call, group.group_id, group.topics) async for group in groups]}
    return await _fetch(call, request.group_id, request.topics)


def _distinct(groups: Iterable[Any]) -> Iterator[Any]:
    """Each group that is asked for all its offsets once: for a few bytes of the request, they may be megabytes of the response."""
    whole: set[str] = set()
    for each in groups:
        if each.topics is not None or each.group_id not in whole:
            yield each
        if each.topics is None:
            whole.add(each.group_id)


async def _fetch(call: RequestContext, group_id: str, topics: Any) -> dict[str, object]:
    backend = call.backend
    requested = None
    if topics is not None:
        requested = await _all_requested(call, Operation.DESCRIBE, topics, must_exist=False)
    code, found = ErrorCode.NONE, {}
    try:
        if not call.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            raise not_authorized(ResourceType.GROUP)
        found = await _found(call, group_id, requested)
    except HoldfastError as error:
        code = group_code_of(error)
    if requested is None:
        topic_names = dict.fromkeys(each.topic for each in found)
        visible = {name for name in topic_names if call.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)}
        listed = [each async for each in call.each(found) if each.topic in visible]
        requested = _all(backend, listed, named_by_id=call.version >= _FIRST_WITH_IDS)
    elif code is not ErrorCode.NONE and call.version >= _FIRST_WITH_ERROR:
        requested = []
    return {
        "group_id": group_id,
        "error_code": code,
        "topics": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partitions": [
                    _fetched(
                        number, found.get(TopicPartition(topic.name, number), _NO_COMMITTED_OFFSET), topic.code or code
                    )
                    async for number in call.each(topic.partitions)
                ],
            }
            async for topic in call.each(requested)
        ],
    }


async def _found(
    call: RequestContext, group_id: str, requested: list[_RequestedTopic] | None
) -> dict[TopicPartition, CommittedOffset]:
    """The committed offsets of these topics, or of all."""
    groups = call.backend.groups
    if requested is None:
        return dict(await groups.fetch_offsets(group_id))
    known = (topic for topic in requested if not topic.code)
    wanted = (TopicPartition(topic.name, number) for topic in known for number in topic.partitions)
    found = dict(await groups.fetch_offsets(group_id, ()))  # whether it may be asked at all
    async for some in call.each(in_batches(wanted, _TOGETHER)):
        found.update(await groups.fetch_offsets(group_id, some))
    return found


def _fetched(number: int, offset: CommittedOffset, code: ErrorCode) -> dict[str, object]:
    return {
        "partition_index": number,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
        "error_code": code,
    }


def _all(backend: KafkaBackend, found: Iterable[TopicPartition], *, named_by_id: bool) -> list[_RequestedTopic]:
    """The topics of the offsets found."""
    numbers: dict[str, list[int]] = {}
    for partition in sorted(found):
        numbers.setdefault(partition.topic, []).append(partition.number)
    topics = []
    for name, listed in numbers.items():
        topic = backend.cluster.topic(name)
        if topic is not None or not named_by_id:
            topics.append(_RequestedTopic(name, ZERO_UUID if topic is None else UUID(topic.id), tuple(listed)))
    return topics


async def offset_delete(call: RequestContext, request: Any) -> ResponseFields:
    """Delete offsets of topics the group is not subscribed to."""
    backend = call.backend
    if not call.allows(Operation.DELETE, ResourceType.GROUP, request.group_id):
        return {"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED, "topics": ()}
    requested = await _all_requested(call, Operation.READ, request.topics)
    known = (topic for topic in requested if not topic.code)
    partitions = (TopicPartition(topic.name, each.partition_index) for topic in known for each in topic.partitions)
    codes: dict[TopicPartition, ErrorCode] = {}
    try:
        await backend.groups.delete_offsets(request.group_id, ())  # whether it may be asked at all
        async for some in call.each(in_batches(partitions, _TOGETHER)):
            results = await backend.groups.delete_offsets(request.group_id, some)
            codes |= {each: group_code_of(error) if error else ErrorCode.NONE for each, error in results.items()}
    except HoldfastError as error:
        return {"error_code": group_code_of(error), "topics": ()}
    return {
        "error_code": ErrorCode.NONE,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "error_code": topic.code or codes[TopicPartition(topic.name, each.partition_index)],
                    }
                    async for each in call.each(topic.partitions)
                ],
            }
            async for topic in call.each(requested)
        ],
    }


async def _all_requested(
    call: RequestContext, operation: Operation, topics: Iterable[Any], *, must_exist: bool = True
) -> list[_RequestedTopic]:
    """The topics of a request; each number of an OffsetFetch once."""
    found = []
    async for topic in call.each(topics):
        numbers = getattr(topic, "partition_indexes", None)
        partitions = topic.partitions if numbers is None else tuple(dict.fromkeys(numbers))
        found.append(await _requested(call, operation, topic, partitions, must_exist=must_exist))
    return found


async def _requested(
    call: RequestContext, operation: Operation, topic: Any, partitions: tuple[Any, ...], *, must_exist: bool
) -> _RequestedTopic:
    """A topic of a request, by name or by id, that the client may do this to."""
    backend, kind = call.backend, ResourceType.TOPIC
    if hasattr(topic, "topic_id"):
        topic_id = topic.topic_id or ZERO_UUID
        name = backend.cluster.name_of(topic_id.hex)
        code = ErrorCode.NONE if name is not None else ErrorCode.UNKNOWN_TOPIC_ID
        if name is not None and not call.allows(operation, kind, name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return _RequestedTopic(name or "", topic_id, partitions, code)
    code = ErrorCode.NONE if call.allows(operation, kind, topic.name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if code is ErrorCode.NONE and must_exist and backend.cluster.topic(topic.name) is None:
        try:
            await backend.log.topics.get(topic.name)  # perhaps created on another node a moment ago
        except (UnknownTopicError, InvalidError):
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        except HoldfastError as error:
            code = group_code_of(error)
    return _RequestedTopic(topic.name, ZERO_UUID, partitions, code)


APIS: Final = (
    Api(key=ApiKey.OFFSET_COMMIT, versions=(2, 10), flexible_from=8, control=offset_commit),
    Api(key=ApiKey.OFFSET_FETCH, versions=(1, 10), flexible_from=6, control=offset_fetch),
    Api(key=ApiKey.OFFSET_DELETE, versions=(0, 0), flexible_from=1, control=offset_delete),
)
