"""Groups that are written without the interpreter: the bytes, the order and the errors of the writer's own code."""

import asyncio
import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.support.wal import OTHER, SMALL, TOPIC, crash_copy, frame, offsets, opened, payload_of, turns

from holdfast.log.wal import Wal, WalDisk, WalFrame, WalSettings
from holdfast.log.wal.append_queue import CommitGroup, PendingAppend
from holdfast.log.wal.frames import EPOCH_START, FRAME_BYTES, NOTE, Buffer, FileHeader, encode_head
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.alignment import DISK_BLOCK_BYTES
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import CorruptError, UnavailableError
from holdfast.vocabulary.native import native
from holdfast.vocabulary.random import SeededRandom
from holdfast.vocabulary.settings import KIB, MIB
from holdfast.vocabulary.tracked_memory import anonymous_mmap

pytestmark = pytest.mark.skipif(not WalDisk.without_interpreter, reason="there is no native queue here")

MARK = FileHeader(7, 9, MIB, 0).mark
LARGE = WalSettings(file_bytes=MIB, files_spare_max=3, read_bytes=64 * KIB)


class CountingDisk(WalDisk):
    """A subclass: it is asked for every group."""

    def __init__(self) -> None:
        self.groups = 0

    def write_blocks(self, descriptor: int, buffers: Sequence[Buffer], memory: memoryview, position: int) -> int:
        self.groups += 1
        return super().write_blocks(descriptor, buffers, memory, position)


def entry(written: WalFrame) -> PendingAppend:
    size = sum(len(part) for part in written.payload) + FRAME_BYTES
    return PendingAppend(written, size, lambda error: None)


class Lane:
    """A queue, a file, and memory."""

    def __init__(self, path: Path, *, position: int = 4096, file_bytes: int = MIB) -> None:
        assert native is not None
        path.write_bytes(bytes(file_bytes))
        self.queue = native.AppendQueue(CommitGroup)
        self.path, self.position, self.lsn, self.begun = path, position, 5, b""
        self.file_bytes, self.replicated, self.group_bytes_max = file_bytes, False, MIB
        self.descriptor = os.open(path, os.O_RDWR)
        self._memory = memoryview(anonymous_mmap(MIB))

    def append(self, *frames: WalFrame, plain: bool = True) -> None:
        for each in frames:
            self.queue.append(entry(each), plain)

    def serve(self) -> tuple[int, list[PendingAppend], list[int]]:
        self.position, self.begun, self.lsn, error, failed, heads = self.queue.serve(
            self.descriptor, self._memory, self.begun, self.position, self.file_bytes, MARK, self.lsn, 7,
            self.replicated, self.group_bytes_max,
        )  # fmt: skip
        return error, failed, heads

    def serve_and_drain(self) -> list[CommitGroup]:
        """The groups that are written until one needs Python, each told to the loop before the next."""
        told: list[CommitGroup] = []
        serving = threading.Thread(target=self.serve, daemon=True)
        serving.start()
        while serving.is_alive():
            told += self.queue.drain()
        return told + self.queue.drain()

    def serve_to_the_end(self) -> tuple[int, list[PendingAppend], list[int]]:
        self.queue.close()
        return self.serve()


@pytest.fixture
def lane(tmp_path: Path) -> Lane:
    return Lane(tmp_path / "file")


def expected(frames: Sequence[WalFrame], lsn: int) -> bytes:
    """What the writer's own code would write of one group."""
    made = b""
    for at, each in enumerate(frames):
        payload = b"".join(bytes(part) for part in each.payload)
        made += encode_head(MARK, lsn + at, lsn - 1, each, len(payload)) + payload
    return made


def test_a_group_has_the_bytes_that_python_would_write(lane: Lane) -> None:
    frames = [
        frame(3, size=0),
        frame(4, partition=2**31 - 1, count=9, size=5000, topic_id=OTHER),
        frame(2**62)._replace(kind=NOTE, epoch=2**63 - 1, payload=(b"a", bytearray(b"bc"), memoryview(b"def"))),
        frame(5)._replace(checksum=123_456),
    ]
    lane.append(*frames)
    assert lane.serve_to_the_end() == (0, [], [])
    written = expected(frames, 5)
    assert lane.path.read_bytes()[4096 : 4096 + len(written)] == written
    assert (lane.position, lane.lsn, lane.begun) == (4096 + len(written), 9, written[-(len(written) % 4096) :])
    [group] = lane.queue.drain()
    assert [each.frame for each in group.entries] == frames
    assert (group.first_lsn, group.size, group.generation) == (5, len(written), 7)
    assert group.positions == [4096, 4192, 4192 + 5096, 4192 + 5096 + 102]
    assert group.write_ns > 0 <= group.handover_ns
    assert group.synced_at_ns > 0


def test_groups_follow_each_other_through_blocks(lane: Lane) -> None:
    """Each begins where the one before ended, in the middle of a block or at its end."""
    written = b""
    for lsn, size in enumerate([10, 4096 - 96 - 106, 1, 9000, 4096], start=5):
        lane.append(frame(lsn, size=size))
        taking = threading.Thread(target=lane.serve, daemon=True)
        taking.start()
        while not lane.queue.drain():
            pass
        lane.append(frame(0), plain=False)  # ends it
        taking.join()
        assert lane.queue.popleft().frame == frame(0)
        written += expected([frame(lsn, size=size)], lsn)
        assert lane.path.read_bytes()[4096 : 4096 + len(written)] == written
        assert not lane.path.read_bytes()[4096 + len(written) :].strip(b"\0")


def test_what_is_not_plain_is_left_where_it_is(lane: Lane) -> None:
    ours, theirs = frame(1), frame(2, size=64 * KIB)
    for odd, plain in (
        (theirs, True),
        (theirs._replace(payload=(b"",)), False),
        (theirs._replace(payload=()), True),
        (theirs._replace(payload=(b"x",), kind=EPOCH_START), True),
        (frame(2)._replace(payload=(b"x",) * 65), True),
    ):
        lane.append(ours)
        lane.append(odd, plain=plain)
        lane.append(ours)
        assert lane.serve() == (0, [], [])
        assert len(lane.queue) == 2
        assert lane.serve() == (0, [], [])  # again, and it does not wait
        assert lane.queue.popleft().frame.base_offset == 2
        assert lane.queue.popleft().frame == ours
        assert [len(group.entries) for group in lane.queue.drain()] == [1]
    lane.replicated = True
    lane.append(frame(3)._replace(kind=EPOCH_START))
    assert lane.serve_to_the_end() == (0, [], [])
    assert [len(group.entries) for group in lane.queue.drain()] == [1]


def test_the_next_group_grows_until_the_loop_knows_of_the_one_before(lane: Lane) -> None:
    lane.append(frame(0))
    serving = threading.Thread(target=lane.serve, daemon=True)
    serving.start()
    while lane.path.read_bytes()[4096:4100] != MARK[:4]:
        pass
    lane.append(frame(1))
    lane.append(frame(2))
    serving.join(0.05)
    assert len(lane.queue) == 2
    lane.append(frame(3))
    told: list[CommitGroup] = []
    while len(told) < 2:
        told += lane.queue.drain()
    assert [len(group.entries) for group in told] == [1, 3]
    lane.queue.close()
    serving.join()


def test_a_group_that_cannot_grow_does_not_wait_for_the_loop(lane: Lane) -> None:
    lane.group_bytes_max = 3 * (FRAME_BYTES + 100)
    lane.append(frame(0))
    serving = threading.Thread(target=lane.serve, daemon=True)
    serving.start()
    while len(lane.queue):
        pass
    lane.append(*[frame(offset) for offset in range(1, 6)])
    while len(lane.queue) > 2:
        pass
    serving.join(0.05)
    assert len(lane.queue) == 2  # less than a group
    lane.append(frame(6))
    while len(lane.queue):
        pass
    told = lane.queue.drain()
    while len(told) < 3:
        told += lane.queue.drain()
    assert [len(group.entries) for group in told] == [1, 3, 3]
    lane.queue.close()
    serving.join()


def test_a_group_ends_with_its_limit_and_with_the_file(tmp_path: Path) -> None:
    lane = Lane(tmp_path / "file", file_bytes=16 * KIB + 100)  # the last block is not whole: it is not written
    lane.group_bytes_max = 2 * (FRAME_BYTES + 900)
    lane.append(*[frame(offset, size=900) for offset in range(20)])
    assert [len(group.entries) for group in lane.serve_and_drain()] == [2] * 6
    assert lane.position == 4096 + 12 * 996
    assert len(lane.queue) == 8
    first = lane.queue.first
    assert first is not None
    assert first.frame.base_offset == 12
    assert lane.queue.pushed_at_ns > 0
    assert [each.frame.base_offset for each in lane.queue.take_all()] == list(range(12, 20))
    assert len(lane.queue) == 0
    assert lane.queue.first is None
    assert lane.queue.pushed_at_ns == 0


def test_a_group_that_fails_is_returned_with_the_reason(lane: Lane) -> None:
    lane.append(frame(1), frame(2))
    lane.descriptor = os.open("/dev/full", os.O_RDWR)
    error, failed, heads = lane.serve_to_the_end()
    assert (error, heads) == (errno.ENOSPC, [4096, 4292])
    assert [each.frame for each in failed] == [frame(1), frame(2)]
    assert (lane.position, lane.lsn, lane.queue.drain(), len(lane.queue)) == (4096, 5, [], 0)


def test_reports_come_in_the_order_of_what_happened(lane: Lane) -> None:
    lane.append(frame(1))
    lane.append(frame(2), plain=False)
    assert lane.serve() == (0, [], [])
    lane.queue.report("between")
    lane.queue.popleft()
    lane.append(frame(3))
    assert lane.serve_to_the_end() == (0, [], [])
    lane.queue.report("after")
    said = [each if isinstance(each, str) else each.entries[0].frame.base_offset for each in lane.queue.drain()]
    assert said == [1, "between", 3, "after"]
    assert lane.queue.drain() == []


def test_bad_arguments_are_refused(lane: Lane) -> None:
    assert native is not None
    with pytest.raises(TypeError):
        lane.queue.append((), True)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        native.AppendQueue(list)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        native.AppendQueue(group_type=CommitGroup)  # type: ignore[call-arg]
    with pytest.raises(IndexError):
        lane.queue.popleft()
    with pytest.raises(ValueError, match="another size"):
        lane.queue.append(entry(frame(1))._replace(size=FRAME_BYTES + 1), True)
    with pytest.raises(ValueError, match="16 bytes"):
        lane.queue.append(entry(frame(1, topic_id=b"short")), True)
    with pytest.raises(TypeError):
        lane.queue.append(entry(frame(1))._replace(frame=frame(1)._replace(epoch="one")), True)  # type: ignore[arg-type]
    lane.begun = b"a block has not begun"
    with pytest.raises(ValueError, match="aligned memory"):
        lane.serve()
    assert len(lane.queue) == 0


async def written_by(directory: Path, disk: WalDisk) -> Path:
    """The same appends in the same groups, and in files that are filled to the end."""
    async with opened(directory, disk=disk, settings=LARGE) as wal:
        for offset in range(60):
            payload = payload_of(0, offset, 70_000 if offset % 13 == 5 else offset * 997 % 30_000)
            # In two parts: the gap before a large one depends on where it lies in memory.
            await wal.append(frame(offset)._replace(payload=(payload[:7], payload[7:])))
        return crash_copy(directory, directory.with_name(directory.name + "-crashed"))


async def test_both_writers_leave_the_same_files(tmp_path: Path) -> None:
    asked = CountingDisk()
    by_python = await written_by(tmp_path / "python", asked)
    by_queue = await written_by(tmp_path / "queue", WalDisk())
    assert asked.groups == 60
    # The next file may have its name already, or not.
    live = {path.name for path in by_python.glob("0*.wal")} & {path.name for path in by_queue.glob("0*.wal")}
    assert len(live) > 1
    for name in live:
        # The header has the time it was made at.
        assert (by_python / name).read_bytes()[DISK_BLOCK_BYTES:] == (by_queue / name).read_bytes()[DISK_BLOCK_BYTES:]
    assert await offsets(by_queue, settings=LARGE) == [(0, offset) for offset in range(60)]


async def test_callbacks_come_in_order_whoever_wrote_the_group(tmp_path: Path) -> None:
    rng, told = SeededRandom(3).random, list[int]()
    async with opened(tmp_path / "wal", settings=LARGE) as wal:
        for offset in range(2_000):
            size = 70_000 if rng.random() < 0.02 else rng.randrange(3_000)
            await wal.room(size)
            wal.append_with_callback(frame(offset, size=size), lambda error, at=offset: told.append(at))  # type: ignore[misc]
            if rng.random() < 0.3:
                await turns(rng.randrange(3))
            if offset % 100 == 99:
                wal.release(TOPIC, 0, told[-1] if told else 0)
        await wal.append(frame(2_000))
    assert told == list(range(2_000))


def blocks_of(wal: Wal) -> object:
    return wal._writer._blocks


async def test_a_full_disk_refuses_a_group_of_the_queue_and_all_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.open("/dev/full", os.O_RDWR)
    async with opened(tmp_path / "wal") as wal:
        await wal.append(frame(0))
        await wal.append(
            frame(1),
        )
        blocks = blocks_of(wal)
        with failpoints.installed(lambda name: None):  # its thread comes back from native code, with the file
            await wal.append(frame(2))
            monkeypatch.setattr(blocks, "_descriptor", full)
        answers = [wal.append(frame(offset)) for offset in (3, 4, 5)]
        refused = await asyncio.gather(*answers, return_exceptions=True)
        assert [type(each) for each in refused] == [UnavailableError] * 3
        monkeypatch.undo()
        assert await asyncio.gather(*(wal.append(frame(offset)) for offset in (3, 4))) == [4, 5]
        crashed = crash_copy(tmp_path / "wal", tmp_path / "crashed")
    for directory in (tmp_path / "wal", crashed):
        assert await offsets(directory) == [(0, offset) for offset in range(5)]
    os.close(full)


async def meet_an_error(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_only = os.open("/dev/null", os.O_RDONLY)  # the WAL closes it
    async with opened(directory) as wal:
        await wal.append(frame(0))
        with failpoints.installed(lambda name: None):
            await wal.append(frame(1))
            monkeypatch.setattr(blocks_of(wal), "_descriptor", read_only)
        for offset in (2, 3):
            with pytest.raises(CorruptError):
                await wal.append(frame(offset))
        await RealClock().sleep_ms(30_000)


async def test_any_other_error_ends_the_wal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CorruptError, match="Bad file descriptor"):
        await meet_an_error(tmp_path / "wal", monkeypatch)
    assert await offsets(tmp_path / "wal") == [(0, 0), (0, 1)]


async def test_a_callback_that_raises_does_not_keep_the_others_from_theirs(tmp_path: Path) -> None:
    def broken(error: BaseException | None) -> None:
        raise RuntimeError("on purpose")

    async with opened(tmp_path / "wal") as wal:
        await wal.append(frame(0))
        wal.append_with_callback(frame(1), broken)
        assert await wal.append(frame(2)) == 3


async def close_with_a_report_that_raises(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(group: CommitGroup) -> None:
        raise RuntimeError("on purpose")

    others = set(threading.enumerate())
    async with opened(directory) as wal:
        await wal.append(frame(0))
        writer = wal._writer
        [thread] = (each for each in set(threading.enumerate()) - others if each.name == "wal-writer")
        close = writer.close

        def close_and_join() -> None:  # the last group and the end of the thread are reported together
            close()
            thread.join()

        monkeypatch.setattr(writer, "close", close_and_join)
        monkeypatch.setattr(writer, "_reports", writer._reports._replace(synced=broken))
        wal.append_with_callback(frame(1), lambda error: None)


async def test_a_report_that_raises_ends_the_wal_and_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(10):
        with pytest.raises(CorruptError, match="on purpose"):
            await close_with_a_report_that_raises(tmp_path / "wal", monkeypatch)


async def test_a_failpoint_sees_every_group(tmp_path: Path) -> None:
    seen: list[str] = []
    async with opened(tmp_path / "wal") as wal:
        for offset in range(3):
            await wal.append(frame(offset))
        with failpoints.installed(seen.append):
            for offset in range(3, 6):
                await wal.append(frame(offset))
        for offset in range(6, 9):
            await wal.append(frame(offset))
    assert seen.count("wal.group-synced") == 3


async def test_payloads_are_let_go_of_when_they_are_durable(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal") as wal:
        await wal.append(frame(0))
        for offset in range(1, 5):
            payload = bytearray(payload_of(0, offset, 100))
            await wal.append(frame(offset)._replace(payload=(payload,)))
            payload += b"it could not grow if anybody looked at it"
    assert await offsets(tmp_path / "wal") == [(0, offset) for offset in range(5)]


async def test_what_is_queued_at_the_end_is_written(tmp_path: Path) -> None:
    async with opened(tmp_path / "wal", settings=SMALL) as wal:
        answers = [wal.append(frame(offset)) for offset in range(300)]
    assert await asyncio.gather(*answers) == list(range(1, 301))
    assert await offsets(tmp_path / "wal") == [(0, offset) for offset in range(300)]
