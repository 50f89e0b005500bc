"""Checkpoints of a query whose Spark runs on this machine alone: on its disk while it runs, in object storage before they count.

Spark writes checkpoints through Hadoop's file systems, and for object storage these need jars that no wheel brings. Here it writes
to a folder, which the next owner never sees: it has what was uploaded.

The one rule: what the record is about to rely on is in object storage before. So the folder is uploaded

    with a takeover     before the record names the new epoch
    with every batch    before it is begun: then the commit of the batch before, and the state after it, are there
    before retention    may remove a batch's records: its commit is there

Files of a checkpoint never change, so that an upload is of new names. Each epoch has a prefix of its own, written by its owner.
"""

from asyncio import to_thread
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from holdfast.client.loop_thread import run
from holdfast.contracts.objects import AlreadyExists, Missing, Objects
from holdfast.pipeline.driver.streaming.checkpoint_folder import FOLDER, CheckpointFolders
from holdfast.pipeline.driver.streaming.protocol import (
    COMMITS,
    StreamTakeover,
    files_to_copy,
    is_operator_metadata,
    is_unfinished,
)
from holdfast.vocabulary import failpoints
from holdfast.vocabulary.tasks import gather_limited

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRANSFERS_MAX: Final = 8
"""Files that are read or written at once; one is held in memory whole."""

Version = tuple[int, int]
"""Size and time of a file."""


class UploadedCheckpoints(CheckpointFolders):
    """Of one generation: folders below `local`, objects below `prefix`."""

    def __init__(
        self, spark: "SparkSession", local: Path, objects: Callable[[], Awaitable[Objects]], prefix: str
    ) -> None:
        super().__init__(spark, local.as_uri())
        self._local, self._objects, self._prefix = local, objects, prefix
        self._uploaded: dict[int, dict[str, Version]] = {}
        self._lock = Lock()

    def holds(self, epoch: int) -> bool:
        return self._folder(epoch).is_dir()

    def fill(self, takeover: StreamTakeover) -> None:
        epoch = takeover.record.epoch
        super().fill(takeover)
        self.save(epoch)
        # Of an unfinished takeover; or of a history that a restored store does not know, whose commits would be taken for ours.
        run(self._remove(self._of(epoch), lambda name: name not in self._uploaded[epoch]))

    def save(self, epoch: int) -> None:
        with self._lock:
            known, found = self._uploaded.get(epoch, {}), _files_in(self._folder(epoch))
            changed = [name for name, version in found.items() if known.get(name) != version]
            run(self._upload(epoch, changed, known.keys() - found))
            self._uploaded[epoch] = found
        failpoints.reached("stream.uploaded")

    def has_committed(self, epoch: int, batch: int) -> bool:
        if not super().has_committed(epoch, batch):
            return False
        self.save(epoch)
        return True

    def remove_older(self, epoch: int) -> None:
        super().remove_older(epoch)

        def is_older(name: str) -> bool:
            folder = name.partition("/")[0]
            return folder.startswith("e") and folder[1:].isdecimal() and int(folder[1:]) < epoch

        run(self._remove(self._prefix, is_older))

    def remove_sibling(self, name: str, *, levels: int) -> None:
        run(self._remove(f"{self._above(levels)}{name}/", lambda name: True))

    def siblings(self, *, levels: int) -> list[str]:
        above = self._above(levels)

        async def names() -> list[str]:
            objects = await self._objects()
            return sorted({info.key.removeprefix(above).partition("/")[0] async for info in objects.list(above)})

        return run(names())

    def _copy(self, source: int, epoch: int, done_batch: int) -> None:
        """From object storage: what is on this disk may be of an owner that was fenced since."""
        run(self._download(source, epoch, done_batch))

    async def _download(self, source: int, epoch: int, done_batch: int) -> None:
        objects, prefix, folder = await self._objects(), self._of(source), self._folder(epoch)

        async def download(name: str) -> None:
            body = await objects.get(prefix + name)
            if not isinstance(body, Missing):  # a former owner's upkeep removes old state
                plain = bytes(body)
                if is_operator_metadata(name):
                    plain = plain.replace(FOLDER.encode(), self._plain(epoch).encode())
                await to_thread(_write, folder / name, plain)

        names = [info.key.removeprefix(prefix) async for info in objects.list(prefix)]
        await gather_limited(download, files_to_copy(names, done_batch), TRANSFERS_MAX)

    async def _upload(self, epoch: int, names: list[str], gone: set[str]) -> None:
        objects, prefix, folder = await self._objects(), self._of(epoch), self._folder(epoch)

        async def upload(name: str) -> None:
            try:
                body = await to_thread((folder / name).read_bytes)
            except FileNotFoundError:  # Spark's upkeep removes old state
                return
            if is_operator_metadata(name):
                body = body.replace(self._plain(epoch).encode(), FOLDER.encode())
            if isinstance(await objects.put(prefix + name, [body]), AlreadyExists):
                await _replace(objects, prefix + name, body)

        commits = [name for name in names if name.startswith(f"{COMMITS}/")]
        # A commit names files of state, so these are there first.
        await gather_limited(upload, [name for name in names if name not in commits], TRANSFERS_MAX)
        await gather_limited(upload, commits, TRANSFERS_MAX)
        await objects.delete([prefix + name for name in sorted(gone)])

    async def _remove(self, prefix: str, doomed: Callable[[str], bool]) -> None:
        objects = await self._objects()
        keys = [info.key async for info in objects.list(prefix) if doomed(info.key.removeprefix(prefix))]
        await objects.delete(keys)

    def _folder(self, epoch: int) -> Path:
        return self._local / f"e{epoch}"

    def _of(self, epoch: int) -> str:
        return f"{self._prefix}e{epoch}/"

    def _above(self, levels: int) -> str:
        """The prefix beside whose folders this generation's is (`levels` 1), or its pipeline's (2)."""
        return self._prefix.rstrip("/").rsplit("/", levels)[0] + "/"


async def _replace(objects: Objects, key: str, body: bytes) -> None:
    """An object that was uploaded before its answer was lost, or from a file that was not complete then."""
    found = await objects.get(key)
    if isinstance(found, Missing) or bytes(found) != body:
        await objects.delete([key])
        await objects.put(key, [body])


def _files_in(folder: Path) -> dict[str, Version]:
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if is_unfinished(name) or not path.is_file():
            continue
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        found[name] = stat.st_size, stat.st_mtime_ns
    return found


def _write(path: Path, body: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)
