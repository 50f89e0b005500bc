"""How much work a call is, whatever else the machine does: lines of Python that were executed, not seconds."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def executed_lines(work: Callable[[], object]) -> int:
    """The lines `work` and what it calls execute; every turn of a loop or comprehension counts again.

    The collector waits: finalizers of what other tests left would be counted.
    """
    lines = 0

    def trace(_: FrameType, event: str, __: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    before, collecting = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
        if collecting:
            gc.enable()
    return lines
