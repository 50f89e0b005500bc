"""Batches that were refused because their partition was not led here: this process may lead it in a moment.

Only the first refused batch of each producer is kept, bounded in number and time: what comes next must not overtake it.
"""

from collections.abc import Iterable

from holdfast.log.batches import BatchHeader, Buffer, parse_header
from holdfast.log.batches.header import HEADER_BYTES
from holdfast.log.partition.producer_state import MISSED_MAX, MISSED_MS


class MissedBatches:
    """The missed batches of one process. False while there are none."""

    def __init__(self) -> None:
        # By topic id and partition, then by producer id and epoch.
        self._missed: dict[tuple[str, int], dict[tuple[int, int], tuple[BatchHeader, int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._missed)

    def __contains__(self, partition: tuple[str, int]) -> bool:
        """Whether there are any of the partition with this topic id and number."""
        return partition in self._missed

    def note(self, topic_id: str, partition: int, payload: Buffer, now_ms: int) -> None:
        """The first batch of a payload was refused."""
        if len(payload) < HEADER_BYTES:
            return
        header = parse_header(payload)
        if header.producer_id >= 0:
            noted = self._missed.setdefault((topic_id, partition), {})
            who = (header.producer_id, header.producer_epoch)
            if who not in noted or now_ms - noted[who][1] >= MISSED_MS:
                noted[who] = (header, now_ms)
            if len(noted) > MISSED_MAX:
                del noted[next(iter(noted))]
            if len(self._missed) > MISSED_MAX:
                del self._missed[next(iter(self._missed))]

    def take(self, topic_id: str, partition: int) -> Iterable[tuple[BatchHeader, int]]:
        """What was missed of a partition, each with its time; nothing of it is kept."""
        return self._missed.pop((topic_id, partition), {}).values()
