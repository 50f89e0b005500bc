"""Short ways to write down positions, entries, logs and messages of one partition."""

from typing import Any

from holdfast.log.replication.entry_log import EntryLog
from holdfast.log.replication.messages import Announce, Answer, Append, Base, ReadTail, Request, Seal
from holdfast.log.replication.positions import NOWHERE, Position, ReplicaEntry, epoch_start
from holdfast.log.replication.replica import Replica

P = (b"topic of 16 byte", 3)
WAL = "w1"


def at(epoch: int, offset: int) -> Position:
    return Position(epoch, offset)


def start(epoch: int, offset: int) -> ReplicaEntry:
    return epoch_start(epoch, offset)


def entry(epoch: int, offset: int, count: int = 1, data: bytes = b"") -> ReplicaEntry:
    return ReplicaEntry(epoch, offset, count, (data or b"%d:%d" % (epoch, offset),))


def log_of(*entries: ReplicaEntry, base: Position = NOWHERE) -> EntryLog:
    return EntryLog(base, entries)


def append(
    epoch: int, previous: Position, *entries: ReplicaEntry, hw: int = 0, published: Position = NOWHERE
) -> Append:
    return Append(partition=P, epoch=epoch, previous=previous, entries=entries, hw=hw, published=published)


def seal(epoch: int, wal_id: str = WAL) -> Seal:
    return Seal(partition=P, epoch=epoch, wal_id=wal_id)


def tail(epoch: int, begin: Position, bytes_max: int = 1 << 20) -> ReadTail:
    return ReadTail(partition=P, epoch=epoch, start=begin, bytes_max=bytes_max)


def base(epoch: int, published: Position) -> Base:
    return Base(partition=P, epoch=epoch, published=published)


def announce(epoch: int, hw: int, published: Position = NOWHERE) -> Announce:
    return Announce(partition=P, epoch=epoch, hw=hw, published=published)


def answer_of(replica: Replica, message: Request) -> Any:
    """The answer of a replica whose disk is quick."""
    replica.handle(message)
    return replica.durable()


def facts(answer: Answer | None) -> tuple[object, ...]:
    """The kind of an answer, and what it says but for the partition."""
    assert answer is not None
    assert answer.partition == P
    return type(answer), *(getattr(answer, name) for name in answer.__struct_fields__ if name != "partition")
