"""What stands in the store about a query: its plan, its producer, and how far its sequences have come.

    spark-sink/query/stream/{query id}   a streaming query
    spark-sink/query/write/{writeId}     a batch write with a name, or a series of them
    spark-sink/query/once/{token}        a batch write without one, as long as it lasts
    spark-sink/swept                     pieces staged before this hour are being deleted: no plan may name them any more

The one rule: one record, one plan. A plan is written by a commit that requires the record as the planner saw it, done; so there is
never a second plan for the same batch, and the next one begins only when this one is done.
"""

import base64
from typing import Final

import msgspec

from holdfast.contracts.store import Absent, AtVersion, Entry, Requirement
from holdfast.spark.sink.pieces import StagedPieceList, TopicRef, hour_in, pack, unpack
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB

QUERY_PREFIX: Final = "spark-sink/query/"
SWEEP_MARK_KEY: Final = "spark-sink/swept"
UNNAMED_WRITE_PREFIX: Final = "once/"

INLINE_LIST_BYTES_MAX: Final = 96 * KIB
"""A larger list of pieces is an object of its own."""
STATE_BYTES_MAX: Final = 400 * KIB

SEQUENCE_MODULUS: Final = 1 << 31  # after 2³¹-1 comes 0


class PublishPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is being published. The list of pieces is `listed` in base 64, or under `list_key`.

    `starts`: where each partition ended when this was planned: nothing of it can stand before that. By topic id.
    """

    listed: str = ""
    list_key: str = ""
    oldest_hour: int = -1
    starts: dict[str, dict[int, int]]


class QueryState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A query's record. With a `plan`, batch `batch` is being published; without, it is done.

    `sequences`: the next number of each partition, as of the last batch that is done; by topic id.
    """

    batch: int
    producer_id: int
    producer_epoch: int
    sequences: dict[str, dict[int, int]] = {}
    plan: PublishPlan | None = None
    changed_at_ms: int


class SweepMark(msgspec.Struct, frozen=True):
    """How far the sweeper has come."""

    before_hour: int
    at_ms: int


def query_state_key(query: str) -> str:
    """Where a query's record is."""
    return QUERY_PREFIX + query


def decode_query_state(entry: Entry) -> QueryState:
    """The record of an entry."""
    return msgspec.json.decode(entry.value, type=QueryState)


def encode_query_state(ledger: QueryState) -> bytes:
    """The record as it is stored. A query over too many partitions for one value is refused."""
    value = msgspec.json.encode(ledger)
    if len(value) > STATE_BYTES_MAX:
        raise InvalidError("partitions of one query", f"a record of {len(value)} bytes", f"{STATE_BYTES_MAX} bytes")
    return value


def decode_sweep_mark(entry: Entry | None) -> SweepMark:
    """How far the sweeper has come; nowhere if it never ran."""
    return msgspec.json.decode(entry.value, type=SweepMark) if entry is not None else SweepMark(0, 0)


def unchanged(key: str, entry: Entry | None) -> Requirement:
    """What holds as long as nobody writes the key."""
    return AtVersion(key, entry.version) if entry is not None else Absent(key)


def encode_piece_list(pieces: StagedPieceList) -> str:
    """The list for a record; empty if it is too large for one."""
    packed = pack(pieces)
    return base64.b64encode(packed).decode() if len(packed) <= INLINE_LIST_BYTES_MAX else ""


def decode_piece_list(text: str) -> StagedPieceList:
    """The list of a record."""
    return unpack(base64.b64decode(text))


def oldest_staged_hour(keys: list[str]) -> int:
    """The earliest hour among objects; -1 without any."""
    return min(map(hour_in, keys), default=-1)


def record_counts(pieces: StagedPieceList) -> dict[TopicRef, dict[int, int]]:
    """Records by topic and partition."""
    counts: dict[TopicRef, dict[int, int]] = {target: {} for target in pieces.targets}
    for piece in pieces.pieces:
        for content in piece.contents:
            of_topic = counts[pieces.targets[content.target]]
            of_topic[content.partition] = of_topic.get(content.partition, 0) + sum(content.counts)
    return counts


def next_sequences(ledger: QueryState, pieces: StagedPieceList) -> dict[str, dict[int, int]]:
    """The next sequences once the pieces are published."""
    after = {topic: dict(of_topic) for topic, of_topic in ledger.sequences.items()}
    for target, counts in record_counts(pieces).items():
        of_topic = after.setdefault(target.id, {})
        for partition, count in counts.items():
            of_topic[partition] = (of_topic.get(partition, 0) + count) % SEQUENCE_MODULUS
    return after
