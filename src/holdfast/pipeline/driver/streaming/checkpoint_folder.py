"""Checkpoint folders of a generation, one for each epoch, on whatever file system Spark has: through Hadoop's API, as Spark itself.

The one rule: only the owner of an epoch writes in that epoch's folder. A takeover copies what the record calls done into its own,
and nobody reads the old one again.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from holdfast.pipeline.driver.spark_jobs import cause_of
from holdfast.pipeline.driver.streaming.protocol import (
    COMMITS,
    METADATA,
    OFFSETS,
    StreamTakeover,
    files_to_copy,
    is_operator_metadata,
)
from holdfast.pipeline.sinks.contract import BlockedError
from holdfast.vocabulary.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER: Final = "{checkpoint}/"
"""In uploaded files: the folder of their epoch, whose path is another on every machine."""
_HADOOP_SCHEMES: Final = {"s3": "s3a", "gs": "gs", "az": "abfs", "file": "file"}


def checkpoint_root(configured: str, objects: str) -> str:
    """The URL below which Spark keeps checkpoints and state: as configured, else where the cluster's objects are."""
    if configured:
        return configured.rstrip("/")
    parts = urlsplit(objects)
    if parts.scheme not in _HADOOP_SCHEMES:
        allowed = "a URL of Hadoop's file systems, since objects are at no place that Spark can write to"
        raise InvalidError("worker.checkpoints", configured, allowed)
    return f"{_HADOOP_SCHEMES[parts.scheme]}://{parts.netloc}{parts.path}".rstrip("/")


@contextmanager
def _blocked_by_files(url: str) -> Iterator[None]:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    try:
        yield
    except Py4JJavaError as error:
        hint = ""
        if "No FileSystem for scheme" in str(error) or "ClassNotFoundException" in str(error):
            hint = "; Spark needs the file system's jars (spark.jars), or set worker.checkpoints to one that it has"
        raise BlockedError(f"checkpoints at {url}: {cause_of(error)}{hint}") from None


class CheckpointFolders:
    """The folders of one generation, below `root`."""

    def __init__(self, spark: "SparkSession", root: str) -> None:
        self._root = root
        self._jvm: Any = spark._jvm
        self._conf: Any = spark._jsc.hadoopConfiguration()

    def url(self, epoch: int) -> str:
        """Of an epoch's folder."""
        return f"{self._root}/e{epoch}"

    def holds(self, epoch: int) -> bool:
        """Whether an epoch's folder, once it was filled, is still to be had by this process."""
        return True

    def save(self, epoch: int) -> None:
        """Have everything that Spark has written in an epoch's folder where the next owner finds it."""

    def fill(self, takeover: StreamTakeover) -> None:
        """Make the folder of a takeover. What an unfinished earlier one left in it is removed."""
        epoch = takeover.record.epoch
        with _blocked_by_files(self._root):
            files, folder = self._files(), self._path(self.url(epoch))
            files.delete(folder, True)
            files.mkdirs(folder)
            if takeover.copy_from:
                self._copy(takeover.copy_from, epoch, takeover.record.done_batch)
            for name, text in {**takeover.write, METADATA: json.dumps({"id": self.query_id(epoch)})}.items():
                self._write(f"{self.url(epoch)}/{name}", text)

    def query_id(self, epoch: int) -> str:
        """Of an epoch's query. Spark would stop another of the same id, and wait for it."""
        return str(UUID(bytes=sha256(self.url(epoch).encode()).digest()[:16]))

    def _copy(self, source: int, epoch: int, done_batch: int) -> None:
        from py4j.protocol import Py4JJavaError

        files, copy = self._files(), self._jvm.org.apache.hadoop.fs.FileUtil.copy
        for name in files_to_copy(self._names(self.url(source)), done_batch):
            at, to = f"{self.url(source)}/{name}", f"{self.url(epoch)}/{name}"
            try:
                if is_operator_metadata(name):
                    text = self._read(at).replace(self._plain(source), FOLDER)
                    self._write(to, text.replace(FOLDER, self._plain(epoch)))
                else:
                    copy(files, self._path(at), files, self._path(to), False, True, self._conf)
            except Py4JJavaError as error:
                if "FileNotFoundException" not in str(error):  # a former owner's upkeep removes old state
                    raise

    def offsets(self, epoch: int, batch: int) -> str:
        """The text of a batch's offsets, as Spark wrote it before it ran the batch."""
        url = f"{self.url(epoch)}/{OFFSETS}/{batch}"
        with _blocked_by_files(url):
            return self._read(url)

    def _read(self, url: str) -> str:
        stream = self._files().open(self._path(url))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
        finally:
            stream.close()

    def _plain(self, epoch: int) -> str:
        """An epoch's folder as Spark writes it into files: without what stands before the path, which has several spellings."""
        return f"{self._path(self.url(epoch)).toUri().getPath()}/"

    def has_committed(self, epoch: int, batch: int) -> bool:
        """Whether Spark has committed a batch."""
        with _blocked_by_files(self._root):
            return bool(self._files().exists(self._path(f"{self.url(epoch)}/{COMMITS}/{batch}")))

    def remove_older(self, epoch: int) -> None:
        """Remove the folders of older epochs, once the record names this one's."""
        with _blocked_by_files(self._root):
            for name in self._folders(self._root):
                if name.startswith("e") and name[1:].isdecimal() and int(name[1:]) < epoch:
                    self._files().delete(self._path(f"{self._root}/{name}"), True)

    def remove_sibling(self, name: str, *, levels: int) -> None:
        """Remove a folder beside this generation's (`levels` 1), or beside its pipeline's (2)."""
        above = self._root.rsplit("/", levels)[0]
        with _blocked_by_files(above):
            self._files().delete(self._path(f"{above}/{name}"), True)

    def siblings(self, *, levels: int) -> list[str]:
        """Names of the folders beside this generation's, or beside its pipeline's."""
        above = self._root.rsplit("/", levels)[0]
        with _blocked_by_files(above):
            return self._folders(above)

    def _folders(self, url: str) -> list[str]:
        path = self._path(url)
        if not self._files().exists(path):
            return []
        return [each.getPath().getName() for each in self._files().listStatus(path) if each.isDirectory()]

    def _names(self, url: str) -> list[str]:
        path = self._path(url)
        if not self._files().exists(path):
            return []
        found = self._files().listFiles(path, True)
        prefix = str(self._files().makeQualified(path).toUri().getPath()) + "/"
        names = []
        while found.hasNext():
            names.append(str(found.next().getPath().toUri().getPath()).removeprefix(prefix))
        return names

    def _write(self, url: str, text: str) -> None:
        """Whole, or not at all; a former one is replaced."""
        unfinished = self._path(f"{url.rpartition('/')[0]}/.{url.rpartition('/')[2]}.tmp")
        out = self._files().create(unfinished, True)
        try:
            out.write(bytearray(text.encode()))
        finally:
            out.close()
        self._files().delete(self._path(url), False)
        if not self._files().rename(unfinished, self._path(url)):
            raise BlockedError(f"{url} could not be written")

    def _files(self) -> Any:
        return self._path(self._root).getFileSystem(self._conf)

    def _path(self, url: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(url)
