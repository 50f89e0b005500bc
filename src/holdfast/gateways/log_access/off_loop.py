"""Work on many records, on a thread: thousands of them would hold up everything else that the node's loop does.

The one rule: what is small stays on the loop, where it is faster.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

_SMALL_BYTES: Final = 64 * 1024


async def off_loop(size_bytes: int, work: Callable[[], T]) -> T:
    """The result of `work` on so many bytes. Raises what it raises."""
    return work() if size_bytes <= _SMALL_BYTES else await asyncio.to_thread(work)
