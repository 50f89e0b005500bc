"""Settings of the WAL. Values only; the clock, the chance and the disk are components."""

from dataclasses import dataclass

from holdfast.log.wal.frames import FRAME_BYTES, FRAMES_AT
from holdfast.vocabulary.settings import KIB, MIB, check_at_least, check_between


@dataclass(frozen=True, slots=True, kw_only=True)
class WalSettings:
    """Values an operator may tune."""

    file_bytes: int = 64 * MIB  # size of a file; no frame can be larger than one
    files_spare_max: int = 8  # released files kept for reuse; more are deleted
    group_bytes_max: int = 4 * MIB  # a group is cut here, so that its first append does not wait for ever
    group_wait_ms: int = 0  # how long a group may wait for company; 0: it is whatever came during the last sync
    in_flight_bytes_max: int = 64 * MIB  # `room` waits while more than this is not yet durable
    read_bytes: int = 4 * MIB  # how much recovery reads at once
    copy_forward_files: int = (
        4  # with more live files, what keeps the oldest is copied forward if half of their bytes are free
    )
    copy_forward_bytes: int = 1 * MIB  # how much of that is in flight at once

    def __post_init__(self) -> None:
        check_between("file_bytes", self.file_bytes, 16 * KIB, 1024 * MIB)
        check_between("files_spare_max", self.files_spare_max, 0, 10_000)
        check_at_least("group_bytes_max", self.group_bytes_max, 1)
        check_between("group_wait_ms", self.group_wait_ms, 0, 10)
        check_at_least("in_flight_bytes_max", self.in_flight_bytes_max, 1)
        check_between("read_bytes", self.read_bytes, 4 * KIB, 256 * MIB)
        check_at_least("copy_forward_files", self.copy_forward_files, 1)
        check_at_least("copy_forward_bytes", self.copy_forward_bytes, 1)

    @property
    def payload_bytes_max(self) -> int:
        """The largest payload of one frame."""
        return self.file_bytes - FRAMES_AT - FRAME_BYTES
