"""The folder engine: the order in which things reach the disk, crashes, and disks that fail."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.contracts.objects import AlreadyExists, Buffer, Missing, Stored
from holdfast.kernel.objects_owner import claim_objects
from holdfast.objects.folder import UPLOADS, FolderObjects, FolderSettings
from holdfast.objects.folder_disk import FolderDisk
from holdfast.stores.memory import MemoryStore
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import SystemRandom


class Watched(FolderDisk):
    """Records the calls, and fails at a selected one."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Path | None]] = []
        self.fail: dict[str, int] = {}  # which call → errno
        self._paths: dict[int, Path] = {}

    def _note(self, what: str, path: Path | None) -> None:
        if what in self.fail:
            raise OSError(self.fail[what], os.strerror(self.fail[what]), str(path))
        self.done.append((what, path))

    def create(self, path: Path) -> int:
        self._note("create", path)
        descriptor = super().create(path)
        self._paths[descriptor] = path
        return descriptor

    def write(self, descriptor: int, parts: Sequence[Buffer]) -> int:
        self._note("write", self._paths[descriptor])
        return super().write(descriptor, parts)

    def sync(self, descriptor: int) -> None:
        self._note("sync", self._paths[descriptor])
        super().sync(descriptor)

    def link(self, source: Path, target: Path) -> None:
        self._note("link", target)
        super().link(source, target)

    def unlink(self, path: Path) -> None:
        self._note("unlink", path)
        super().unlink(path)

    def make_folder(self, path: Path) -> None:
        self._note("make_folder", path)
        super().make_folder(path)

    def sync_folder(self, path: Path) -> None:
        self._note("sync_folder", path)
        super().sync_folder(path)


@asynccontextmanager
async def folder(root: Path, disk: FolderDisk | None = None, **settings: int) -> AsyncIterator[FolderObjects]:
    opened = FolderObjects.open(
        root, clock=RealClock(), random=SystemRandom(), settings=FolderSettings(**settings), disk=disk
    )
    async with opened as objects:
        yield objects


async def test_a_name_appears_after_its_bytes_are_synced_and_is_synced_before_the_answer(tmp_path: Path) -> None:
    disk, root = Watched(), tmp_path / "new" / "root"
    async with folder(root, disk) as objects:
        opened = list(disk.done)
        disk.done.clear()
        assert await objects.put("topic/0/a.seg", [b"one", b"two"]) == Stored("topic/0/a.seg", 6)
        upload = disk.done[0][1]
        assert upload is not None
        assert upload.parent == root / UPLOADS
        assert disk.done == [
            ("create", upload),
            ("write", upload),
            ("sync", upload),
            ("make_folder", root / "topic"),
            ("sync_folder", root),
            ("make_folder", root / "topic" / "0"),
            ("sync_folder", root / "topic"),
            ("link", root / "topic" / "0" / "a.seg"),
            ("sync_folder", root / "topic" / "0"),
            ("unlink", upload),
        ]
        disk.done.clear()
        await objects.put("topic/0/b.seg", [b"more"])  # the folders are known by now
        assert [what for what, _ in disk.done] == ["create", "write", "sync", "link", "sync_folder", "unlink"]
        disk.done.clear()
        await objects.delete(["topic/0/a.seg", "topic/0/b.seg", "topic/0/c.seg"])
        assert [what for what, _ in disk.done] == ["unlink", "unlink", "unlink", "sync_folder"]
    assert opened == [
        ("make_folder", tmp_path / "new"),
        ("sync_folder", tmp_path),
        ("make_folder", root),
        ("sync_folder", tmp_path / "new"),
        ("make_folder", root / UPLOADS),
        ("sync_folder", root),
    ]


async def test_a_losing_put_syncs_the_existing_name_too(tmp_path: Path) -> None:
    async with folder(tmp_path) as objects:
        await objects.put("a", [b"first"])
    disk = Watched()
    async with folder(tmp_path, disk) as objects:
        disk.done.clear()
        assert await objects.put("a", [b"second"]) == AlreadyExists("a")
        # The process that linked it may have died before the sync; it may even have been this one.
        assert disk.done[-2:] == [("sync_folder", tmp_path), ("unlink", disk.done[0][1])]


@pytest.mark.parametrize("step", ["create", "write", "sync", "make_folder", "link"])
async def test_a_disk_that_fails_leaves_nothing_behind(tmp_path: Path, step: str) -> None:
    disk = Watched()
    async with folder(tmp_path, disk) as objects:
        disk.fail = {step: errno.ENOSPC}
        with pytest.raises(UnavailableError, match="No space left on device"):
            await objects.put("t/a", [b"x" * 1000])
        disk.fail = {}
        assert list((tmp_path / UPLOADS).iterdir()) == []
        assert await objects.get("t/a") == Missing("t/a")
        assert await objects.put("t/a", [b"now"]) == Stored("t/a", 3)  # it recovers when space returns


async def test_a_name_that_could_not_be_synced_is_not_acknowledged(tmp_path: Path) -> None:
    disk = Watched()
    async with folder(tmp_path, disk) as objects:
        await objects.put("t/warm", [b""])
        disk.fail = {"sync_folder": errno.EIO}
        with pytest.raises(UnavailableError):
            await objects.put("t/a", [b"x"])
        with pytest.raises(UnavailableError):
            await objects.put("t/a", [b"x"])  # visible, but not durable
        disk.fail = {}
        assert await objects.put("t/a", [b"x"]) == AlreadyExists("t/a")


async def test_leftovers_of_dead_processes_are_removed_and_those_of_live_ones_are_not(tmp_path: Path) -> None:
    async with folder(tmp_path) as objects:
        await objects.put("a", [b"x"])
        (tmp_path / UPLOADS / "dead").write_bytes(b"half")
    async with folder(tmp_path, leftovers_ms=60_000):
        assert (tmp_path / UPLOADS / "dead").exists()
    two_hours_ago = RealClock().now_ms() / 1000 - 7_200
    os.utime(tmp_path / UPLOADS / "dead", (two_hours_ago, two_hours_ago))
    async with folder(tmp_path) as objects:
        assert not (tmp_path / UPLOADS / "dead").exists()
        assert await objects.get("a") == b"x"


async def test_a_key_cannot_be_the_folder_of_another(tmp_path: Path) -> None:
    async with folder(tmp_path) as objects:
        await objects.put("a/b", [b"x"])
        with pytest.raises(InvalidError, match="neither a folder of other keys"):
            await objects.put("a", [b"x"])
        with pytest.raises(InvalidError, match="nor below another key"):
            await objects.put("a/b/c", [b"x"])
        assert await objects.get("a/b") == b"x"
        assert list((tmp_path / UPLOADS).iterdir()) == []


async def test_a_folder_removed_by_hand_is_created_again(tmp_path: Path) -> None:
    async with folder(tmp_path) as objects:
        await objects.put("t/0/a", [b"x"])
        (tmp_path / "t" / "0" / "a").unlink()
        (tmp_path / "t" / "0").rmdir()
        with pytest.raises(UnavailableError, match="was removed"):
            await objects.put("t/0/b", [b"x"])
        assert await objects.put("t/0/b", [b"x"]) == Stored("t/0/b", 1)


async def test_files_that_cannot_be_keys_are_not_listed(tmp_path: Path) -> None:
    async with folder(tmp_path) as objects:
        await objects.put("t/a", [b"x"])
        (tmp_path / "t" / ".hidden").write_bytes(b"")
        (tmp_path / "t" / "line\nbreak").write_bytes(b"")
        assert [info.key async for info in objects.list("")] == ["t/a"]


async def test_an_unusable_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnavailableError, match="Not a directory"):
        async with folder(tmp_path / "file" / "below"):
            pass


WRITER = """
import asyncio, sys
from pathlib import Path
from holdfast.contracts.objects import Stored
from holdfast.objects.urls import open_objects
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

async def main(root, name):
    async with open_objects(f"file://{root}", clock=RealClock(), random=SystemRandom()) as objects:
        async def put(n):
            body = f"{name} {n:06} ".encode() * 20_000
            if isinstance(await objects.put(f"t/{n % 7}/{n:06}", [body[:999], body[999:]]), Stored):
                sys.stdout.write(f"{n}\\n")
                sys.stdout.flush()
        for n in range(0, 1_000_000, 4):
            await asyncio.gather(*(put(n + i) for i in range(4)))

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


async def test_writers_killed_in_the_middle_leave_whole_objects_and_every_acknowledged_one(tmp_path: Path) -> None:
    acknowledged: dict[int, str] = {}

    async def write_and_die(name: str, lines: int) -> None:
        writer = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, str(tmp_path), name, stdout=asyncio.subprocess.PIPE
        )
        assert writer.stdout is not None
        for _ in range(lines):
            number = int(await writer.stdout.readline())
            assert number not in acknowledged, "two writers were acknowledged for the same object"
            acknowledged[number] = name
        writer.send_signal(signal.SIGKILL)
        for line in (await writer.stdout.read()).splitlines():
            acknowledged[int(line)] = name
        await writer.wait()

    for round_ in range(3):  # two at a time, over the same keys
        await asyncio.gather(*(write_and_die(f"{who}{round_}", 15 + 10 * round_) for who in ("ann", "bob")))

    async with folder(tmp_path, leftovers_ms=0) as objects:
        listed = [info async for info in objects.list("t/")]
        assert len(listed) >= len(acknowledged) >= 100
        for info in listed:
            body = await objects.get(info.key)
            assert isinstance(body, bytes)
            name, number = body.split(b" ")[:2]
            assert info.key.endswith(number.decode())
            assert body == (name + b" " + number + b" ") * 20_000, f"{info.key} is half an object"
            assert acknowledged.pop(int(number), name.decode()) == name.decode(), f"{info.key} is not its writer's"
        assert acknowledged == {}, "acknowledged objects are lost"
        assert list((tmp_path / UPLOADS).iterdir()) == []


@pytest.mark.parametrize("mount_point", [True, False], ids=["an empty mount point", "nothing"])
async def test_a_folder_that_is_away_says_so_instead_of_being_empty(tmp_path: Path, mount_point: bool) -> None:
    root, elsewhere = tmp_path / "objects", tmp_path / "unmounted"
    async with folder(root) as objects:
        await objects.put("t/a", [b"x"])
        root.rename(elsewhere)
        if mount_point:
            root.mkdir()
        for work in (
            objects.get("t/a"),
            objects.get_tail("t/a", 1),
            objects.delete(["t/a"]),
            objects.put("t/b", [b"y"]),
            anext(objects.list("")),
            anext(objects.list("t/")),
        ):
            with pytest.raises(UnavailableError, match=f"folder {root} .*it is not there: .*unmounted"):
                await work
        if mount_point:
            assert list(root.iterdir()) == []
            root.rmdir()
        elsewhere.rename(root)
        assert await objects.get("t/a") == b"x"
        assert isinstance(await objects.put("t/b", [b"y"]), Stored)


async def test_uploads_that_somebody_tidied_away_are_no_reason_to_stop(tmp_path: Path) -> None:
    async with folder(tmp_path) as objects:
        await objects.put("t/a", [b"x"])
        (tmp_path / UPLOADS).rmdir()
        assert isinstance(await objects.get("t/b"), Missing)
        assert [each.key async for each in objects.list("u/")] == []
        assert isinstance(await objects.put("t/b", [b"y"]), Stored)


async def test_a_sweeper_whose_folder_is_away_is_not_told_to_adopt_it(tmp_path: Path) -> None:
    clock, random, root = RealClock(), SystemRandom(), tmp_path / "objects"
    async with MemoryStore.open(clock=clock, random=random) as store, folder(root) as objects:
        owner = await claim_objects(store, objects, clock=clock, random=random)
        root.rename(tmp_path / "unmounted")
        root.mkdir()
        with pytest.raises(UnavailableError, match="it is not there") as error:
            await owner.raise_mark(unproven_keep_ms=1)
        assert "adopt" not in str(error.value)
