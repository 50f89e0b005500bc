"""Clients of a cluster. For applications:

    Producer         asynchronous: idempotent, batched, compressed, with back-pressure
    Consumer         asynchronous: by group, by registry with fenced checkpoints, or on its own
    Admin            asynchronous: topics, groups, the cluster
    sync             the same three for programs without an event loop

    async with Producer("localhost:9092", value_serializer="json") as producer:
        await producer.send("orders", {"id": 1}, key=b"ann")

For Spark, pipelines and the command line, by purpose:

    BrokerClient     asynchronous, Kafka's protocol by topic id; no SASL, no TLS. For our own brokers, inside an event loop.
    KafkaClient      synchronous, on librdkafka, with SASL and TLS. For any Kafka; `open_topic_reader` reads one topic with it.
    HttpClient       synchronous, on the standard library. For the HTTP gateway.

Modules:

    addresses.py          Kafka addresses
    cluster_address.py    where brokers, store and objects are: a value
    cluster_access.py     an open cluster: direct access to store and objects, and its brokers
    types.py              ranges, counters and errors
    connection.py         one connection to a broker
    brokers.py            BrokerClient: topics, offsets, the tail of a partition
    producer.py           an idempotent producer whose sequences the caller assigns
    splits.py             which segments hold a range, and where to split it
    range_planner.py      offsets, offsets by time, parts of about equal size
    range_reader.py       the batches of a range, from object storage and the leader
    counted_objects.py    object storage with its reads counted
    loop_thread.py        an event loop on a thread, for synchronous callers
    librdkafka.py         KafkaClient: admin calls, producers, consumers
    kafka_errors.py       librdkafka's errors as ours
    partition_offsets.py  start, end and offsets by time through a KafkaClient
    topic_reader.py       one topic of any Kafka
    http_client.py        HttpClient
    connection_settings.py  addresses, TLS and logins: a value
    records/              Producer, Consumer
    admin/                Admin, and the functions behind it
    sync/                 the synchronous ones

The one rule: no engine, no Spark and no Arrow here (import-linter). Names are imported at their first use, so that a command that
needs one client does not load the others.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.client import sync
    from holdfast.client.addresses import Bootstrap, BrokerAddress
    from holdfast.client.admin.admin import Admin
    from holdfast.client.admin.groups import GroupProgress, OffsetMove
    from holdfast.client.admin.model import (
        BrokerInfo,
        ClusterDescription,
        GroupDescription,
        GroupListing,
        GroupMember,
        TopicDescription,
    )
    from holdfast.client.admin.topics import PartitionRow, TopicSetting
    from holdfast.client.brokers import BrokerClient, TopicInfo
    from holdfast.client.cluster_access import ClusterAccess, DirectAccess
    from holdfast.client.cluster_address import ClusterAddress
    from holdfast.client.connection_settings import ConnectionSettings, Tls
    from holdfast.client.http_client import HttpClient, ProblemError
    from holdfast.client.librdkafka import KafkaClient
    from holdfast.client.range_planner import RangePlanner
    from holdfast.client.range_reader import RangeReader, ReadRequest
    from holdfast.client.records.consumer import Consumer
    from holdfast.client.records.model import (
        DeserializationError,
        PartlySentError,
        ProducerRecord,
        Record,
        RecordMetadata,
        SerializationError,
        TopicPartition,
    )
    from holdfast.client.records.producer import Producer
    from holdfast.client.records.settings import ConsumerSettings, ProducerSettings
    from holdfast.client.topic_reader import KafkaRecord, TopicReader, open_topic_reader
    from holdfast.client.types import (
        DataLossError,
        KafkaConflictError,
        KafkaNotFoundError,
        KafkaRefusedError,
        PartitionRange,
        ReadCounters,
        TopicChangedError,
        TopicOffsets,
    )

__all__ = [
    "Admin",
    "Bootstrap",
    "BrokerAddress",
    "BrokerClient",
    "BrokerInfo",
    "ClusterAccess",
    "ClusterAddress",
    "ClusterDescription",
    "ConnectionSettings",
    "Consumer",
    "ConsumerSettings",
    "DataLossError",
    "DeserializationError",
    "DirectAccess",
    "GroupDescription",
    "GroupListing",
    "GroupMember",
    "GroupProgress",
    "HttpClient",
    "KafkaClient",
    "KafkaConflictError",
    "KafkaNotFoundError",
    "KafkaRecord",
    "KafkaRefusedError",
    "OffsetMove",
    "PartitionRange",
    "PartitionRow",
    "PartlySentError",
    "ProblemError",
    "Producer",
    "ProducerRecord",
    "ProducerSettings",
    "RangePlanner",
    "RangeReader",
    "ReadCounters",
    "ReadRequest",
    "Record",
    "RecordMetadata",
    "SerializationError",
    "Tls",
    "TopicChangedError",
    "TopicDescription",
    "TopicInfo",
    "TopicOffsets",
    "TopicPartition",
    "TopicReader",
    "TopicSetting",
    "open_topic_reader",
    "sync",
]

_MODULES = {
    "addresses": ("Bootstrap", "BrokerAddress"),
    "admin.admin": ("Admin",),
    "admin.groups": ("GroupProgress", "OffsetMove"),
    "admin.model": (
        "BrokerInfo",
        "ClusterDescription",
        "GroupDescription",
        "GroupListing",
        "GroupMember",
        "TopicDescription",
    ),
    "admin.topics": ("PartitionRow", "TopicSetting"),
    "brokers": ("BrokerClient", "TopicInfo"),
    "cluster_access": ("ClusterAccess", "DirectAccess"),
    "cluster_address": ("ClusterAddress",),
    "connection_settings": ("ConnectionSettings", "Tls"),
    "http_client": ("HttpClient", "ProblemError"),
    "librdkafka": ("KafkaClient",),
    "range_planner": ("RangePlanner",),
    "range_reader": ("RangeReader", "ReadRequest"),
    "records.consumer": ("Consumer",),
    "records.model": (
        "DeserializationError",
        "PartlySentError",
        "ProducerRecord",
        "Record",
        "RecordMetadata",
        "SerializationError",
        "TopicPartition",
    ),
    "records.producer": ("Producer",),
    "records.settings": ("ConsumerSettings", "ProducerSettings"),
    "topic_reader": ("KafkaRecord", "TopicReader", "open_topic_reader"),
    "types": (
        "DataLossError",
        "KafkaConflictError",
        "KafkaNotFoundError",
        "KafkaRefusedError",
        "PartitionRange",
        "ReadCounters",
        "TopicChangedError",
        "TopicOffsets",
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "sync":
        return import_module(f"{__name__}.sync")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))
