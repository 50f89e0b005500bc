"""The events of a cluster as text; those of the store as in the world of leases."""

from holdfast.sim import transcript
from holdfast.sim.cluster.history import (
    ClusterEvent,
    ObjectDeleted,
    OffsetCommitted,
    OffsetFetched,
    ReadingFinished,
    RecordsAcknowledged,
    RecordsRead,
    RecordsSent,
    RecordsServed,
    SequenceRefused,
)


def describe_cluster(event: ClusterEvent) -> tuple[str, str]:
    """Who did it, and what."""
    match event:
        case RecordsSent(producer=producer, partition=partition, agent=agent, values=values):
            return producer, f"sends {', '.join(values)} for {partition} to {agent}"
        case RecordsAcknowledged(producer=producer, partition=partition, base_offset=base, values=values):
            return producer, f"{', '.join(values)} acknowledged at {base} of {partition}"
        case SequenceRefused(producer=producer, partition=partition, refusal=refusal):
            return producer, f"is refused by {partition}: {refusal}"
        case RecordsServed(agent=agent, partition=partition, epoch=epoch, high_watermark=end):
            return agent, f"serves a read of {partition} in epoch {epoch}, high watermark {end}"
        case RecordsRead(reader=reader, partition=partition, start=start, end=end, records=records):
            shown = ", ".join(f"{offset}={value}" for offset, value in records)
            return reader, f"reads {partition} from {start} to {end}: {shown}"
        case ReadingFinished(reader=reader, partition=partition):
            return reader, f"has read all of {partition}"
        case OffsetCommitted(group=group, partition=partition, offset=offset):
            return group, f"has committed {offset} of {partition}"
        case OffsetFetched(group=group, partition=partition, offset=offset):
            return group, f"is told {offset} of {partition}"
        case ObjectDeleted(key=key):
            return "bucket", f"deletes {key}"
        case _:
            return transcript.describe(event)
