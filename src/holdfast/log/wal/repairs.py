"""What earlier repairs of a WAL lost, as the owners of partitions need to know it. Pure.

The one rule (docs/safety.md, rule 24): where a repair lost something of a partition, or may have, its offsets are not handed out
again.
"""

from collections.abc import Iterable

from holdfast.log.wal.recovery import PartitionKey
from holdfast.log.wal.repair import RepairReport


class LossesOfRepairs:
    """The repairs a WAL went through."""

    def __init__(self, reports: Iterable[RepairReport]) -> None:
        self._all_since = 0  # the last repair after which nobody knows whose frames are missing
        self._last: dict[PartitionKey, int] = {}
        self.last_repair = 0
        for report in reports:
            self.last_repair = max(self.last_repair, report.number)
            if report.missing_lsns:
                self._all_since = max(self._all_since, report.number)
            for frame in (*report.in_doubt, *report.lost):
                key = (bytes.fromhex(frame.topic_id), frame.partition)
                self._last[key] = max(report.number, self._last.get(key, 0))

    def affect(self, partition: PartitionKey, *, since: int) -> bool:
        """Whether a repair after number `since` may have lost something of the partition."""
        return max(self._all_since, self._last.get(partition, 0)) > since
