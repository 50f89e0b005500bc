"""How late the event loop is: a timer that should fire at once fires when whatever holds the loop, or the interpreter, lets go."""

from typing import Final

from holdfast.vocabulary.clock import Clock, stopwatch_ns
from holdfast.vocabulary.histogram import Histogram

_INTERVAL_MS: Final = 50


class LoopStalls:
    """The stalls of this thread's event loop. Sampled: a stall shorter than the interval may be missed."""

    def __init__(self) -> None:
        self.seconds = Histogram()

    async def measure(self, clock: Clock) -> None:
        """Look again and again, until cancelled."""
        while True:
            began_ns = stopwatch_ns()
            await clock.sleep_ms(_INTERVAL_MS)
            late_ns = stopwatch_ns() - began_ns - _INTERVAL_MS * 1_000_000
            self.seconds.observe(max(0, late_ns) / 1e9)
