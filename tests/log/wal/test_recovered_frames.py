"""What a crash left: each partition's frames are read by themselves, however much of others' stands between them."""

from pathlib import Path

import pytest
from tests.support.wal import TOPIC, fill, frame, opened

from holdfast.log.wal import file_reader, recovered_frames
from holdfast.vocabulary.errors import CorruptError

PARTITIONS, EACH = 20, 30


@pytest.mark.slow
async def test_reading_every_partition_by_itself_reads_each_frame_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames = (frame(offset, partition=part, size=500) for offset in range(EACH) for part in range(PARTITIONS))
    await fill(tmp_path / "wal", frames)
    read: list[int] = []

    def counted(reader: file_reader.WalReader, mark: bytes, at: int) -> object:
        read.append(at)
        return file_reader.read_frame(reader, mark, at)

    async with opened(tmp_path / "wal") as wal:
        monkeypatch.setattr(recovered_frames, "read_frame", counted)
        monkeypatch.setattr(recovered_frames, "walk", None)  # which goes over a whole file
        for part in range(PARTITIONS):
            assert [each.base_offset async for each in wal.recovered.of(TOPIC, part)] == list(range(EACH))
    assert len(read) == PARTITIONS * EACH


async def test_a_frame_that_became_unreadable_is_reported(tmp_path: Path) -> None:
    await fill(tmp_path / "wal", (frame(offset, partition=offset % 2, size=500) for offset in range(20)))
    async with opened(tmp_path / "wal") as wal:
        file = wal._file_references.files[0]
        at = file.places[TOPIC, 1][3]
        with file.path.open("r+b") as damaged:
            damaged.seek(at + 100)
            damaged.write(b"\xff" * 8)
        assert len([each async for each in wal.recovered.of(TOPIC, 0)]) == 10
        with pytest.raises(CorruptError, match=str(at)):
            [each async for each in wal.recovered.of(TOPIC, 1)]
