"""Settings and counters of the heaps of one process. What is set per heap is in `config`."""

from dataclasses import dataclass

from holdfast.heap.model import MESSAGES_MAX
from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapSettings:
    """Values an operator may tune.

    payload_cache_bytes_max  Payloads of recent messages kept in RAM, of all heaps of a process. Others are read from the log.
    read_ahead_bytes_max     Messages that are popped next and not kept so, read from the log together, of all heaps of a process.
    spill_bytes_max          Messages of a large backlog, copied into files beside the WAL in the order of pops, of all heaps:
                             at most so much, and a quarter of what is free there. 0: none.
    spill_bytes_per_s        Such a backlog is copied at this rate at most before it is popped; then without a limit. 0: not before.
    spill_idle_ms            What was read ahead, in memory and in files, is given up when nobody has popped for this time.
    dedup_entries_max        Sequence numbers that a partition remembers. Beyond it the older half is forgotten, and refused; it is
                             looked at once a minute.
    append_bytes             Operations that arrive together are one record batch of about this size at most. One that is read is
                             decoded whole.
    enqueue_bytes_max        Payload bytes of one batch enqueue.
    enqueue_messages_max     Messages of one batch enqueue. It is applied in one step: 10,000 take 50 ms.
    pop_messages_max         Messages that one pop may ask for.
    reopen_ms                Pause before a heap partition that could not be opened, or failed, is opened again.
    move_retry_ms            Pause before messages on their way to another heap are sent again.
    spine_shards             Leases that the spines of a store are spread over; fixed by the first agent that serves heaps.
    snapshot_interval_ms     Between two snapshots of a partition, if enough has happened.
    snapshot_records_min     Records since the last snapshot that are worth another one.
    snapshot_records_max     After so many one is taken before its time: the next leader reads them again, about three
                             microseconds each.
    snapshot_pause_ms        Between two snapshots of a partition at least, if the interval is not shorter.
    trim_interval_ms         Between two looks at what of a partition's history may go.
    copy_bytes_per_s         Messages that outlive their history are written again at this rate at most, for each partition.
    reserved_messages_max    Messages of batches that are not decided, in one partition. Beyond it batches are refused.
    batches_max              Batches over several partitions that a process coordinates at once. Beyond it they are refused.
    batch_wait_ms            How long the coordinator of a batch waits for a partition's answer, and for the store's.
    batch_resolve_ms         A batch that is prepared and not resolved for so long is looked up, and again after as long.
    spine_wait_ms            How long an operation waits until its spine knows of it. Then its outcome is unknown to who asked,
                             who may ask again. Less than clients wait.
    tell_spine_ms            After this time a spine is told of messages that became ready within its budget.
    """

    payload_cache_bytes_max: int = 32 * MIB
    read_ahead_bytes_max: int = 64 * MIB
    spill_bytes_max: int = 1024 * MIB
    spill_bytes_per_s: int = 64 * MIB
    spill_idle_ms: int = 300_000
    dedup_entries_max: int = 1_000_000
    append_bytes: int = 64 * KIB
    enqueue_bytes_max: int = 16 * MIB
    enqueue_messages_max: int = 10_000
    pop_messages_max: int = 10_000
    reopen_ms: int = 1_000
    move_retry_ms: int = 500
    spine_shards: int = 4
    spine_wait_ms: int = 20_000
    tell_spine_ms: int = 50
    reserved_messages_max: int = 100_000
    batches_max: int = 1_000
    batch_wait_ms: int = 10_000
    batch_resolve_ms: int = 1_000
    snapshot_interval_ms: int = 600_000
    snapshot_records_min: int = 1_000
    snapshot_records_max: int = 500_000
    snapshot_pause_ms: int = 5_000
    trim_interval_ms: int = 60_000
    copy_bytes_per_s: int = 8 * MIB

    def __post_init__(self) -> None:
        check_at_least("payload_cache_bytes_max", self.payload_cache_bytes_max, 0)
        check_at_least("read_ahead_bytes_max", self.read_ahead_bytes_max, 0)
        check_at_least("spill_bytes_max", self.spill_bytes_max, 0)
        check_at_least("spill_bytes_per_s", self.spill_bytes_per_s, 0)
        check_at_least("spill_idle_ms", self.spill_idle_ms, 1)
        check_at_least("dedup_entries_max", self.dedup_entries_max, 100)
        check_between("append_bytes", self.append_bytes, KIB, 8 * MIB)
        check_between("enqueue_bytes_max", self.enqueue_bytes_max, KIB, 16 * MIB)
        check_between("enqueue_messages_max", self.enqueue_messages_max, 1, MESSAGES_MAX)
        check_between("pop_messages_max", self.pop_messages_max, 1, 100_000)
        check_at_least("reopen_ms", self.reopen_ms, 1)
        check_at_least("move_retry_ms", self.move_retry_ms, 1)
        check_between("spine_shards", self.spine_shards, 1, 1_000)
        check_at_least("spine_wait_ms", self.spine_wait_ms, 1)
        check_at_least("tell_spine_ms", self.tell_spine_ms, 1)
        check_at_least("reserved_messages_max", self.reserved_messages_max, 1)
        check_at_least("batches_max", self.batches_max, 1)
        check_at_least("batch_wait_ms", self.batch_wait_ms, 1)
        check_at_least("batch_resolve_ms", self.batch_resolve_ms, 1)
        check_at_least("snapshot_interval_ms", self.snapshot_interval_ms, 100)
        check_at_least("snapshot_records_min", self.snapshot_records_min, 1)
        check_at_least("snapshot_records_max", self.snapshot_records_max, 1)
        check_at_least("snapshot_pause_ms", self.snapshot_pause_ms, 0)
        check_at_least("trim_interval_ms", self.trim_interval_ms, 100)
        check_at_least("copy_bytes_per_s", self.copy_bytes_per_s, KIB)
