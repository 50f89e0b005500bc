"""`python -m holdfast.pipeline.driver`: the Spark driver of a worker. It can be run by hand.

The first line on stdin is a `DriverStart` (see `settings`), every later one a message of `model.driver_protocol`; it sends messages
on stdout, among them its log:

    {"store": "sqlite:////tmp/h/store.db", "objects": "file:///tmp/h/objects", "bootstrap": "127.0.0.1:9092",
     "clickhouse": "http://default:@127.0.0.1:8123"}
    {"say": "run", "slot": "ann", "pipelineId": "…", "generation": 1}
    {"say": "claims", "slot": "ann", "epochs": {"0": 1}, "untilMs": 123456}

(each in one line). `slot` is the consumer that owns the partitions in the generation's registry, under these epochs: claim them
first (`RegistryStore.claim`). `untilMs` is CLOCK_BOOTTIME and must be renewed before it is reached. When stdin ends the driver
exits at once.
"""

import logging
import os
import sys

from holdfast.pipeline.driver.process import exit_immediately, run_driver
from holdfast.pipeline.driver.settings import parse_start_line
from holdfast.vocabulary.errors import HoldfastError


def main() -> int:
    """Read the first line, then run."""
    if os.getpgrp() != os.getpid() and os.getsid(0) != os.getpid():
        os.setpgid(0, 0)
    lines = os.fdopen(os.dup(0), "rb")
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not mix with messages
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # the JVM must not read the worker's messages
    try:
        start = parse_start_line(lines.readline())
        return run_driver(start, lines, out)
    except HoldfastError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    exit_immediately(code)  # without waiting for threads of libraries
