"""What a batch leaves in logs and in the store, and what leaders send each other about it.

    heap-batch/{topic id}/{batch}   {"partitions"}    the batch is committed; kept until every partition has resolved it

There is no record of an abort. A batch that is not committed can be committed only by its coordinator, under the epochs that its
partitions had when they prepared; once one of these has changed, a batch without a key is aborted for good.
"""

from typing import Final, NamedTuple

import msgspec

from holdfast.vocabulary.settings import check_between

PARTITIONS_MAX: Final = 64  # a commit has 100 operations at most, and requires an epoch of each
BATCHES: Final = "heap-batch/"


class Prepared(NamedTuple):
    """A record: messages of a batch are in this log, and wait for what the coordinator decides.

    `epoch`: of the leader that wrote it. The coordinator leads the batch's lowest partition, at `coordinator_epoch`.
    """

    batch: str
    epoch: int
    coordinator: int
    coordinator_epoch: int
    partitions: tuple[int, ...]
    messages: tuple[int, ...]  # offsets


class Resolved(NamedTuple):
    """A record: the messages of a batch are ready, or are no more."""

    batch: str
    committed: bool


class Forgotten(NamedTuple):
    """A record of the coordinator's partition: everybody has resolved the batch, and its key is gone."""

    batch: str


class Decision(msgspec.Struct, frozen=True):
    """The value of a batch's key: it is committed, in these partitions."""

    partitions: tuple[int, ...]


def decision_key(topic_id: str, batch: str) -> str:
    """Where the decision about a batch is."""
    return f"{BATCHES}{topic_id}/{batch}"


def check_partitions(count: int) -> None:
    """`InvalidError`: a batch in so many partitions could not be decided by one commit."""
    check_between("partitions of a batch", count, 1, PARTITIONS_MAX)
