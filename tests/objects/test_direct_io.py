"""Direct I/O: the same bytes, whatever the sizes, and whatever the file system supports."""

import fcntl
import hashlib
import os
import socket
from pathlib import Path

import pytest

from holdfast.contracts.objects import Missing
from holdfast.objects import direct_io
from holdfast.objects.buffer_pool import BufferPool
from holdfast.objects.direct_io import read_direct
from holdfast.objects.folder import FolderObjects, FolderSettings
from holdfast.objects.folder_disk import FolderDisk
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom
from holdfast.vocabulary.settings import MIB
from holdfast.vocabulary.tracked_memory import anonymous_mmap


def noise(size: int) -> bytes:
    return hashlib.shake_256(str(size).encode()).digest(size)


def write(path: Path, parts: list[bytes]) -> int:
    disk = FolderDisk()
    descriptor = disk.create(path)
    try:
        size = disk.write(descriptor, parts)
        assert not fcntl.fcntl(descriptor, fcntl.F_GETFL) & getattr(os, "O_DIRECT", 0)
        disk.sync(descriptor)
    finally:
        disk.close(descriptor)
    return size


@pytest.fixture(params=["C", "Python"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both twins, where the C one was built."""
    if request.param == "Python":
        monkeypatch.setattr(direct_io, "write_blocks", direct_io._write_blocks)
    elif direct_io.write_blocks is direct_io._write_blocks:
        pytest.skip("the C kernel was not built: no compiler")
    return str(request.param)


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
    monkeypatch.setattr(direct_io, "write_blocks", direct_io._write_blocks)  # the C kernel does not ask Python to write
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
    monkeypatch.setattr(direct_io, "write_blocks", direct_io._write_blocks)
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[: MIB // 2]))
    parts = [noise(2 * MIB + 9)]
    write(tmp_path / "file", parts)
    assert (tmp_path / "file").read_bytes() == parts[0]


def test_a_system_without_direct_io_uses_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_io, "_FLAG", 0)
    parts = [noise(2 * MIB + 9)]
    write(tmp_path / "file", parts)
    assert (tmp_path / "file").read_bytes() == parts[0]


@pytest.mark.parametrize("room", [100, 96, 32, 16])
def test_a_write_that_falls_short_or_fails_ends_it_with_what_was_written(room: int) -> None:
    parts, memory = [memoryview(noise(40)), memoryview(b""), memoryview(noise(60_000))], memoryview(bytearray(room))
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    try:
        if room >= 32:
            assert direct_io.write_blocks(writer, [memoryview(noise(200))], memory, 32) == 192
            assert os.read(reader, 1 << 20) == noise(200)[:192]
            written = direct_io.write_blocks(writer, parts * 3, memory, 32)
            assert 0 < written < 180_120  # the pipe is full
            assert os.read(reader, 1 << 20) == b"".join(bytes(part) for part in parts * 3)[:written]
        else:
            with pytest.raises(ValueError, match="at least one block"):
                direct_io.write_blocks(writer, parts, memory, 32)
        os.close(reader)
        assert direct_io.write_blocks(writer, parts, memoryview(bytearray(64)), 32) == 0
    finally:
        os.close(writer)


def test_no_write_is_larger_than_the_memory_though_a_part_lies_where_it_is_written_from(kernel: str) -> None:
    """A log that is synced on the same disk waits behind each of them."""
    part, memory = memoryview(anonymous_mmap(100_000)), memoryview(anonymous_mmap(4_096))
    part[:] = noise(100_000)
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)  # one packet for each write
    with reader, writer:
        parts = [memoryview(noise(4_032)), part, memoryview(noise(96))]
        assert direct_io.write_blocks(writer.fileno(), parts, memory, 32) == 104_128
        packets = [reader.recv(1 << 20) for _ in range(26)]
        reader.setblocking(False)
        with pytest.raises(BlockingIOError):
            reader.recv(1)
    assert b"".join(packets) == b"".join(parts)
    assert max(map(len, packets)) <= 4_096


def test_what_is_copied_between_parts_that_are_not_lets_none_be_written_as_a_whole(kernel: str) -> None:
    first, last = memoryview(anonymous_mmap(67_584)), memoryview(anonymous_mmap(70_016))
    memory = memoryview(anonymous_mmap(4_096))
    first[:], last[:] = noise(67_584), noise(70_016)
    parts = [first, memoryview(noise(3_008)), last]  # more is named than fits, once the second is
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with reader, writer:
        writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        assert direct_io.write_blocks(writer.fileno(), parts, memory, 32) == 140_608
        reader.setblocking(False)
        packets: list[bytes] = []
        with pytest.raises(BlockingIOError):
            packets.extend(iter(lambda: reader.recv(1 << 20), b""))
    assert b"".join(packets) == b"".join(parts)
    assert max(map(len, packets)) < 2 * 4_096


RANGES = [
    (0, MIB),
    (1, MIB + 1),
    (4096, MIB + 4096),
    (5_000, 3 * MIB + 123),
    (4 * MIB + 70, 5 * MIB + 77),
    (0, 5 * MIB + 77),
]


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large"
    write(path, [noise(5 * MIB + 77)])
    return path


@pytest.mark.parametrize(("start", "end"), RANGES)
def test_a_range_read_past_the_cache_is_the_range(large: Path, start: int, end: int) -> None:
    found = read_direct(large, start, end, BufferPool(64 * MIB))
    assert found is not None
    assert found.readonly
    assert found == large.read_bytes()[start:end]


def test_a_range_beyond_the_end_is_read_through_the_cache(large: Path) -> None:
    assert read_direct(large, 0, 6 * MIB, BufferPool(64 * MIB)) is None
    assert read_direct(large.with_name("missing"), 0, MIB, BufferPool(64 * MIB)) is None


def test_a_refused_or_failed_direct_read_falls_back_to_the_cache(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.preadv

    def short(descriptor: int, buffers: list[memoryview], at: int) -> int:
        return real(descriptor, [buffers[0][:8192]], at)

    monkeypatch.setattr(os, "preadv", short)  # whole blocks: it goes on
    found = read_direct(large, 10, MIB + 10, BufferPool(MIB))
    assert found is not None
    assert found == large.read_bytes()[10 : MIB + 10]
    monkeypatch.setattr(os, "preadv", lambda *_: 100)
    assert read_direct(large, 0, MIB, BufferPool(MIB)) is None

    def refused(*_: object) -> int:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "preadv", refused)
    assert read_direct(large, 0, MIB, BufferPool(MIB)) is None
    monkeypatch.setattr(direct_io, "_FLAG", 0)
    assert read_direct(large, 0, MIB, BufferPool(MIB)) is None


async def test_a_folder_reads_large_ranges_directly_and_reports_missing_objects(tmp_path: Path) -> None:
    body = noise(3 * MIB)
    async with FolderObjects.open(
        tmp_path, clock=RealClock(), random=SystemRandom(), settings=FolderSettings()
    ) as objects:
        await objects.put("a", [body])
        found = await objects.get("a", start=7, end=2 * MIB)
        assert isinstance(found, memoryview)
        assert found == body[7 : 2 * MIB]
        assert await objects.get("a", start=7, end=4 * MIB) == body[7:]
        assert isinstance(await objects.get("b", start=0, end=2 * MIB), Missing)
