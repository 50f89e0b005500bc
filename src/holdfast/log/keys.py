"""Where the log keeps what in the store.

    topic/{name}                        the topic's record, see `topics`
    topic-id/{topic id}                 which name an id has
    log/{topic id}/{n:05d}/state        a partition: published, reserved, start, epochs, whose WAL holds its tail
    log/{topic id}/{n:05d}/seg/{base}   a published segment: object, byte range, offsets, times (the newest 64 or so)
    log/{topic id}/{n:05d}/idx/{base}   an index object that lists older segments
    log/{topic id}/{n:05d}/snapshots    snapshots of what a service above keeps in the partition, see `partition_snapshots`
    log/{topic id}/{n:05d}/batch/{id}   a batch of a heap that is committed in several partitions, see `heap.batch.model`
    replicas/{topic id}/{n:05d}         which WALs keep its tail, and which of them keep up, see `replica_sets`
    wal/{wal id}                        which live agent has this WAL, under its session
    wal-agent/{wal id}                  which agent had this WAL last, alive or not, until nothing can refer to it
    offline/{resource}                  a lease whose holder cannot open the partition, and why; under the holder's session
    doomed/{object key}                 a sweeper is about to delete this object: it can no longer be published
    trash/{due ms}/{object key}         unlinked: to be deleted once readers that still plan with it are done
    counter/producer                    the next block of producer ids, see `producer_ids`
    deleted/{topic id}                  a topic that is no more: what it left behind is being removed

Offsets in keys are 20 digits, so that key order is offset order and the floor look-up finds the segment of an offset.
"""

from typing import Final

TOPICS: Final = "topic/"
TOPIC_IDS: Final = "topic-id/"
LOGS: Final = "log/"
REPLICA_SETS: Final = "replicas/"
WALS: Final = "wal/"
WAL_AGENTS: Final = "wal-agent/"
OFFLINE: Final = "offline/"
DELETION_MARKS: Final = "doomed/"
TRASH: Final = "trash/"
DELETED: Final = "deleted/"


def topic_key(name: str) -> str:
    """A topic's record."""
    return TOPICS + name


def topic_id_key(topic_id: str) -> str:
    """The name that belongs to a topic's id."""
    return TOPIC_IDS + topic_id


def partition_prefix(topic_id: str, number: int) -> str:
    """Everything of one partition."""
    return f"{LOGS}{topic_id}/{number:05d}/"


def state_key(topic_id: str, number: int) -> str:
    """The partition's record."""
    return partition_prefix(topic_id, number) + "state"


def replica_sets_prefix(topic_id: str) -> str:
    """Who keeps the tails of a topic's partitions."""
    return f"{REPLICA_SETS}{topic_id}/"


def replica_set_key(topic_id: str, number: int) -> str:
    """Who keeps the tail of a partition."""
    return f"{replica_sets_prefix(topic_id)}{number:05d}"


def segments_prefix(topic_id: str, number: int) -> str:
    """The newest segments."""
    return partition_prefix(topic_id, number) + "seg/"


def segment_entry_key(topic_id: str, number: int, base_offset: int) -> str:
    """One segment."""
    return f"{segments_prefix(topic_id, number)}{base_offset:020d}"


def indexes_prefix(topic_id: str, number: int) -> str:
    """Index objects of older segments."""
    return partition_prefix(topic_id, number) + "idx/"


def index_entry_key(topic_id: str, number: int, base_offset: int) -> str:
    """One index object."""
    return f"{indexes_prefix(topic_id, number)}{base_offset:020d}"


def snapshots_key(topic_id: str, number: int) -> str:
    """The snapshots of what a service above keeps in the partition."""
    return partition_prefix(topic_id, number) + "snapshots"


def wal_key(wal_id: str) -> str:
    """The agent that has a WAL open."""
    return WALS + wal_id


def wal_agent_key(wal_id: str) -> str:
    """The agent that had a WAL last."""
    return WAL_AGENTS + wal_id


def offline_key(resource: str) -> str:
    """The mark of a partition that the holder of its lease cannot open."""
    return OFFLINE + resource


def deletion_mark_key(object_key: str) -> str:
    """The mark that bars an object from being published."""
    return DELETION_MARKS + object_key


def trash_key(object_key: str, due_ms: int) -> str:
    """An unlinked object, in the order in which they are to be deleted."""
    return f"{TRASH}{due_ms:013d}/{object_key}"


def deleted_key(topic_id: str) -> str:
    """The mark of a deleted topic."""
    return DELETED + topic_id
