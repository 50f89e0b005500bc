"""Offsets and timestamps that are names: what ListOffsets and OffsetFetch mean by a negative number."""

from typing import Final

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
NO_PRODUCER_ID: Final = -1
NO_LEADER: Final = -1
