"""Sizes of partitions and of the disk.

    AlterReplicaLogDirs   34   versions 1–2   (LOG_DIR_NOT_FOUND, unless nothing would move)
    DescribeLogDirs       35   versions 1–5

One "directory" per agent: the size of a partition led here is its published segments plus its unpublished bytes in the WAL. That
of a replica which Metadata lists is what it keeps itself, the unpublished bytes; its lag is how many offsets its log ends below the
leader's high watermark. The disk is the WAL's. A node without an agent has no directory.

Not implemented: moving partitions between directories (there is one), and cordoning it.
"""

import asyncio
import shutil
from pathlib import Path
from typing import Any, Final

from holdfast.gateways.kafka.api import Api, RequestContext, ResponseFields
from holdfast.gateways.kafka.backend import KafkaBackend
from holdfast.gateways.kafka.leaders import replicas_of
from holdfast.kafka.api_keys import ApiKey
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import Operation

_UNKNOWN: Final = -1


async def alter_replica_log_dirs(call: RequestContext, request: Any) -> ResponseFields:
    """Accept what would move nothing."""
    allowed = call.allows_cluster(Operation.ALTER)
    results = [
        {
            "topic_name": topic.name,
            "partitions": [
                {
                    "partition_index": number,
                    "error_code": _moved(call.backend, wanted.path, topic.name, number)
                    if allowed
                    else ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                }
                async for number in call.each(topic.partitions)
            ],
        }
        async for wanted in call.each(request.dirs)
        async for topic in call.each(wanted.topics)
    ]
    return {"results": results}


def _moved(backend: KafkaBackend, path: str, name: str, number: int) -> ErrorCode:
    topic, directory = backend.cluster.topic(name), backend.log.directory
    if directory is None or path != str(directory):
        return ErrorCode.LOG_DIR_NOT_FOUND
    if topic is None or not 0 <= number < topic.partitions:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.REPLICA_NOT_AVAILABLE if _size_and_lag(backend, name, number) is None else ErrorCode.NONE


def _size_and_lag(backend: KafkaBackend, name: str, number: int) -> tuple[int, int] | None:
    """Of the partition or its replica here; None: there is none."""
    size = backend.log.size_bytes(name, number)
    if size is not None:
        return size, 0
    me = backend.me()
    if me is None or not any(member.node == me.node for member in replicas_of(backend.cluster, name, number)):
        return None
    return backend.log.replica_size_and_lag(name, number)


async def describe_log_dirs(call: RequestContext, request: Any) -> ResponseFields:
    """Sizes of the partitions and replicas here: all, or those of the request."""
    directory = call.backend.log.directory
    if not call.allows_cluster(Operation.DESCRIBE):
        return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "results": ()}
    if directory is None:
        return {"error_code": ErrorCode.NONE, "results": ()}
    total, usable = await asyncio.to_thread(_disk_bytes, directory)
    return {
        "error_code": ErrorCode.NONE,
        "results": [
            {
                "error_code": ErrorCode.NONE,
                "log_dir": str(directory),
                "topics": await _topics(call, request),
                "total_bytes": total,
                "usable_bytes": usable,
                "is_cordoned": False,
            }
        ],
    }


def _disk_bytes(directory: Path) -> tuple[int, int]:
    try:
        disk = shutil.disk_usage(directory)
    except OSError:
        return _UNKNOWN, _UNKNOWN
    return disk.total, disk.free


async def _topics(call: RequestContext, request: Any) -> list[ResponseFields]:
    backend = call.backend
    if request.topics is None:
        wanted = {topic.name: list(range(topic.partitions)) for topic in backend.cluster.topics}
    else:
        wanted = {}
        async for named in call.each(request.topics):
            wanted.setdefault(named.topic, []).extend(named.partitions)
    topics: list[ResponseFields] = []
    async for name, numbers in call.each(wanted.items()):
        found = {number: _size_and_lag(backend, name, number) async for number in call.each(numbers)}
        partitions = [
            {"partition_index": number, "partition_size": kept[0], "offset_lag": kept[1], "is_future_key": False}
            for number, kept in found.items()
            if kept is not None
        ]
        if partitions:
            topics.append({"name": name, "partitions": partitions})
    return topics


APIS: Final = (
    Api(key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), flexible_from=2, control=alter_replica_log_dirs),
    Api(key=ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5), flexible_from=2, control=describe_log_dirs),
)
