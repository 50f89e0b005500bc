"""Replicas that nobody counts any more: their logs are dropped, and what a deleted topic left goes with its promise.

The one rule: the store says so, and a log is dropped only if no recovery can be counting it (`Replica.drop`). A log that is being
written is left alone: its leader may be bringing it up. One that cannot be read begins anew under the same conditions, or if it has
nothing of the epoch that was opened last.
"""

import logging
from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.contracts.key_reads import read_keys
from holdfast.contracts.store import Store
from holdfast.log.keys import state_key, topic_id_key
from holdfast.log.metadata import PartitionRecord
from holdfast.log.replication.hosted_replica import HostedReplica, name_of
from holdfast.log.replication.positions import NOWHERE, PartitionKey
from holdfast.log.replication.replica_host import ReplicaHost
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.errors import OutcomeUnknownError, UnavailableError
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)

_CHUNK: Final = 100  # replicas looked up in one call


async def keep_dropping(host: ReplicaHost, store: Store, *, clock: Clock, random: Random) -> None:
    """Ask the store now and then, until cancelled. Without an answer everything is kept."""
    while True:
        await clock.sleep_ms(random.jitter(host.settings.check_ms))
        try:
            await drop_unneeded(host, store, now_ms=clock.boot_ms())
        except (UnavailableError, OutcomeUnknownError) as error:
            _log.info("replicas that may not be needed are kept for now: %s", error)


async def drop_unneeded(host: ReplicaHost, store: Store, *, now_ms: int) -> int:
    """Drop what the store says is not needed, of replicas that no leader has written to lately; how many."""
    idle = [each for each in host.replicas if now_ms - each.written_at_ms >= host.settings.check_ms]
    dropped = 0
    for at in range(0, len(idle), _CHUNK):
        dropped += await _drop_chunk(host, idle[at : at + _CHUNK], store)
    return dropped


def drop_log(host: ReplicaHost, partition: PartitionKey, record: PartitionRecord) -> bool:
    """Drop the log of a partition's replica here, if there is one, and this record, which the store has, says that it may be."""
    hosted = host.get(partition)
    return hosted is not None and _drop(host, hosted, record)


async def _drop_chunk(host: ReplicaHost, replicas: Sequence[HostedReplica], store: Store) -> int:
    records = await _records(store, [each.partition for each in replicas])
    unknown = sorted({topic_id_key(key[0].hex()) for key, record in records.items() if record is None})
    topics = await read_keys(store, unknown) if unknown else {}
    dropped = 0
    for hosted in replicas:
        record = records[hosted.partition]
        if host.get(hosted.partition) is not hosted:
            continue
        if record is not None and hosted.failure:
            dropped += await _begin_anew(host, hosted, record)
        elif record is not None:
            dropped += _drop(host, hosted, record)
        elif topic_id_key(hosted.partition[0].hex()) not in topics:
            host.forget(hosted.partition)
            dropped += 1
    return dropped


async def _records(store: Store, partitions: Sequence[PartitionKey]) -> dict[PartitionKey, PartitionRecord | None]:
    """What the store has of each; None: nothing, the topic was deleted or the partition never led."""
    keys = {state_key(topic_id.hex(), number): (topic_id, number) for topic_id, number in partitions}
    found = await read_keys(store, list(keys))
    decoded = {keys[key]: msgspec.json.decode(entry.value, type=PartitionRecord) for key, entry in found.items()}
    return {key: decoded.get(key) for key in partitions}


async def _begin_anew(host: ReplicaHost, hosted: HostedReplica, record: PartitionRecord) -> bool:
    if not await hosted.begin_anew(record.opened_epoch, record.opened_replicas, record.published):
        return False
    host.counters.dropped_logs += 1
    _log.warning(
        "replica of %s, which could not be read, begins anew: nobody needs what it had", name_of(hosted.partition)
    )
    return True


def _drop(host: ReplicaHost, hosted: HostedReplica, record: PartitionRecord) -> bool:
    replica = hosted.replica
    if replica is None:
        return False
    if not len(replica.log) and replica.log.base == NOWHERE:  # dropped before: others have published more since
        hosted.release_published(record.published)
        return False
    size_bytes = replica.log.size_bytes
    if not hosted.drop(record.opened_epoch, record.opened_replicas, record.published):
        return False
    host.counters.dropped_logs += 1
    _log.info(
        "replica of %s dropped %d bytes: epoch %d was opened without it",
        name_of(hosted.partition),
        size_bytes,
        record.opened_epoch,
    )
    return True
