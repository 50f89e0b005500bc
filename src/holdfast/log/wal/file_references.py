"""The ledger: which partitions still need which file. No I/O.

The one rule: files go oldest first, and only once every partition in them was released or moved to a later one, so that the LSNs
on disk have no holes.
"""

from array import array
from collections.abc import Iterable

from holdfast.log.wal.recovery import LiveFile, PartitionKey


class FileReferences:
    """The live files, oldest first; the last one is being written."""

    def __init__(self, files: Iterable[LiveFile]) -> None:
        self.files = list(files)
        self._released: dict[PartitionKey, int] = {}  # below which offset, of those that are still needed

    @property
    def current(self) -> LiveFile:
        """The file that is being written."""
        return self.files[-1]

    @property
    def live_bytes(self) -> int:
        """What the live files occupy."""
        return sum(file.header.file_bytes for file in self.files)

    def unreleased(self) -> dict[PartitionKey, int]:
        """Each partition with something in the WAL, and its end offset there."""
        ends: dict[PartitionKey, int] = {}
        for file in self.files:
            for partition, end_offset in file.needed.items():
                ends[partition] = max(end_offset, ends.get(partition, 0))
        return ends

    def holding_oldest(self) -> frozenset[PartitionKey]:
        """The partitions that keep the oldest file from being used again."""
        return frozenset(self.files[0].needed) if len(self.files) > 1 else frozenset()

    def rolled(self, file: LiveFile) -> None:
        """From now on frames go into `file`."""
        self.files.append(file)

    def release(self, partition: PartitionKey, below_offset: int) -> list[LiveFile]:
        """Note that nothing of `partition` below the offset is needed; returns the files that are not needed any more."""
        left = False
        for file in self.files:
            end_offset = file.needed.get(partition)
            if end_offset is None:
                continue
            if end_offset > below_offset:
                left = True
            else:
                del file.needed[partition]
                file.sizes.pop(partition, None)
                file.places.pop(partition, None)  # nobody reads it any more
        if left:
            self._released[partition] = below_offset
        else:
            self._released.pop(partition, None)
        return self.free()

    def end_lsn(self, file: LiveFile) -> int:
        """Behind the last frame of a file that is not the current one."""
        return self.files[self.files.index(file) + 1].first_lsn

    def is_live(self, file: LiveFile, partition: PartitionKey, end_offset: int) -> bool:
        """Whether a frame in `file` that ends at `end_offset` is still needed."""
        return partition in file.needed and end_offset > self._released.get(partition, 0)

    def copy_source(self, files_max: int) -> LiveFile | None:
        """The file whose frames should be copied forward: the oldest, if there are too many and half of their bytes are free.

        So a copy writes no more than it makes free, however much is needed for ever.
        """
        old = self.files[:-1]
        if len(self.files) <= files_max or not old[0].needed:
            return None
        used_bytes = sum(sum(file.sizes.values()) for file in old)
        return old[0] if 2 * used_bytes <= sum(file.header.file_bytes for file in old) else None

    def copied(self, partition: PartitionKey, end_offset: int, size: int, position: int, source: LiveFile) -> None:
        """A frame of `source` now stands in the current file as well."""
        current = self.current
        if partition in source.needed:  # else it was released meanwhile
            current.needed[partition] = max(end_offset, current.needed.get(partition, 0))
            current.sizes[partition] = current.sizes.get(partition, 0) + size
            current.places.setdefault(partition, array("q")).append(position)

    def moved(self, source: LiveFile) -> list[LiveFile]:
        """All that was needed of `source` stands in later files; returns the files that are not needed any more."""
        source.needed.clear()
        source.sizes.clear()
        source.places.clear()
        return self.free()

    def free(self) -> list[LiveFile]:
        """Take out the files at the old end that are not needed."""
        freed = []
        while len(self.files) > 1 and not self.files[0].needed:
            freed.append(self.files.pop(0))
        return freed
