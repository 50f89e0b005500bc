"""Kafka's error codes, and the one table that says which of our errors gets which.

A retriable error of ours is a retriable code of Kafka's, and the other way round: clients act on nothing else. An error whose
outcome is unknown is answered as a time-out, which makes idempotent producers send again and everybody else ask.
"""

from enum import IntEnum
from typing import Final

from holdfast.groups.errors import GroupRefusal as GroupRefusal
from holdfast.groups.errors import GroupRefusedError, NotCoordinatorError, ShardLoadingError
from holdfast.log.batches import BatchRule, CorruptBatchError, InvalidBatchError
from holdfast.log.partition.producer_state import ProducerRefusal, ProducerRefusedError
from holdfast.log.reader import OffsetOutOfRangeError
from holdfast.log.service import NotLeaderError
from holdfast.log.topics import TopicExistsError, TopicNameError, UnknownTopicError
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


class Code(IntEnum):
    """The codes this face answers with."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    KAFKA_STORAGE_ERROR = 56
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNKNOWN_TOPIC_ID = 100
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115


_PRODUCER_REFUSALS: Final = {
    ProducerRefusal.OUT_OF_ORDER: Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ProducerRefusal.DUPLICATE: Code.DUPLICATE_SEQUENCE_NUMBER,
    ProducerRefusal.OLD_EPOCH: Code.INVALID_PRODUCER_EPOCH,
    ProducerRefusal.TOO_SOON: Code.NOT_LEADER_OR_FOLLOWER,  # what the one before it was told: both come again, in order
}

_GROUP_REFUSALS: Final = {
    GroupRefusal.UNKNOWN_MEMBER: Code.UNKNOWN_MEMBER_ID,
    GroupRefusal.ILLEGAL_GENERATION: Code.ILLEGAL_GENERATION,
    GroupRefusal.REBALANCE_IN_PROGRESS: Code.REBALANCE_IN_PROGRESS,
    GroupRefusal.INCONSISTENT_PROTOCOL: Code.INCONSISTENT_GROUP_PROTOCOL,
    GroupRefusal.INVALID_GROUP_ID: Code.INVALID_GROUP_ID,
    GroupRefusal.INVALID_SESSION_TIMEOUT: Code.INVALID_SESSION_TIMEOUT,
    GroupRefusal.MEMBER_ID_REQUIRED: Code.MEMBER_ID_REQUIRED,
    GroupRefusal.GROUP_FULL: Code.GROUP_MAX_SIZE_REACHED,
    GroupRefusal.FENCED_INSTANCE: Code.FENCED_INSTANCE_ID,
    GroupRefusal.NOT_EMPTY: Code.NON_EMPTY_GROUP,
    GroupRefusal.NOT_FOUND: Code.GROUP_ID_NOT_FOUND,
    GroupRefusal.SUBSCRIBED: Code.GROUP_SUBSCRIBED_TO_TOPIC,
    GroupRefusal.METADATA_TOO_LARGE: Code.OFFSET_METADATA_TOO_LARGE,
    GroupRefusal.TOO_LARGE: Code.INVALID_REQUEST,
}

# The first that fits decides: particular errors before their kinds.
_CODES: Final[tuple[tuple[type[HoldfastError], Code], ...]] = (
    (UnknownTopicError, Code.UNKNOWN_TOPIC_OR_PARTITION),
    (TopicExistsError, Code.TOPIC_ALREADY_EXISTS),
    (TopicNameError, Code.INVALID_TOPIC_EXCEPTION),
    (OffsetOutOfRangeError, Code.OFFSET_OUT_OF_RANGE),
    (CorruptBatchError, Code.CORRUPT_MESSAGE),
    (NotLeaderError, Code.NOT_LEADER_OR_FOLLOWER),
    (NotCoordinatorError, Code.NOT_COORDINATOR),
    (ShardLoadingError, Code.COORDINATOR_LOAD_IN_PROGRESS),
    (InvalidError, Code.INVALID_REQUEST),
    (UnavailableError, Code.NOT_LEADER_OR_FOLLOWER),
    (FencedError, Code.NOT_LEADER_OR_FOLLOWER),
    (ExpiredError, Code.NOT_LEADER_OR_FOLLOWER),
    (ClosedError, Code.NOT_LEADER_OR_FOLLOWER),
    (OutcomeUnknownError, Code.REQUEST_TIMED_OUT),
    (CorruptError, Code.KAFKA_STORAGE_ERROR),
)

# What sends a client to look for a partition's leader elsewhere sends it to look for the coordinator in the APIs of groups. A
# commit of offsets whose outcome is unknown may be sent again as it is.
_GROUP_CODES: Final[tuple[tuple[type[HoldfastError], Code], ...]] = (
    (UnavailableError, Code.COORDINATOR_NOT_AVAILABLE),
    (OutcomeUnknownError, Code.COORDINATOR_NOT_AVAILABLE),
    (FencedError, Code.NOT_COORDINATOR),
    (ExpiredError, Code.NOT_COORDINATOR),
    (ClosedError, Code.NOT_COORDINATOR),
    (CorruptError, Code.UNKNOWN_SERVER_ERROR),
)

_BATCH_RULES: Final = {
    BatchRule.SIZE: Code.MESSAGE_TOO_LARGE,
    BatchRule.INFLATED_SIZE: Code.MESSAGE_TOO_LARGE,
    BatchRule.MAGIC: Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    BatchRule.CODEC: Code.UNSUPPORTED_COMPRESSION_TYPE,
    BatchRule.CRC: Code.CORRUPT_MESSAGE,
    BatchRule.CUT: Code.CORRUPT_MESSAGE,
    BatchRule.COMPRESSED: Code.CORRUPT_MESSAGE,
    BatchRule.TIMESTAMP: Code.INVALID_TIMESTAMP,
}


def code_of(error: HoldfastError) -> Code:
    """What a client is told about `error`."""
    if isinstance(error, ProducerRefusedError):
        return _PRODUCER_REFUSALS[error.refusal]
    if isinstance(error, GroupRefusedError):
        return _GROUP_REFUSALS[error.refusal]
    if isinstance(error, InvalidBatchError):
        return _BATCH_RULES.get(error.rule, Code.INVALID_RECORD)
    return next((code for kind, code in _CODES if isinstance(error, kind)), Code.UNKNOWN_SERVER_ERROR)


def group_code_of(error: HoldfastError) -> Code:
    """What a client of the APIs of groups and offsets is told about `error`."""
    return next((code for kind, code in _GROUP_CODES if isinstance(error, kind)), None) or code_of(error)
