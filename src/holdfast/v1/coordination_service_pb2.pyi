from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Lease(_message.Message):
    __slots__ = ("resource", "holder", "epoch", "version")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    resource: str
    holder: str
    epoch: int
    version: int
    def __init__(self, resource: _Optional[str] = ..., holder: _Optional[str] = ..., epoch: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class LeaseHolder(_message.Message):
    __slots__ = ("resource", "holder", "epoch")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    resource: str
    holder: str
    epoch: int
    def __init__(self, resource: _Optional[str] = ..., holder: _Optional[str] = ..., epoch: _Optional[int] = ...) -> None: ...

class KeyValue(_message.Message):
    __slots__ = ("key", "value", "version", "ephemeral")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    version: int
    ephemeral: bool
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., version: _Optional[int] = ..., ephemeral: _Optional[bool] = ...) -> None: ...

class Requirement(_message.Message):
    __slots__ = ("key", "version")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    key: str
    version: int
    def __init__(self, key: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("put", "delete")
    PUT_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    put: PutOperation
    delete: DeleteOperation
    def __init__(self, put: _Optional[_Union[PutOperation, _Mapping]] = ..., delete: _Optional[_Union[DeleteOperation, _Mapping]] = ...) -> None: ...

class PutOperation(_message.Message):
    __slots__ = ("key", "value", "session_id")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    session_id: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ..., session_id: _Optional[str] = ...) -> None: ...

class DeleteOperation(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class Committed(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class Conflict(_message.Message):
    __slots__ = ("found",)
    FOUND_FIELD_NUMBER: _ClassVar[int]
    found: _containers.RepeatedCompositeFieldContainer[KeyValue]
    def __init__(self, found: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ...) -> None: ...

class KeyChange(_message.Message):
    __slots__ = ("key", "entry")
    KEY_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    key: str
    entry: KeyValue
    def __init__(self, key: _Optional[str] = ..., entry: _Optional[_Union[KeyValue, _Mapping]] = ...) -> None: ...

class OpenSessionRequest(_message.Message):
    __slots__ = ("name", "ttl_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    ttl_ms: int
    def __init__(self, name: _Optional[str] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class OpenSessionResponse(_message.Message):
    __slots__ = ("session_id", "ttl_ms")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    ttl_ms: int
    def __init__(self, session_id: _Optional[str] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class RenewSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class RenewSessionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class KeepAliveRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class KeepAliveResponse(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class CloseSessionRequest(_message.Message):
    __slots__ = ("session_id",)
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    def __init__(self, session_id: _Optional[str] = ...) -> None: ...

class CloseSessionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AcquireLeaseRequest(_message.Message):
    __slots__ = ("session_id", "resource", "wait_ms")
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    session_id: str
    resource: str
    wait_ms: int
    def __init__(self, session_id: _Optional[str] = ..., resource: _Optional[str] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class AcquireLeaseResponse(_message.Message):
    __slots__ = ("lease", "held")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    held: LeaseHolder
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., held: _Optional[_Union[LeaseHolder, _Mapping]] = ...) -> None: ...

class ReleaseLeaseRequest(_message.Message):
    __slots__ = ("lease",)
    LEASE_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ...) -> None: ...

class ReleaseLeaseResponse(_message.Message):
    __slots__ = ("released",)
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    released: bool
    def __init__(self, released: _Optional[bool] = ...) -> None: ...

class GetKeyRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class GetKeyResponse(_message.Message):
    __slots__ = ("entry",)
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    entry: KeyValue
    def __init__(self, entry: _Optional[_Union[KeyValue, _Mapping]] = ...) -> None: ...

class ScanKeysRequest(_message.Message):
    __slots__ = ("prefix", "after", "limit")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    after: str
    limit: int
    def __init__(self, prefix: _Optional[str] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ScanKeysResponse(_message.Message):
    __slots__ = ("version", "entries", "more")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    version: int
    entries: _containers.RepeatedCompositeFieldContainer[KeyValue]
    more: bool
    def __init__(self, version: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class CommitRequest(_message.Message):
    __slots__ = ("lease", "require", "apply")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_FIELD_NUMBER: _ClassVar[int]
    APPLY_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    require: _containers.RepeatedCompositeFieldContainer[Requirement]
    apply: _containers.RepeatedCompositeFieldContainer[Operation]
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., require: _Optional[_Iterable[_Union[Requirement, _Mapping]]] = ..., apply: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ...) -> None: ...

class CommitResponse(_message.Message):
    __slots__ = ("committed", "conflict")
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_FIELD_NUMBER: _ClassVar[int]
    committed: Committed
    conflict: Conflict
    def __init__(self, committed: _Optional[_Union[Committed, _Mapping]] = ..., conflict: _Optional[_Union[Conflict, _Mapping]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("prefix", "from_version")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    FROM_VERSION_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    from_version: int
    def __init__(self, prefix: _Optional[str] = ..., from_version: _Optional[int] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("version", "changes", "resync")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    RESYNC_FIELD_NUMBER: _ClassVar[int]
    version: int
    changes: _containers.RepeatedCompositeFieldContainer[KeyChange]
    resync: bool
    def __init__(self, version: _Optional[int] = ..., changes: _Optional[_Iterable[_Union[KeyChange, _Mapping]]] = ..., resync: _Optional[bool] = ...) -> None: ...
