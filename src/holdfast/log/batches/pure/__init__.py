"""The batch kernel in Python: equal to `holdfast._native` in every result, for hosts without a compiler.

It also is the readable statement of what the C sources do. What each function takes and returns is in
`holdfast.log.batches.kernels.BatchKernel`.
"""

from holdfast.log.batches.pure.columns import columns
from holdfast.log.batches.pure.headers import join_blocks, scan, summarize
from holdfast.log.batches.pure.record_reader import (
    check,
    keyless,
    pick,
    pick_extents,
    picked_records,
    read,
    read_chosen,
)
from holdfast.log.batches.pure.record_writer import write, write_values

__all__ = [
    "check",
    "columns",
    "join_blocks",
    "keyless",
    "pick",
    "pick_extents",
    "picked_records",
    "read",
    "read_chosen",
    "scan",
    "summarize",
    "write",
    "write_values",
]
