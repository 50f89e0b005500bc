from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HeapMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HEAP_MODE_UNSPECIFIED: _ClassVar[HeapMode]
    HEAP_MODE_MIN: _ClassVar[HeapMode]
    HEAP_MODE_MAX: _ClassVar[HeapMode]
HEAP_MODE_UNSPECIFIED: HeapMode
HEAP_MODE_MIN: HeapMode
HEAP_MODE_MAX: HeapMode

class DlqPolicy(_message.Message):
    __slots__ = ("enabled",)
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    def __init__(self, enabled: _Optional[bool] = ...) -> None: ...

class Heap(_message.Message):
    __slots__ = ("topic", "topic_id", "mode", "partitions", "replication_factor", "top_k_bound", "durability", "dlq_topic", "created_time_ms", "config")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    TOP_K_BOUND_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    DLQ_TOPIC_FIELD_NUMBER: _ClassVar[int]
    CREATED_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    topic: str
    topic_id: str
    mode: HeapMode
    partitions: int
    replication_factor: int
    top_k_bound: int
    durability: str
    dlq_topic: str
    created_time_ms: int
    config: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[str] = ..., topic_id: _Optional[str] = ..., mode: _Optional[_Union[HeapMode, str]] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., top_k_bound: _Optional[int] = ..., durability: _Optional[str] = ..., dlq_topic: _Optional[str] = ..., created_time_ms: _Optional[int] = ..., config: _Optional[_Mapping[str, str]] = ...) -> None: ...

class MakeHeapRequest(_message.Message):
    __slots__ = ("topic", "mode", "partitions", "replication_factor", "top_k_bound", "visibility_timeout_default_ms", "max_retries_default", "max_payload_bytes", "compression_enabled", "dlq_policy", "config")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    TOP_K_BOUND_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_TIMEOUT_DEFAULT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    MAX_PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_ENABLED_FIELD_NUMBER: _ClassVar[int]
    DLQ_POLICY_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    topic: str
    mode: HeapMode
    partitions: int
    replication_factor: int
    top_k_bound: int
    visibility_timeout_default_ms: int
    max_retries_default: int
    max_payload_bytes: int
    compression_enabled: bool
    dlq_policy: DlqPolicy
    config: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[str] = ..., mode: _Optional[_Union[HeapMode, str]] = ..., partitions: _Optional[int] = ..., replication_factor: _Optional[int] = ..., top_k_bound: _Optional[int] = ..., visibility_timeout_default_ms: _Optional[int] = ..., max_retries_default: _Optional[int] = ..., max_payload_bytes: _Optional[int] = ..., compression_enabled: _Optional[bool] = ..., dlq_policy: _Optional[_Union[DlqPolicy, _Mapping]] = ..., config: _Optional[_Mapping[str, str]] = ...) -> None: ...

class MakeHeapResponse(_message.Message):
    __slots__ = ("heap",)
    HEAP_FIELD_NUMBER: _ClassVar[int]
    heap: Heap
    def __init__(self, heap: _Optional[_Union[Heap, _Mapping]] = ...) -> None: ...

class DeleteHeapRequest(_message.Message):
    __slots__ = ("topic", "force", "confirmation_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    CONFIRMATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    force: bool
    confirmation_token: str
    def __init__(self, topic: _Optional[str] = ..., force: _Optional[bool] = ..., confirmation_token: _Optional[str] = ...) -> None: ...

class DeleteHeapResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdateHeapConfigRequest(_message.Message):
    __slots__ = ("topic", "set_config", "reset_config", "partitions")
    class SetConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SET_CONFIG_FIELD_NUMBER: _ClassVar[int]
    RESET_CONFIG_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    set_config: _containers.ScalarMap[str, str]
    reset_config: _containers.RepeatedScalarFieldContainer[str]
    partitions: int
    def __init__(self, topic: _Optional[str] = ..., set_config: _Optional[_Mapping[str, str]] = ..., reset_config: _Optional[_Iterable[str]] = ..., partitions: _Optional[int] = ...) -> None: ...

class UpdateHeapConfigResponse(_message.Message):
    __slots__ = ("heap",)
    HEAP_FIELD_NUMBER: _ClassVar[int]
    heap: Heap
    def __init__(self, heap: _Optional[_Union[Heap, _Mapping]] = ...) -> None: ...

class ListHeapsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListHeapsResponse(_message.Message):
    __slots__ = ("heaps", "next_page_token")
    HEAPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    heaps: _containers.RepeatedCompositeFieldContainer[Heap]
    next_page_token: str
    def __init__(self, heaps: _Optional[_Iterable[_Union[Heap, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("topic", "partition")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ...) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = ("heaps",)
    HEAPS_FIELD_NUMBER: _ClassVar[int]
    heaps: _containers.RepeatedCompositeFieldContainer[HeapFigures]
    def __init__(self, heaps: _Optional[_Iterable[_Union[HeapFigures, _Mapping]]] = ...) -> None: ...

class PartitionCounts(_message.Message):
    __slots__ = ("partition", "ready", "delayed", "inflight", "moving", "enqueues", "pops", "acks", "nacks", "retries", "timeouts", "released", "moved", "cancelled", "duplicates", "keys", "keys_at_limit", "keys_at_rate")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    INFLIGHT_FIELD_NUMBER: _ClassVar[int]
    MOVING_FIELD_NUMBER: _ClassVar[int]
    ENQUEUES_FIELD_NUMBER: _ClassVar[int]
    POPS_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    NACKS_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUTS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    KEYS_AT_LIMIT_FIELD_NUMBER: _ClassVar[int]
    KEYS_AT_RATE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    ready: int
    delayed: int
    inflight: int
    moving: int
    enqueues: int
    pops: int
    acks: int
    nacks: int
    retries: int
    timeouts: int
    released: int
    moved: int
    cancelled: int
    duplicates: int
    keys: int
    keys_at_limit: int
    keys_at_rate: int
    def __init__(self, partition: _Optional[int] = ..., ready: _Optional[int] = ..., delayed: _Optional[int] = ..., inflight: _Optional[int] = ..., moving: _Optional[int] = ..., enqueues: _Optional[int] = ..., pops: _Optional[int] = ..., acks: _Optional[int] = ..., nacks: _Optional[int] = ..., retries: _Optional[int] = ..., timeouts: _Optional[int] = ..., released: _Optional[int] = ..., moved: _Optional[int] = ..., cancelled: _Optional[int] = ..., duplicates: _Optional[int] = ..., keys: _Optional[int] = ..., keys_at_limit: _Optional[int] = ..., keys_at_rate: _Optional[int] = ...) -> None: ...

class HeapFigures(_message.Message):
    __slots__ = ("topic", "dlq", "totals", "partitions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DLQ_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    dlq: int
    totals: PartitionCounts
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionCounts]
    def __init__(self, topic: _Optional[str] = ..., dlq: _Optional[int] = ..., totals: _Optional[_Union[PartitionCounts, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[PartitionCounts, _Mapping]]] = ...) -> None: ...

class PurgeRequest(_message.Message):
    __slots__ = ("topic", "force", "confirmation_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    CONFIRMATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    force: bool
    confirmation_token: str
    def __init__(self, topic: _Optional[str] = ..., force: _Optional[bool] = ..., confirmation_token: _Optional[str] = ...) -> None: ...

class PurgeResponse(_message.Message):
    __slots__ = ("purged",)
    PURGED_FIELD_NUMBER: _ClassVar[int]
    purged: int
    def __init__(self, purged: _Optional[int] = ...) -> None: ...

class CreateConfirmationRequest(_message.Message):
    __slots__ = ("action", "resource")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    action: str
    resource: str
    def __init__(self, action: _Optional[str] = ..., resource: _Optional[str] = ...) -> None: ...

class CreateConfirmationResponse(_message.Message):
    __slots__ = ("confirmation_token", "expires_time_ms")
    CONFIRMATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    confirmation_token: str
    expires_time_ms: int
    def __init__(self, confirmation_token: _Optional[str] = ..., expires_time_ms: _Optional[int] = ...) -> None: ...

class EnqueueRequest(_message.Message):
    __slots__ = ("topic", "payload", "priority", "partition_key", "producer_id", "epoch", "sequence", "max_retries", "not_before_delay_ms", "headers", "fairness_key")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PARTITION_KEY_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    NOT_BEFORE_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    FAIRNESS_KEY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    payload: bytes
    priority: int
    partition_key: str
    producer_id: str
    epoch: int
    sequence: int
    max_retries: int
    not_before_delay_ms: int
    headers: _containers.ScalarMap[str, bytes]
    fairness_key: str
    def __init__(self, topic: _Optional[str] = ..., payload: _Optional[bytes] = ..., priority: _Optional[int] = ..., partition_key: _Optional[str] = ..., producer_id: _Optional[str] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., max_retries: _Optional[int] = ..., not_before_delay_ms: _Optional[int] = ..., headers: _Optional[_Mapping[str, bytes]] = ..., fairness_key: _Optional[str] = ...) -> None: ...

class EnqueueResponse(_message.Message):
    __slots__ = ("message_id", "duplicate", "partition_id")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    duplicate: bool
    partition_id: int
    def __init__(self, message_id: _Optional[str] = ..., duplicate: _Optional[bool] = ..., partition_id: _Optional[int] = ...) -> None: ...

class EnqueueBatchRequest(_message.Message):
    __slots__ = ("requests",)
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    requests: _containers.RepeatedCompositeFieldContainer[EnqueueRequest]
    def __init__(self, requests: _Optional[_Iterable[_Union[EnqueueRequest, _Mapping]]] = ...) -> None: ...

class EnqueueBatchResponse(_message.Message):
    __slots__ = ("responses",)
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    responses: _containers.RepeatedCompositeFieldContainer[EnqueueResponse]
    def __init__(self, responses: _Optional[_Iterable[_Union[EnqueueResponse, _Mapping]]] = ...) -> None: ...

class PopFilter(_message.Message):
    __slots__ = ("topic", "partition_ids", "visibility_timeout_ms", "consumer")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_IDS_FIELD_NUMBER: _ClassVar[int]
    VISIBILITY_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition_ids: _containers.RepeatedScalarFieldContainer[int]
    visibility_timeout_ms: int
    consumer: str
    def __init__(self, topic: _Optional[str] = ..., partition_ids: _Optional[_Iterable[int]] = ..., visibility_timeout_ms: _Optional[int] = ..., consumer: _Optional[str] = ...) -> None: ...

class FlowControl(_message.Message):
    __slots__ = ("credits",)
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    credits: int
    def __init__(self, credits: _Optional[int] = ...) -> None: ...

class PopStreamRequest(_message.Message):
    __slots__ = ("filter", "flow_control")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    FLOW_CONTROL_FIELD_NUMBER: _ClassVar[int]
    filter: PopFilter
    flow_control: FlowControl
    def __init__(self, filter: _Optional[_Union[PopFilter, _Mapping]] = ..., flow_control: _Optional[_Union[FlowControl, _Mapping]] = ...) -> None: ...

class PopStreamResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[PopItem]
    def __init__(self, items: _Optional[_Iterable[_Union[PopItem, _Mapping]]] = ...) -> None: ...

class PopItem(_message.Message):
    __slots__ = ("message_id", "topic", "partition_id", "payload", "priority", "enqueued_time_ms", "lease_token", "lease_deadline_ms", "attempts", "max_retries", "producer_id", "epoch", "sequence", "bound", "partition_key", "headers", "fairness_key", "limited")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEASE_DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    PARTITION_KEY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    FAIRNESS_KEY_FIELD_NUMBER: _ClassVar[int]
    LIMITED_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    topic: str
    partition_id: int
    payload: bytes
    priority: int
    enqueued_time_ms: int
    lease_token: bytes
    lease_deadline_ms: int
    attempts: int
    max_retries: int
    producer_id: str
    epoch: int
    sequence: int
    bound: int
    partition_key: str
    headers: _containers.ScalarMap[str, bytes]
    fairness_key: str
    limited: bool
    def __init__(self, message_id: _Optional[str] = ..., topic: _Optional[str] = ..., partition_id: _Optional[int] = ..., payload: _Optional[bytes] = ..., priority: _Optional[int] = ..., enqueued_time_ms: _Optional[int] = ..., lease_token: _Optional[bytes] = ..., lease_deadline_ms: _Optional[int] = ..., attempts: _Optional[int] = ..., max_retries: _Optional[int] = ..., producer_id: _Optional[str] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., bound: _Optional[int] = ..., partition_key: _Optional[str] = ..., headers: _Optional[_Mapping[str, bytes]] = ..., fairness_key: _Optional[str] = ..., limited: _Optional[bool] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("topic", "message_id", "lease_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_id: str
    lease_token: bytes
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ..., lease_token: _Optional[bytes] = ...) -> None: ...

class AckResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NackRequest(_message.Message):
    __slots__ = ("topic", "message_id", "lease_token", "backoff_override_ms", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_OVERRIDE_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_id: str
    lease_token: bytes
    backoff_override_ms: int
    reason: str
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ..., lease_token: _Optional[bytes] = ..., backoff_override_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class NackResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("topic", "message_id", "lease_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_id: str
    lease_token: bytes
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ..., lease_token: _Optional[bytes] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("topic", "lease_token", "extension_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LEASE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXTENSION_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    lease_token: bytes
    extension_ms: int
    def __init__(self, topic: _Optional[str] = ..., lease_token: _Optional[bytes] = ..., extension_ms: _Optional[int] = ...) -> None: ...

class ExtendResponse(_message.Message):
    __slots__ = ("lease_deadline_ms",)
    LEASE_DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    lease_deadline_ms: int
    def __init__(self, lease_deadline_ms: _Optional[int] = ...) -> None: ...

class PeekRequest(_message.Message):
    __slots__ = ("topic", "partition", "limit", "include_dlq")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_DLQ_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    limit: int
    include_dlq: bool
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., limit: _Optional[int] = ..., include_dlq: _Optional[bool] = ...) -> None: ...

class PeekResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[WaitingMessage]
    def __init__(self, items: _Optional[_Iterable[_Union[WaitingMessage, _Mapping]]] = ...) -> None: ...

class WaitingMessage(_message.Message):
    __slots__ = ("message_id", "partition_id", "payload", "priority", "enqueued_time_ms", "attempts", "dlq", "reason", "origin_topic", "origin_message_id", "partition_key", "headers", "fairness_key")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_ID_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DLQ_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_TOPIC_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_KEY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    FAIRNESS_KEY_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    partition_id: int
    payload: bytes
    priority: int
    enqueued_time_ms: int
    attempts: int
    dlq: bool
    reason: str
    origin_topic: str
    origin_message_id: str
    partition_key: str
    headers: _containers.ScalarMap[str, bytes]
    fairness_key: str
    def __init__(self, message_id: _Optional[str] = ..., partition_id: _Optional[int] = ..., payload: _Optional[bytes] = ..., priority: _Optional[int] = ..., enqueued_time_ms: _Optional[int] = ..., attempts: _Optional[int] = ..., dlq: _Optional[bool] = ..., reason: _Optional[str] = ..., origin_topic: _Optional[str] = ..., origin_message_id: _Optional[str] = ..., partition_key: _Optional[str] = ..., headers: _Optional[_Mapping[str, bytes]] = ..., fairness_key: _Optional[str] = ...) -> None: ...

class ReprioritiseRequest(_message.Message):
    __slots__ = ("topic", "message_id", "priority")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_id: str
    priority: int
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ..., priority: _Optional[int] = ...) -> None: ...

class ReprioritiseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("topic", "message_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_id: str
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MoveToDlqRequest(_message.Message):
    __slots__ = ("topic", "message_id", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_id: str
    reason: str
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class MoveToDlqResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeadLetterFilter(_message.Message):
    __slots__ = ("message_ids", "reason_contains", "attempts_min", "moved_before_ms", "limit")
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    REASON_CONTAINS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_MIN_FIELD_NUMBER: _ClassVar[int]
    MOVED_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    reason_contains: str
    attempts_min: int
    moved_before_ms: int
    limit: int
    def __init__(self, message_ids: _Optional[_Iterable[str]] = ..., reason_contains: _Optional[str] = ..., attempts_min: _Optional[int] = ..., moved_before_ms: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListDeadLettersRequest(_message.Message):
    __slots__ = ("topic", "filter")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    filter: DeadLetterFilter
    def __init__(self, topic: _Optional[str] = ..., filter: _Optional[_Union[DeadLetterFilter, _Mapping]] = ...) -> None: ...

class ListDeadLettersResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[WaitingMessage]
    def __init__(self, items: _Optional[_Iterable[_Union[WaitingMessage, _Mapping]]] = ...) -> None: ...

class ReplayDeadLettersRequest(_message.Message):
    __slots__ = ("topic", "filter", "dry_run", "rate_per_s")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    RATE_PER_S_FIELD_NUMBER: _ClassVar[int]
    topic: str
    filter: DeadLetterFilter
    dry_run: bool
    rate_per_s: float
    def __init__(self, topic: _Optional[str] = ..., filter: _Optional[_Union[DeadLetterFilter, _Mapping]] = ..., dry_run: _Optional[bool] = ..., rate_per_s: _Optional[float] = ...) -> None: ...

class ReplayDeadLettersResponse(_message.Message):
    __slots__ = ("matched", "changed")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    matched: int
    changed: int
    def __init__(self, matched: _Optional[int] = ..., changed: _Optional[int] = ...) -> None: ...

class DeleteDeadLettersRequest(_message.Message):
    __slots__ = ("topic", "filter", "dry_run", "force", "confirmation_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    CONFIRMATION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    filter: DeadLetterFilter
    dry_run: bool
    force: bool
    confirmation_token: str
    def __init__(self, topic: _Optional[str] = ..., filter: _Optional[_Union[DeadLetterFilter, _Mapping]] = ..., dry_run: _Optional[bool] = ..., force: _Optional[bool] = ..., confirmation_token: _Optional[str] = ...) -> None: ...

class DeleteDeadLettersResponse(_message.Message):
    __slots__ = ("matched", "changed")
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    matched: int
    changed: int
    def __init__(self, matched: _Optional[int] = ..., changed: _Optional[int] = ...) -> None: ...
