"""The state of a query in the store: its plan, its producer, and its next sequences.

    spark-sink/query/stream/{query id}   a streaming query
    spark-sink/query/write/{writeId}     a batch write with a name, or a series of them
    spark-sink/query/once/{token}        a batch write without a name, while it runs
    spark-sink/swept                     pieces staged before this hour are being deleted: no plan may refer to them

The one rule: at most one plan per query. A plan is written by a commit that requires the state, without a plan, at the version the
planner read; so a batch never has a second plan, and the next batch is planned only after this one is done.
"""

import base64
from typing import Final

import msgspec

from holdfast.client.producer import SEQUENCE_MODULUS, TopicRef
from holdfast.contracts.store import Absent, AtVersion, Entry, Requirement
from holdfast.spark.sink.pieces import StagedPieceList, hour_in, pack, unpack
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.settings import KIB

QUERY_PREFIX: Final = "spark-sink/query/"
SWEEP_MARK_KEY: Final = "spark-sink/swept"
UNNAMED_WRITE_PREFIX: Final = "once/"

INLINE_LIST_BYTES_MAX: Final = 96 * KIB
"""A larger list of pieces is an object of its own."""
STATE_BYTES_MAX: Final = 400 * KIB


class PublishPlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is being published. The list of pieces is `listed` in base 64, or the object `list_key`.

    `starts`: the end of each partition when this was planned; nothing of the plan is before it. By topic id.
    """

    listed: str = ""
    list_key: str = ""
    oldest_hour: int = -1
    starts: dict[str, dict[int, int]]


class QueryState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A query. With a `plan`, batch `batch` is being published; without, it is done.

    `sequences`: the next sequence of each partition after the last batch that is done; by topic id.
    """

    batch: int
    producer_id: int
    producer_epoch: int
    sequences: dict[str, dict[int, int]] = {}
    plan: PublishPlan | None = None
    changed_at_ms: int


class SweepMark(msgspec.Struct, frozen=True):
    """Pieces staged before hour `before_hour` are being deleted."""

    before_hour: int
    at_ms: int


def query_state_key(query: str) -> str:
    """The key of a query's state."""
    return QUERY_PREFIX + query


def decode_query_state(entry: Entry) -> QueryState:
    """The state in an entry."""
    return msgspec.json.decode(entry.value, type=QueryState)


def encode_query_state(state: QueryState) -> bytes:
    """The state as it is stored. A query over too many partitions for one value is refused."""
    value = msgspec.json.encode(state)
    if len(value) > STATE_BYTES_MAX:
        raise InvalidError(
            "size of a query's state", len(value), f"at most {STATE_BYTES_MAX} bytes: write to fewer partitions"
        )
    return value


def decode_sweep_mark(entry: Entry | None) -> SweepMark:
    """The sweep mark; hour 0 if the sweeper never ran."""
    return msgspec.json.decode(entry.value, type=SweepMark) if entry is not None else SweepMark(0, 0)


def unchanged(key: str, entry: Entry | None) -> Requirement:
    """The requirement that the key is as it was read."""
    return AtVersion(key, entry.version) if entry is not None else Absent(key)


def encode_piece_list(pieces: StagedPieceList) -> str:
    """The list as text for a plan; empty if it is too large."""
    packed = pack(pieces)
    return base64.b64encode(packed).decode() if len(packed) <= INLINE_LIST_BYTES_MAX else ""


def decode_piece_list(text: str) -> StagedPieceList:
    """The list in a plan."""
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


def next_sequences(state: QueryState, pieces: StagedPieceList) -> dict[str, dict[int, int]]:
    """The next sequences once the pieces are published."""
    after = {topic: dict(of_topic) for topic, of_topic in state.sequences.items()}
    for target, counts in record_counts(pieces).items():
        of_topic = after.setdefault(target.id, {})
        for partition, count in counts.items():
            of_topic[partition] = (of_topic.get(partition, 0) + count) % SEQUENCE_MODULUS
    return after
