"""Gaps: offsets below the high watermark that no batch has, because a takeover skipped them. Pure.

The one rule (docs/safety.md, rule 22): a reader at such an offset gets batches without records over the gap, and goes on behind it,
as Kafka's clients do in a compacted log. They are made when they are read and stored nowhere: that covers every gap there ever was,
costs no object for a takeover, and needs no write before a new leader serves. Readers of listed segments step over gaps anyway.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from holdfast.log.batches import encode
from holdfast.log.leader_epochs import epoch_at
from holdfast.log.segments.model import EpochStart

_OFFSETS_MAX: Final = 1 << 31  # of one batch: the last offset is a signed 32-bit delta


def gap_batches(start: int, end: int, *, epoch: int, bytes_max: int) -> list[bytes]:
    """Batches without records over [`start`, `end`): at least one, and no more than `bytes_max` hold.

    `epoch` is the one that led at the end of the gap: a client that validates its position by it finds that it ended there.
    """
    covering: list[bytes] = []
    size_bytes = 0
    while start < end:
        until = min(end, start + _OFFSETS_MAX)
        batch = encode([], base_offset=start, last_offset=until - 1, leader_epoch=epoch)
        size_bytes += len(batch)
        if covering and size_bytes > bytes_max:
            break
        covering.append(batch)
        start = until
    return covering


def gap_batches_by_epoch(start: int, end: int, epochs: Sequence[EpochStart], *, bytes_max: int) -> list[bytes]:
    """The same over the gaps of several takeovers: each with its epoch, as who read there before the later ones has got it."""
    starts = [each.start_offset for each in epochs if start < each.start_offset < end]
    covering: list[bytes] = []
    for begin, until in pairwise((start, *starts, end)):
        left = bytes_max - sum(map(len, covering))
        if covering and left <= 0:
            break
        covering += gap_batches(begin, until, epoch=epoch_at(epochs, until - 1), bytes_max=left)
    return covering
