from holdfast.v1 import position_pb2 as _position_pb2
from holdfast.v1 import record_pb2 as _record_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FetchRequest(_message.Message):
    __slots__ = ("topic", "partitions", "start", "max_bytes", "max_records", "heartbeat_ms", "stop_at_end")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_RECORDS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    STOP_AT_END_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionStart]
    start: _position_pb2.Position
    max_bytes: int
    max_records: int
    heartbeat_ms: int
    stop_at_end: bool
    def __init__(self, topic: _Optional[str] = ..., partitions: _Optional[_Iterable[_Union[PartitionStart, _Mapping]]] = ..., start: _Optional[_Union[_position_pb2.Position, _Mapping]] = ..., max_bytes: _Optional[int] = ..., max_records: _Optional[int] = ..., heartbeat_ms: _Optional[int] = ..., stop_at_end: _Optional[bool] = ...) -> None: ...

class PartitionStart(_message.Message):
    __slots__ = ("partition", "start")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    partition: int
    start: _position_pb2.Position
    def __init__(self, partition: _Optional[int] = ..., start: _Optional[_Union[_position_pb2.Position, _Mapping]] = ...) -> None: ...

class FetchResponse(_message.Message):
    __slots__ = ("partition", "records", "next_offset", "start_offset", "end_offset")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    partition: int
    records: _containers.RepeatedCompositeFieldContainer[_record_pb2.Record]
    next_offset: int
    start_offset: int
    end_offset: int
    def __init__(self, partition: _Optional[int] = ..., records: _Optional[_Iterable[_Union[_record_pb2.Record, _Mapping]]] = ..., next_offset: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...
