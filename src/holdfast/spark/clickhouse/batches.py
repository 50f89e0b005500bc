"""What is recorded of a batch, and what a commit does about it. Pure.

The one rule: what was recorded first counts. A batch that was begun is finished with the rows it was begun with, and one that
is done is left alone; if it is repeated with other rows, that is an error or, with `onDifferentReplay=keep`, a warning.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from holdfast.spark.clickhouse.errors import BatchBlockedError, ReplayDiffersError


class RowPiece(msgspec.Struct, frozen=True, array_like=True):
    """Rows that are staged under one token."""

    token: str
    rows: int


class Insert(msgspec.Struct, frozen=True, array_like=True):
    """The pieces that become one insert into the table."""

    tokens: list[str]
    rows: int


class Plan(msgspec.Struct, frozen=True):
    """Where the rows of a batch are staged, and the inserts they become, in order."""

    staged_table: str
    staged_batch: str
    inserts: list[Insert]


_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(Plan)


def encode_plan(plan: Plan) -> str:
    """As it is recorded."""
    return _encoder.encode(plan).decode()


def decode_plan(text: str) -> Plan:
    """The plan that `encode_plan` wrote."""
    return _decoder.decode(text)


@dataclass(frozen=True, slots=True)
class Content:
    """Rows as a set: their number, and a hash that does not depend on their order."""

    rows: int
    hash: int

    def __str__(self) -> str:
        return f"{self.rows} rows (hash {self.hash:016x})"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRecord:
    """The last batch of a generation."""

    batch: int
    done: bool
    epoch: int
    run: str
    content: Content
    plan: Plan


class CommitStep(Enum):
    """What a commit does about its batch."""

    BEGIN = "record it, then insert its rows"
    RESUME = "insert the recorded rows that are missing"
    SKIP = "it is done"


def next_step(
    last: BatchRecord | None, batch: int, content: Content, *, what: str, keep: bool, replaces: bool
) -> CommitStep:
    """`ReplayDiffersError`, `BatchBlockedError`. `replaces`: the batch is the table's whole content; repeating it is harmless."""
    if last is None or batch > last.batch:
        return CommitStep.BEGIN
    if batch < last.batch:
        reason = (
            f"{last.batch} is recorded already, and batches only go forward. Was an old checkpoint restored? "
            "Then start under another scope or writeId, after a look at what the table has"
        )
        raise BatchBlockedError(what, reason)
    if content == last.content and last.done:
        return CommitStep.SKIP
    if replaces:
        return CommitStep.BEGIN
    if content != last.content and not keep:
        raise ReplayDiffersError(what, str(last.content), str(content))
    return CommitStep.SKIP if last.done else CommitStep.RESUME


def plan_inserts(pieces: Sequence[RowPiece], rows_max: int) -> Iterator[Insert]:
    """Pieces in order, as few inserts of at most `rows_max` rows as they fill; a larger piece is an insert of its own."""
    tokens: list[str] = []
    rows = 0
    for piece in pieces:
        if tokens and rows + piece.rows > rows_max:
            yield Insert(tokens, rows)
            tokens, rows = [], 0
        tokens.append(piece.token)
        rows += piece.rows
    if tokens:
        yield Insert(tokens, rows)
