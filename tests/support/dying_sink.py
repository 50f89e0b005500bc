"""A data source that is the sink, and dies at a failpoint: once for each failpoint and mark."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from holdfast.spark.sink.writers import (
    HoldfastStreamWriter,
    HoldfastWriter,
    Messages,
    StagedMessage,
    batch_writer,
    stream_writer,
)
from holdfast.vocabulary import failpoints
from pyspark_holdfast import DefaultSource


class DieOnce:
    """Kills the process group `group` (0: none) and this process at a failpoint, unless the file `mark` exists."""

    def __init__(self, failpoint: str, mark: str, group: int) -> None:
        self._failpoint, self._mark, self._group = failpoint, Path(mark), group

    def __call__(self, failpoint: str) -> None:
        if failpoint != self._failpoint or self._mark.exists():
            return
        self._mark.touch()
        if self._group:
            os.killpg(self._group, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class DyingWriter(DataSourceArrowWriter):
    """The batch writer; its commit runs in a process of the driver's, with the handler installed."""

    def __init__(self, writer: HoldfastWriter, die: DieOnce) -> None:
        self._writer, self._die = writer, die

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        return self._writer.write(iterator)

    def commit(self, messages: Messages) -> None:
        with failpoints.installed(self._die):
            self._writer.commit(messages)

    def abort(self, messages: Messages) -> None:
        self._writer.abort(messages)


class DyingStreamWriter(DataSourceStreamArrowWriter):
    """The same for streams."""

    def __init__(self, writer: HoldfastStreamWriter, die: DieOnce) -> None:
        self._writer, self._die = writer, die

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedMessage:
        return self._writer.write(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 (Spark's name)
        with failpoints.installed(self._die):
            self._writer.commit(messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 (Spark's name)
        self._writer.abort(messages, batchId)


class DyingSource(DefaultSource):
    """`format("dying")`: the sink, with the options `step` (a failpoint), `mark` and `group`."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return DyingWriter(batch_writer(self._rest(), schema, overwrite), self._die_once())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return DyingStreamWriter(stream_writer(self._rest(), schema, overwrite), self._die_once())

    def _die_once(self) -> DieOnce:
        return DieOnce(self.options["step"], self.options["mark"], int(self.options.get("group", "0")))

    def _rest(self) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if name not in ("step", "mark", "group")}
