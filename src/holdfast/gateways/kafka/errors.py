"""The one table from our errors to Kafka's error codes.

A retriable error of ours is a retriable code of Kafka's, and the other way round: clients act on nothing else. An unknown outcome
becomes a timeout, after which idempotent producers send again and other clients check.
"""

from typing import Final, NamedTuple

from holdfast.groups.errors import GroupRefusal, GroupRefusedError, NotCoordinatorError, ShardLoadingError
from holdfast.kafka.error_codes import ErrorCode
from holdfast.log.batches import BatchRule, CorruptBatchError, InvalidBatchError
from holdfast.log.batches.record_checks import KeylessRecordsError
from holdfast.log.errors import (
    FencedLeaderEpochError,
    HeapTopicError,
    NotEnoughReplicasError,
    NotLeaderError,
    OffsetOutOfRangeError,
    PendingRangeError,
    ProducerRefusal,
    ProducerRefusedError,
    UnknownLeaderEpochError,
)
from holdfast.log.topics import (
    FixedPartitionsError,
    PartitionCountError,
    TopicExistsError,
    TopicNameError,
    UnknownTopicError,
)
from holdfast.security.acls import ResourceType
from holdfast.vocabulary.errors import (
    ClosedError,
    CorruptError,
    ExpiredError,
    FencedError,
    HoldfastError,
    InvalidError,
    OutcomeUnknownError,
    UnavailableError,
)

_PRODUCER_REFUSALS: Final = {
    ProducerRefusal.OUT_OF_ORDER: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ProducerRefusal.DUPLICATE: ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ProducerRefusal.OLD_EPOCH: ErrorCode.INVALID_PRODUCER_EPOCH,
    ProducerRefusal.TOO_SOON: ErrorCode.NOT_LEADER_OR_FOLLOWER,  # the code of its predecessor: both are sent again, in order
}

_GROUP_REFUSALS: Final = {
    GroupRefusal.UNKNOWN_MEMBER: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupRefusal.ILLEGAL_GENERATION: ErrorCode.ILLEGAL_GENERATION,
    GroupRefusal.REBALANCE_IN_PROGRESS: ErrorCode.REBALANCE_IN_PROGRESS,
    GroupRefusal.INCONSISTENT_PROTOCOL: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    GroupRefusal.INVALID_GROUP_ID: ErrorCode.INVALID_GROUP_ID,
    GroupRefusal.INVALID_SESSION_TIMEOUT: ErrorCode.INVALID_SESSION_TIMEOUT,
    GroupRefusal.MEMBER_ID_REQUIRED: ErrorCode.MEMBER_ID_REQUIRED,
    GroupRefusal.GROUP_FULL: ErrorCode.GROUP_MAX_SIZE_REACHED,
    GroupRefusal.FENCED_INSTANCE: ErrorCode.FENCED_INSTANCE_ID,
    GroupRefusal.NOT_EMPTY: ErrorCode.NON_EMPTY_GROUP,
    GroupRefusal.NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    GroupRefusal.SUBSCRIBED: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    GroupRefusal.METADATA_TOO_LARGE: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    GroupRefusal.TOO_LARGE: ErrorCode.INVALID_REQUEST,
}

# The first match counts: subclasses before their bases.
_CODES: Final[tuple[tuple[type[HoldfastError], ErrorCode], ...]] = (
    (UnknownTopicError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (TopicExistsError, ErrorCode.TOPIC_ALREADY_EXISTS),
    (TopicNameError, ErrorCode.INVALID_TOPIC_EXCEPTION),
    (PartitionCountError, ErrorCode.INVALID_PARTITIONS),
    (FixedPartitionsError, ErrorCode.POLICY_VIOLATION),
    (HeapTopicError, ErrorCode.POLICY_VIOLATION),
    (PendingRangeError, ErrorCode.POLICY_VIOLATION),
    (OffsetOutOfRangeError, ErrorCode.OFFSET_OUT_OF_RANGE),
    (CorruptBatchError, ErrorCode.CORRUPT_MESSAGE),
    (NotLeaderError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (FencedLeaderEpochError, ErrorCode.FENCED_LEADER_EPOCH),
    (UnknownLeaderEpochError, ErrorCode.UNKNOWN_LEADER_EPOCH),
    (NotCoordinatorError, ErrorCode.NOT_COORDINATOR),
    (ShardLoadingError, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (InvalidError, ErrorCode.INVALID_REQUEST),
    (UnavailableError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (FencedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ExpiredError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ClosedError, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (OutcomeUnknownError, ErrorCode.REQUEST_TIMED_OUT),
    (CorruptError, ErrorCode.KAFKA_STORAGE_ERROR),
)

# In the APIs of groups, these make a client look up the coordinator instead of a partition's leader. An offset commit with an
# unknown outcome may be sent again as it is.
_GROUP_CODES: Final[tuple[tuple[type[HoldfastError], ErrorCode], ...]] = (
    (UnavailableError, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (OutcomeUnknownError, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (FencedError, ErrorCode.NOT_COORDINATOR),
    (ExpiredError, ErrorCode.NOT_COORDINATOR),
    (ClosedError, ErrorCode.NOT_COORDINATOR),
    (CorruptError, ErrorCode.UNKNOWN_SERVER_ERROR),
)

_BATCH_RULES: Final = {
    BatchRule.SIZE: ErrorCode.MESSAGE_TOO_LARGE,
    BatchRule.INFLATED_SIZE: ErrorCode.MESSAGE_TOO_LARGE,
    BatchRule.MAGIC: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    BatchRule.CODEC: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    BatchRule.CRC: ErrorCode.CORRUPT_MESSAGE,
    BatchRule.CUT: ErrorCode.CORRUPT_MESSAGE,
    BatchRule.COMPRESSED: ErrorCode.INVALID_RECORD,  # its checksum is right: the same bytes again are no better
    BatchRule.TIMESTAMP: ErrorCode.INVALID_TIMESTAMP,
}


class ApiError(HoldfastError):
    """A request, or a part of one, that gets this code and message in its response."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message

    def __str__(self) -> str:
        return self.message


_NOT_AUTHORIZED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def not_authorized(kind: ResourceType) -> ApiError:
    """The error of a client that may not do this to a resource."""
    return ApiError(_NOT_AUTHORIZED[kind], "Authorization failed.")


CLUSTER_NOT_AUTHORIZED: Final = {
    "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    "error_message": "Cluster authorization failed.",
}


class RecordError(NamedTuple):
    """A record that a batch was rejected for: its number in the batch, and why."""

    number: int
    message: str


def record_errors(error: HoldfastError) -> tuple[RecordError, ...]:
    """The records at fault, where single records are: without them a client blames the whole batch.

    A single one is named twice: librdkafka (2.4 to 2.16 at least) blames the whole batch for one error, the right record for two.
    """
    found: tuple[RecordError, ...] = ()
    if isinstance(error, KeylessRecordsError):
        found = tuple(RecordError(each, "a record of a compacted topic needs a key") for each in error.records)
    elif isinstance(error, InvalidBatchError) and error.fault.record >= 0 and error.fault.at == 0:
        found = (RecordError(error.fault.record, str(error)),)
    return found * 2 if len(found) == 1 else found


def code_of(error: HoldfastError) -> ErrorCode:
    """The code a client gets for `error`."""
    if isinstance(error, ApiError):
        return error.code
    if isinstance(error, ProducerRefusedError):
        return _PRODUCER_REFUSALS[error.refusal]
    if isinstance(error, GroupRefusedError):
        return _GROUP_REFUSALS[error.refusal]
    if isinstance(error, NotEnoughReplicasError):
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if error.appended else ErrorCode.NOT_ENOUGH_REPLICAS
    if isinstance(error, KeylessRecordsError):
        return ErrorCode.INVALID_RECORD
    if isinstance(error, InvalidBatchError):
        return _BATCH_RULES.get(error.rule, ErrorCode.INVALID_RECORD)
    return next((code for kind, code in _CODES if isinstance(error, kind)), ErrorCode.UNKNOWN_SERVER_ERROR)


def group_code_of(error: HoldfastError) -> ErrorCode:
    """The code a client of the group and offset APIs gets for `error`."""
    return next((code for kind, code in _GROUP_CODES if isinstance(error, kind)), None) or code_of(error)
