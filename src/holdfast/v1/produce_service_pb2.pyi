from holdfast.v1 import record_pb2 as _record_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Acks(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACKS_UNSPECIFIED: _ClassVar[Acks]
    ACKS_ALL: _ClassVar[Acks]
    ACKS_LEADER: _ClassVar[Acks]
ACKS_UNSPECIFIED: Acks
ACKS_ALL: Acks
ACKS_LEADER: Acks

class AppendedRecords(_message.Message):
    __slots__ = ("partitions", "offsets")
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    partitions: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, partitions: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class RequestError(_message.Message):
    __slots__ = ("code", "reason", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: str
    message: str
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class ProduceRequest(_message.Message):
    __slots__ = ("topic", "records", "acks", "idempotency_key")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    records: _containers.RepeatedCompositeFieldContainer[_record_pb2.NewRecord]
    acks: Acks
    idempotency_key: str
    def __init__(self, topic: _Optional[str] = ..., records: _Optional[_Iterable[_Union[_record_pb2.NewRecord, _Mapping]]] = ..., acks: _Optional[_Union[Acks, str]] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class ProduceResponse(_message.Message):
    __slots__ = ("appended",)
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    appended: AppendedRecords
    def __init__(self, appended: _Optional[_Union[AppendedRecords, _Mapping]] = ...) -> None: ...

class ProduceStreamRequest(_message.Message):
    __slots__ = ("request_id", "topic", "records", "acks", "idempotency_key")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    ACKS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    topic: str
    records: _containers.RepeatedCompositeFieldContainer[_record_pb2.NewRecord]
    acks: Acks
    idempotency_key: str
    def __init__(self, request_id: _Optional[int] = ..., topic: _Optional[str] = ..., records: _Optional[_Iterable[_Union[_record_pb2.NewRecord, _Mapping]]] = ..., acks: _Optional[_Union[Acks, str]] = ..., idempotency_key: _Optional[str] = ...) -> None: ...

class ProduceStreamResponse(_message.Message):
    __slots__ = ("request_id", "appended", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    appended: AppendedRecords
    error: RequestError
    def __init__(self, request_id: _Optional[int] = ..., appended: _Optional[_Union[AppendedRecords, _Mapping]] = ..., error: _Optional[_Union[RequestError, _Mapping]] = ...) -> None: ...
