"""A data source that is the sink, and dies where it is told: once for each step and name."""

import os
import signal
from pathlib import Path

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from holdfast.spark.sink.writers import batch_writer, stream_writer
from pyspark_holdfast import DefaultSource


class DieOnce:
    """Kills the process group `group` (0: none) and this process when `step` is reached and `mark` is not there yet."""

    def __init__(self, step: str, mark: str, group: int) -> None:
        self._step, self._mark, self._group = step, Path(mark), group

    async def __call__(self, step: str) -> None:
        if step != self._step or self._mark.exists():
            return
        self._mark.touch()
        if self._group:
            os.killpg(self._group, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class DyingSource(DefaultSource):
    """`format("dying")`: the sink, with the options `step`, `mark` and `group`."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return batch_writer(self._rest(), schema, overwrite, on_step=self._dying())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return stream_writer(self._rest(), schema, overwrite, on_step=self._dying())

    def _dying(self) -> DieOnce:
        return DieOnce(self.options["step"], self.options["mark"], int(self.options.get("group", "0")))

    def _rest(self) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if name not in ("step", "mark", "group")}
