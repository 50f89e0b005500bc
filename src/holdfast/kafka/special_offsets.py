"""Negative offsets and timestamps with a meaning. No other module spells one as a number.

ListOffsets (and a consumer that commits "earliest") uses the first group in place of a timestamp or an offset; the second group
stands for an absent value.
"""

from typing import Final

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_EPOCH: Final = -1
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
NO_NODE: Final = -1
NO_GENERATION: Final = -1
