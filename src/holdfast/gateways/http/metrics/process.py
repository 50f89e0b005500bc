"""Metrics of the process: CPU, memory, files and start time, by the names Prometheus clients use."""

import asyncio
import os
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast import __version__
from holdfast.gateways.http.metrics.exposition import MetricFamily, MetricSource, counter, gauge, histogram
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.loop_stalls import LoopStalls


def process_metrics(clock: Clock, stalls: LoopStalls) -> MetricSource:
    """Metrics of this process. Call it at the start."""
    began_ms = clock.now_ms()

    async def families() -> Iterable[MetricFamily]:
        stalled = histogram("holdfast_loop_stall_seconds", "How late a timer of the event loop fired.", stalls.seconds)
        return [*await asyncio.to_thread(lambda: list(_families(began_ms))), stalled]

    return families


def _families(began_ms: int) -> Iterator[MetricFamily]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield counter("process_cpu_seconds_total", "User and system CPU time.", used.ru_utime + used.ru_stime)
    yield gauge("process_start_time_seconds", "Start time, in seconds since 1970.", began_ms / 1000)
    yield gauge("process_max_fds", "Limit of open file descriptors.", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield gauge("holdfast_info", "1; the version is a label.", 1, version=__version__)
    own = Path("/proc/self")
    if own.exists():  # only Linux has it
        pages = own.joinpath("statm").read_text().split()
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        yield gauge("process_virtual_memory_bytes", "Virtual memory.", int(pages[0]) * page_bytes)
        yield gauge("process_resident_memory_bytes", "Resident memory.", int(pages[1]) * page_bytes)
        yield gauge("process_open_fds", "Open file descriptors.", len(list((own / "fd").iterdir())))
        yield gauge("process_threads", "Threads.", len(list((own / "task").iterdir())))
