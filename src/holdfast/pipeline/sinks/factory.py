"""From a target to its sink, and the cache of open sinks of a process.

The one rule: a sink belongs to the process and thread that opened it. Executors keep theirs between tasks; the next revision is
another target, so the cache is never stale.
"""

import os
from collections import OrderedDict
from typing import Final

from holdfast.pipeline.model.definition import ClickHouseConfig, DeltaConfig, IcebergConfig, ParquetConfig
from holdfast.pipeline.sinks.contract import PipelineSink, SinkTarget
from holdfast.pipeline.sinks.roots import check_sink_roots

KEPT_MAX: Final = 16

_open: "OrderedDict[SinkTarget, PipelineSink]" = OrderedDict()
_process = os.getpid()


def open_sink(target: SinkTarget) -> PipelineSink:
    """A new sink for a target. Libraries of sinks are imported only when one is opened."""
    check_sink_roots(target.revision.sink, target.sink_roots)
    match target.revision.sink:
        case ClickHouseConfig():
            from holdfast.pipeline.sinks.clickhouse.sink import ClickHouseSink

            return ClickHouseSink(target)
        case DeltaConfig():
            from holdfast.pipeline.sinks.delta import DeltaSink

            return DeltaSink(target)
        case IcebergConfig():
            from holdfast.pipeline.sinks.iceberg import IcebergSink

            return IcebergSink(target)
        case ParquetConfig():
            from holdfast.pipeline.sinks.parquet import ParquetSink

            return ParquetSink(target)
        case _:
            from holdfast.pipeline.sinks.topic import TopicSink

            return TopicSink(target)


def cached_sink(target: SinkTarget) -> PipelineSink:
    """The sink of a target in this process, for tasks: opened once, used by one task at a time."""
    global _process
    if _process != os.getpid():  # connections inherited by a fork are the parent's
        _open.clear()
        _process = os.getpid()
    sink = _open.get(target)
    if sink is None:
        sink = _open[target] = open_sink(target)
        while len(_open) > KEPT_MAX:
            _open.popitem(last=False)[1].close()
    _open.move_to_end(target)
    return sink
