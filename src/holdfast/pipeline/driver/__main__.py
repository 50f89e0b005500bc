"""`python -m holdfast.pipeline.driver`: the Spark driver of a worker. It can be run by hand.

Its first line on stdin is a `Start` (see `settings`), every other one of `messages`; it answers on stdout, and logs on stderr:

    {"store": "sqlite:////tmp/h/store.db", "objects": "file:///tmp/h/objects", "bootstrap": "127.0.0.1:9092",
     "clickhouse": "http://default:@127.0.0.1:8123"}
    {"say": "run", "slot": "ann", "pipelineId": "…", "generation": 1}
    {"say": "claims", "slot": "ann", "epochs": {"0": 1}, "untilMs": 123456}

(each in one line). `slot` is the consumer that owns the partitions in the generation's registry, under these epochs: claim them
first (`RegistryStore.claim`). `untilMs` is of CLOCK_BOOTTIME and must be said again before it comes. When stdin ends it stops at
once.
"""

import logging
import os
import sys

from holdfast.pipeline.driver.process import exit_immediately, run_driver
from holdfast.pipeline.driver.settings import parse_start_line
from holdfast.vocabulary.errors import HoldfastError


def main() -> int:
    """Read the first line, then live."""
    if os.getpgrp() != os.getpid() and os.getsid(0) != os.getpid():
        os.setpgid(0, 0)
    lines = os.fdopen(os.dup(0), "rb")
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no line of ours
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)  # and the JVM reads nothing of the worker's
    try:
        start = parse_start_line(lines.readline())
        logging.basicConfig(stream=sys.stderr, level=start.log_level.upper())
        return run_driver(start, lines, out)
    except HoldfastError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    exit_immediately(code)  # threads of libraries keep nobody waiting
