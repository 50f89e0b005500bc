"""Bugs to be caught: each switches off one rule of the log, in the child alone."""

from collections.abc import Iterable
from typing import Final

import pytest

from holdfast.log.partition import takeover_recovery
from holdfast.log.partition.leading_partition import LeadingPartition
from holdfast.log.partition.producer_recovery import ProducerRecovery
from holdfast.log.partition.publisher import SegmentPublisher
from holdfast.log.wal import Wal
from holdfast.vocabulary.errors import UnavailableError

PLANTED: Final = ("clear-buffer", "ack-before-sync", "show-before-durable", "forget-producers", "forget-tail")


class ClearingPublisher(SegmentPublisher):
    """Clears the buffer although the upload failed."""

    wal: Wal

    async def publish(self, partitions: Iterable[LeadingPartition], *, closing: bool = False) -> list[LeadingPartition]:
        chosen = list(partitions)
        try:
            return await super().publish(chosen, closing=closing)
        except UnavailableError:
            for each in chosen:
                sent = each.publishable()
                if sent:
                    end = sent[-1].end_offset
                    each.tail.forget_until(end)
                    self.wal.release(bytes.fromhex(each.partition_id.topic_id), each.partition_id.number, end)
            raise


def plant(bug: str, patch: pytest.MonkeyPatch) -> None:
    """Put a bug into this process; the two that are not here are where the child builds its disk and its publisher."""
    if bug == "show-before-durable":
        patch.setattr(LeadingPartition, "high_watermark", property(lambda self: getattr(self, "_next", self._durable)))
    elif bug == "forget-producers":

        def nobody(self: ProducerRecovery, *_: object, **__: object) -> None:
            """Remembers nobody."""
            self.done = True

        patch.setattr(ProducerRecovery, "_apply", nobody)
    elif bug == "forget-tail":

        async def nothing(*_: object) -> None:
            """Recovers nothing."""

        patch.setattr(takeover_recovery, "recover_tail", nothing)
