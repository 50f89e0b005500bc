"""Bugs to be caught: each switches off one rule of the log, in the child alone."""

from collections.abc import Iterable
from typing import Final

import pytest

from holdfast.log.partition import opening
from holdfast.log.partition.leading import LeadingPartition
from holdfast.log.partition.producers import Producers
from holdfast.log.partition.publishing import Publisher
from holdfast.log.wal import Wal
from holdfast.vocabulary.errors import UnavailableError

PLANTED: Final = ("clear-buffer", "ack-before-sync", "show-before-durable", "forget-producers", "forget-tail")


class ClearingPublisher(Publisher):
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
                    self.wal.release(bytes.fromhex(each.place.topic_id), each.place.number, end)
            raise


def plant(bug: str, patch: pytest.MonkeyPatch) -> None:
    """Put a bug into this process; the two that are not here are where the child builds its disk and its publisher."""
    if bug == "show-before-durable":
        patch.setattr(LeadingPartition, "high_watermark", property(lambda self: self.next_offset))
    elif bug == "forget-producers":

        async def nobody(*_: object) -> Producers:
            """Remembers nobody."""
            return Producers()

        patch.setattr(opening, "_producers", nobody)
    elif bug == "forget-tail":

        async def nothing(*_: object) -> None:
            """Recovers nothing."""

        patch.setattr(opening, "recover_tail", nothing)
