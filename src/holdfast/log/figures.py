"""What metrics show of the log: traffic by topic, and each partition that is led here. Counting is all it does.

The one rule: an append or a read counts with two additions, whatever the number of its records; the rest is read by who asks.
"""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(slots=True)
class TopicCounters:
    """Of one topic at this agent, since its process started."""

    appended_records: int = 0
    appended_bytes: int = 0
    read_bytes: int = 0


class TopicTraffic(dict[str, TopicCounters]):
    """Counters by topic."""

    def __missing__(self, topic: str) -> TopicCounters:
        made = self[topic] = TopicCounters()
        return made


class PartitionFigures(NamedTuple):
    """A partition that is led here. `replicas` is 0 unless it is replicated; `lag_records`: of the replica that is most behind."""

    topic: str
    number: int
    epoch: int
    start_offset: int
    end_offset: int
    unpublished_records: int
    unpublished_bytes: int
    oldest_unpublished_ms: int | None
    replicas: int = 0
    replicas_needed: int = 0
    in_sync: int = 0
    lag_records: int = 0
