"""Writing past the page cache: the same bytes, whatever the sizes, and whatever the file system says."""

import fcntl
import hashlib
import os
from pathlib import Path

import pytest

from holdfast.objects import direct
from holdfast.objects.disk import Disk
from holdfast.vocabulary.settings import MIB


def noise(size: int) -> bytes:
    return hashlib.shake_256(str(size).encode()).digest(size)


def write(path: Path, parts: list[bytes]) -> int:
    disk = Disk()
    descriptor = disk.create(path)
    try:
        size = disk.write(descriptor, parts)
        assert not fcntl.fcntl(descriptor, fcntl.F_GETFL) & getattr(os, "O_DIRECT", 0)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    return size


SIZES = [[MIB], [MIB - 1, 1], [MIB + 1], [3 * MIB + 5_000], [1, MIB, 4095, 0, 2 * MIB], [100_000] * 37, [10, 20, 30]]


@pytest.mark.parametrize("sizes", SIZES)
def test_the_file_holds_exactly_the_parts(tmp_path: Path, sizes: list[int]) -> None:
    parts = [noise(size) for size in sizes]
    assert write(tmp_path / "file", parts) == sum(sizes)
    assert (tmp_path / "file").read_bytes() == b"".join(parts)


@pytest.mark.parametrize("fails_after", [0, 1, 2])
def test_a_file_system_that_refuses_gets_the_rest_through_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_after: int
) -> None:
    real, calls = os.write, [0]

    def refusing(descriptor: int, data: memoryview) -> int:
        calls[0] += 1
        if calls[0] > fails_after:
            raise OSError(22, "Invalid argument")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", refusing)
    parts = [noise(4 * MIB + 77)]
    write(tmp_path / "file", parts)
    assert (tmp_path / "file").read_bytes() == parts[0]


def test_short_writes_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[: MIB // 2]))
    parts = [noise(2 * MIB + 9)]
    write(tmp_path / "file", parts)
    assert (tmp_path / "file").read_bytes() == parts[0]


def test_a_system_without_direct_writes_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "_FLAG", 0)
    parts = [noise(2 * MIB + 9)]
    write(tmp_path / "file", parts)
    assert (tmp_path / "file").read_bytes() == parts[0]
