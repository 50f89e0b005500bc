"""Errors of brokers and of librdkafka as Holdfast's own: one table.

The one rule: the class says what the caller can do (and so the exit code), the text names the topic, group or address.
"""

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from holdfast.client.addresses import Bootstrap
from holdfast.client.types import KafkaConflictError, KafkaNotFoundError, KafkaRefusedError
from holdfast.vocabulary.errors import (
    CorruptError,
    ExpiredError,
    HoldfastError,
    OutcomeUnknownError,
    UnavailableError,
)


class KafkaOutcomeUnknownError(OutcomeUnknownError):
    """A change was sent and there was no response."""

    def __str__(self) -> str:
        return f"the outcome of {self.commit_id} is unknown: {self.reason}"


_UNAVAILABLE: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._AUTHENTICATION,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.UNKNOWN,
    }
)
_UNCERTAIN: Final = frozenset(
    {KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
)
_LOST: Final = frozenset(
    {
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._FENCED,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
)
_CORRUPT: Final = frozenset({KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG, KafkaError.INVALID_MSG})
_MISSING: Final = frozenset(
    {
        KafkaError._UNKNOWN_GROUP,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
_CONFLICTS: Final = frozenset({KafkaError.NON_EMPTY_GROUP, KafkaError.TOPIC_ALREADY_EXISTS})
_REFUSED: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "was refused: a record is larger than the topic's max.message.bytes",
    KafkaError.NON_EMPTY_GROUP: "has active members: stop them first",
    KafkaError.TOPIC_ALREADY_EXISTS: "exists already",
    KafkaError.TOPIC_EXCEPTION: "has a name that is not allowed: 1 to 249 of a-z A-Z 0-9 . _ -, not . and not ..",
}


def to_holdfast_error(
    found: KafkaError, what: str, given: str, bootstrap: Bootstrap, *, reason: str = ""
) -> HoldfastError:
    """The error for `found`, about `what` named `given`; `reason` is the last network error of the client."""
    code, text = found.code(), found.str().removeprefix("Broker: ").removeprefix("Local: ")
    if code in _UNAVAILABLE:
        return UnavailableError(f"Kafka at {bootstrap}", reason or text)
    if code in _UNCERTAIN:
        detail = "no acknowledgement in time" if code == KafkaError._MSG_TIMED_OUT else text
        return KafkaOutcomeUnknownError(f"sending to {what} {given}", f"{detail} from Kafka at {bootstrap}")
    if code in _LOST:
        return ExpiredError(f"membership in {what} {given}", text)
    if code in _CORRUPT:
        return CorruptError(f"{what} {given}", text)
    if code == KafkaError._UNKNOWN_PARTITION and what == "topic":
        return KafkaNotFoundError(what, given, f"has no such partition at {bootstrap}")
    if code in _MISSING:
        return KafkaNotFoundError(what, given, f"does not exist at {bootstrap}")
    kind = KafkaConflictError if code in _CONFLICTS else KafkaRefusedError
    return kind(what, given, _REFUSED.get(code) or f"was refused by {bootstrap}: {text} ({found.name()})")


def kafka_error(exception: KafkaException) -> KafkaError:
    """The error inside the exception."""
    inside: KafkaError = exception.args[0]
    return inside
