"""Committed offsets of groups.

    OffsetCommit   8   versions 2–10   (topics by id from version 10 on)
    OffsetFetch    9   versions 1–10   (several groups from version 8 on, topics by id from version 10 on)
    OffsetDelete  47   version 0

Not implemented: the retention time of OffsetCommit before version 5 (the server's setting holds for every group, as it does from
version 5 on); offsets inside transactions (every committed offset is stable); members of the newer group protocol (the member
fields of OffsetFetch are ignored, as for classic groups).
"""

from collections.abc import Iterable
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
from holdfast.vocabulary.errors import HoldfastError, InvalidError
from holdfast.vocabulary.types import TopicPartition

_NO_COMMITTED_OFFSET: Final = CommittedOffset(offset=NO_OFFSET)
_FIRST_WITH_ERROR: Final = 2  # of OffsetFetch: one code for the whole response
_FIRST_WITH_GROUPS: Final = 8
_FIRST_WITH_IDS: Final = 10


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
    requested = [await _requested(call, Operation.READ, topic, topic.partitions) for topic in request.topics]
    offsets = {}
    for topic in requested:
        known = backend.cluster.topic(topic.name)
        for each in topic.partitions:
            if topic.code is ErrorCode.NONE and (known is None or 0 <= each.partition_index < known.partitions):
                offsets[TopicPartition(topic.name, each.partition_index)] = CommittedOffset(
                    offset=each.committed_offset,
                    leader_epoch=getattr(each, "committed_leader_epoch", NO_EPOCH),
                    metadata=each.committed_metadata or "",
                    topic_id="" if topic.topic_id == ZERO_UUID else topic.topic_id.hex,
                )
    codes = await _commit(call, request, offsets)
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
                    for each in topic.partitions
                ],
            }
            for topic in requested
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
        return {"groups": [await _fetch(call, group.group_id, group.topics) for group in request.groups]}
    return await _fetch(call, request.group_id, request.topics)


async def _fetch(call: RequestContext, group_id: str, topics: Any) -> dict[str, object]:
    backend = call.backend
    requested = None
    wanted = None
    if topics is not None:
        requested = [
            await _requested(call, Operation.DESCRIBE, topic, topic.partition_indexes, must_exist=False)
            for topic in topics
        ]
        wanted = [
            TopicPartition(topic.name, number) for topic in requested for number in topic.partitions if not topic.code
        ]
    code, found = ErrorCode.NONE, {}
    try:
        if not call.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id):
            raise not_authorized(ResourceType.GROUP)
        found = dict(await backend.groups.fetch_offsets(group_id, wanted))
    except HoldfastError as error:
        code = group_code_of(error)
    if requested is None:
        visible = [each for each in found if call.allows(Operation.DESCRIBE, ResourceType.TOPIC, each.topic)]
        requested = _all(backend, visible, named_by_id=call.version >= _FIRST_WITH_IDS)
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
                    for number in topic.partitions
                ],
            }
            for topic in requested
        ],
    }


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
    requested = [await _requested(call, Operation.READ, topic, topic.partitions) for topic in request.topics]
    partitions = [
        TopicPartition(topic.name, each.partition_index)
        for topic in requested
        if not topic.code
        for each in topic.partitions
    ]
    try:
        results = await backend.groups.delete_offsets(request.group_id, partitions)
    except HoldfastError as error:
        return {"error_code": group_code_of(error), "topics": ()}
    codes = {partition: group_code_of(error) if error else ErrorCode.NONE for partition, error in results.items()}
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
                    for each in topic.partitions
                ],
            }
            for topic in requested
        ],
    }


async def _requested(
    call: RequestContext, operation: Operation, topic: Any, partitions: tuple[Any, ...], *, must_exist: bool = True
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
