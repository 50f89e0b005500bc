"""Messages as callers of heaps give and get them. Data only.

The collector of cycles does not look at those that there are many of (`gc=False`): what they hold can refer to nothing.
"""

from typing import Annotated, Final, NamedTuple

import msgspec

from holdfast.heap.records import Enqueue, Headers, Origin, ProducerSequence

# Elements of an array in a request. More are refused before they are read.
ENTRIES_MAX: Final = 100_000
MESSAGES_MAX: Final = 20_000


class NewMessage(msgspec.Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """A message to enqueue. `max_retries`: None for the heap's. `producer`: what makes the same enqueue again a duplicate.

    `pinned`: whoever sends it again sends it to the same partition, however many there are by then.
    """

    payload: bytes
    priority: int = 0
    delay_ms: int = 0
    max_retries: int | None = None
    partition_key: str | None = None
    producer: ProducerSequence | None = None
    headers: Annotated[Headers, msgspec.Meta(max_length=ENTRIES_MAX)] = ()
    origin: Origin | None = None
    fairness_key: str | None = None
    pinned: bool = False


class Enqueued(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of an enqueue. `duplicate`: the message was there already."""

    message_id: str
    duplicate: bool
    partition: int


class StoredMessage(NamedTuple):
    """A message as its record in the log has it."""

    enqueue: Enqueue
    enqueued_ms: int


class PoppedMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message that is leased to the caller until `lease_deadline_ms`. `attempts`: how often it failed before.

    `rank_bound`: its rank among the heap's messages that were ready is at most this. 0: the caller chose the partition.
    `limited`: the heap has limits of keys or rates, and the bound is among the messages that none of them held back.
    `visibility_ms`: how long it is leased; 0: an older release does not say.
    """

    message_id: str
    topic: str
    partition: int
    payload: bytes
    priority: int
    enqueued_ms: int
    lease_token: bytes
    lease_deadline_ms: int
    attempts: int
    max_retries: int
    producer: ProducerSequence | None
    partition_key: str | None
    headers: Headers
    rank_bound: int = 0
    fairness_key: str | None = None
    limited: bool = False
    visibility_ms: int = 0


class PeekedMessage(NamedTuple):
    """A message that waits. `origin`: where it was before it was moved here, of dead letters."""

    message_id: str
    partition: int
    payload: bytes
    priority: int
    enqueued_ms: int
    attempts: int
    partition_key: str | None
    headers: Headers
    origin: Origin | None
    fairness_key: str | None = None


class PartitionStats(NamedTuple):
    """A partition as of now, and what happened in it since its first record.

    `reserved`: messages of batches over several partitions that are not decided; nobody sees them yet.
    `keys`: fairness keys it tells apart; `keys_at_limit`, `keys_at_rate`: those whose messages wait for a lease to end, or a rate.

    Of its newest snapshot: how large and how old it is (-1: there is none), and how long the last one taken here held up the loop.
    """

    partition: int
    ready: int
    delayed: int
    inflight: int
    moving: int
    enqueued: int
    granted: int
    acked: int
    nacked: int
    expired: int
    released: int
    moved: int
    cancelled: int
    duplicates: int
    snapshot_bytes: int = 0
    snapshot_age_ms: int = -1
    snapshot_pause_ms: float = 0.0
    reserved: int = 0
    keys: int = 0
    keys_at_limit: int = 0
    keys_at_rate: int = 0
