"""The write-ahead log: framing, files used again and again, group commit, recovery, inspection and repair."""

from holdfast.log.wal.disk import WalDisk
from holdfast.log.wal.frames import DATA, NOTE, WalFrame
from holdfast.log.wal.settings import WalSettings
from holdfast.log.wal.wal import Wal, WalHistograms, WalStats

__all__ = ["DATA", "NOTE", "Wal", "WalDisk", "WalFrame", "WalHistograms", "WalSettings", "WalStats"]
