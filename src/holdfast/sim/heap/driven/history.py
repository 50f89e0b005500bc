"""What happens in the world of driven heaps, as events in virtual time. What the checker needs is among them."""

from typing import Any

import msgspec

from holdfast.heap.records import Operation


class RecordsAppended(msgspec.Struct, frozen=True):
    """A batch is in a partition's log, not yet durable. `forked`: of a former leader, so that it is in nobody else's log."""

    at_ms: float
    partition: int
    epoch: int
    offset: int
    operations: tuple[Operation, ...]
    forked: bool
    times: tuple[int, ...] = ()


class TailCut(msgspec.Struct, frozen=True):
    """What was not durable from an offset on is gone."""

    at_ms: float
    partition: int
    offset: int


class EnqueueAnswered(msgspec.Struct, frozen=True):
    """A leader answers an enqueue: from here on pops are measured against the message, if it was ready at once."""

    at_ms: float
    partition: int
    offset: int
    message: bytes
    duplicate: bool


class AdvertAcknowledged(msgspec.Struct, frozen=True):
    """The spine knows a partition as of an offset, and no pop is under way that would have been decided otherwise."""

    at_ms: float
    partition: int
    offset: int


class NackAnswered(msgspec.Struct, frozen=True):
    """A leader answers a nack: the message waits again. `granted_at`: the lease that ended by it."""

    at_ms: float
    partition: int
    offset: int
    granted_at: int


class MessageDelivered(msgspec.Struct, frozen=True):
    """A consumer has a message. `rank_bound` 0: it named the partition."""

    at_ms: float
    consumer: str
    partition: int
    epoch: int
    granted_at: int
    offset: int
    rank_bound: int


class AckAnswered(msgspec.Struct, frozen=True):
    """A consumer is told that a message is done."""

    at_ms: float
    consumer: str
    partition: int
    offset: int


class LeaderStarted(msgspec.Struct, frozen=True):
    """A partition has another leader, or its first."""

    at_ms: float
    partition: int
    epoch: int
    host: int


class HeapGrown(msgspec.Struct, frozen=True):
    """The record of the heap has more partitions."""

    at_ms: float
    partitions: int


class StateRecovered(msgspec.Struct, frozen=True):
    """A leader begins a view, from a snapshot as of `snapshot` (-1: from none) and what follows in the log.

    `as_logged`: it is what the whole log says.
    """

    at_ms: float
    partition: int
    epoch: int
    offset: int
    snapshot: int
    as_logged: bool


class SnapshotListed(msgspec.Struct, frozen=True):
    """A snapshot is listed by the leader of an epoch."""

    at_ms: float
    partition: int
    epoch: int
    offset: int


class PopFailed(msgspec.Struct, frozen=True):
    """A pop of a spine that serves ended with an error."""

    at_ms: float
    consumer: str
    error: str


class SpineStarted(msgspec.Struct, frozen=True):
    """The spine's lease has another holder, or its first."""

    at_ms: float
    epoch: int
    host: int


class Incident(msgspec.Struct, frozen=True):
    """A fault."""

    at_ms: float
    what: str


class CodeFailed(msgspec.Struct, frozen=True):
    """Code failed in a way that is not part of its contract, or nothing can go on."""

    at_ms: float
    who: str
    error: str


class WorldEnded(msgspec.Struct, frozen=True):
    """The end, after all faults have. `left`: messages that were not acknowledged, and enqueues that were not answered."""

    at_ms: float
    left: int


class DrivenNote(msgspec.Struct, frozen=True):
    """A line of a transcript."""

    at_ms: float
    who: str
    text: str


DrivenEvent = (
    RecordsAppended
    | TailCut
    | EnqueueAnswered
    | AdvertAcknowledged
    | NackAnswered
    | MessageDelivered
    | AckAnswered
    | LeaderStarted
    | HeapGrown
    | StateRecovered
    | SnapshotListed
    | PopFailed
    | SpineStarted
    | Incident
    | CodeFailed
    | WorldEnded
    | DrivenNote
)


def describe_driven(event: DrivenEvent) -> tuple[str, str]:
    """Who did it, and what."""
    match event:
        case RecordsAppended(partition=partition, epoch=epoch, offset=offset, operations=operations, forked=forked):
            where = "its own log, which nobody reads," if forked else "the log"
            return f"p{partition}.{epoch}", f"appends to {where} at {offset}: " + ", ".join(map(_text, operations))
        case TailCut(partition=partition, offset=offset):
            return f"p{partition}", f"loses what was not durable from {offset} on"
        case EnqueueAnswered(partition=partition, offset=offset, message=message, duplicate=duplicate):
            again = ", as before" if duplicate else ""
            return f"p{partition}", f"answers that message {message.decode()} is enqueued at {offset}{again}"
        case AdvertAcknowledged(partition=partition, offset=offset):
            return "spine", f"knows p{partition} as of {offset}"
        case NackAnswered(partition=partition, offset=offset):
            return f"p{partition}", f"answers that the message at {offset} waits again"
        case MessageDelivered(consumer=consumer, partition=partition, offset=offset, rank_bound=bound):
            return consumer, f"has the message at {offset} of p{partition}, bound {bound}"
        case AckAnswered(consumer=consumer, partition=partition, offset=offset):
            return consumer, f"is told that the message at {offset} of p{partition} is done"
        case LeaderStarted(partition=partition, epoch=epoch, host=host):
            return f"p{partition}.{epoch}", f"leads on host {host}"
        case HeapGrown(partitions=partitions):
            return "heap", f"has {partitions} partitions"
        case StateRecovered(partition=partition, epoch=epoch, offset=offset, snapshot=snapshot, as_logged=as_logged):
            wrong = "" if as_logged else ", which is not what the log says"
            return f"p{partition}.{epoch}", f"begins at {offset} from the snapshot at {snapshot}{wrong}"
        case SnapshotListed(partition=partition, epoch=epoch, offset=offset):
            return f"p{partition}.{epoch}", f"lists a snapshot at {offset}"
        case PopFailed(consumer=consumer, error=error):
            return consumer, f"gets an error for its pop: {error}"
        case SpineStarted(epoch=epoch, host=host):
            return f"spine.{epoch}", f"starts on host {host}"
        case Incident(what=what):
            return "world", what
        case CodeFailed(who=who, error=error):
            return who, f"fails: {error}"
        case WorldEnded(left=left):
            return "world", f"ends; left: {left}"
        case DrivenNote(who=who, text=text):
            return who, text


def _text(operation: Any) -> str:
    shown = ", ".join(str(value) for value in operation if value not in (None, "", (), 0, -1))
    return f"{type(operation).__name__}({shown})"
