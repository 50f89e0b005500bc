"""Small and quick, so that a life of a second meets everything."""

from typing import Final

from holdfast.log.maintenance import MaintenanceSettings
from holdfast.log.settings import LogSettings
from holdfast.objects.retry import RetrySettings
from holdfast.vocabulary.settings import KIB

WAL_FILE_BYTES: Final = 16 * KIB
LOG: Final = LogSettings(
    reserve_offsets=16,
    unpublished_bytes_max=16 * KIB,
    room_wait_ms=200,
    shared_below_bytes=2_000,
    segment_keys_max=4,
    index_entries_max=16,
    publish_tick_ms=15,
    publish_retry_ms=20,
    object_interval_ms=15,
)
UPKEEP: Final = MaintenanceSettings(
    grace_ms=100,
    orphan_grace_ms=30,
    unproven_keep_ms=0,  # no store is restored here
    index_interval_ms=30,
    trash_interval_ms=40,
    orphan_interval_ms=50,
    orphan_full_interval_ms=300,
    lease_retry_ms=50,
)
# Objects that fail on purpose are given up soon; others only by a machine that stands still.
RETRIES: Final = RetrySettings(deadline_ms=2_000, pause_ms=5, pause_ms_max=50)
RETRIES_OF_FAILING: Final = RetrySettings(deadline_ms=300, pause_ms=5, pause_ms_max=50)
