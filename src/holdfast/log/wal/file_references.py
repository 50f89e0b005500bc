"""The ledger: which partitions still need which file. No I/O.

The one rule: files go oldest first, and only once every partition in them was released, so that the LSNs on disk have no holes.
"""

from collections.abc import Iterable

from holdfast.log.wal.recovery import LiveFile, PartitionKey


class FileReferences:
    """The live files, oldest first; the last one is being written."""

    def __init__(self, files: Iterable[LiveFile]) -> None:
        self.files = list(files)

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
            ends.update(file.needed)
        return ends

    def holding_oldest(self) -> frozenset[PartitionKey]:
        """The partitions that keep the oldest file from being used again."""
        return frozenset(self.files[0].needed) if len(self.files) > 1 else frozenset()

    def rolled(self, file: LiveFile) -> None:
        """From now on frames go into `file`."""
        self.files.append(file)

    def release(self, partition: PartitionKey, below_offset: int) -> list[LiveFile]:
        """Note that nothing of `partition` below the offset is needed; returns the files that are not needed any more."""
        for file in self.files:
            end_offset = file.needed.get(partition)
            if end_offset is not None:
                if end_offset > below_offset:
                    break  # later files hold later offsets
                del file.needed[partition]
        return self.free()

    def free(self) -> list[LiveFile]:
        """Take out the files at the old end that are not needed."""
        freed = []
        while len(self.files) > 1 and not self.files[0].needed:
            freed.append(self.files.pop(0))
        return freed
