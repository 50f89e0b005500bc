"""How many records and bytes may be unacknowledged. No I/O and no waiting.

The one rule: a record larger than the whole budget is admitted alone, so that none waits for ever.
"""


class SendBudget:
    """Counts what is unacknowledged. Not thread-safe: its owner serializes the calls."""

    def __init__(self, *, records_max: int, bytes_max: int) -> None:
        self.records = 0
        self.bytes = 0
        self._records_max, self._bytes_max = records_max, bytes_max

    def reserve(self, records: int, size: int) -> bool:
        """Take room for this many records of `size` bytes together; False: there is none, and nothing is taken."""
        if self.records and (self.records + records > self._records_max or self.bytes + size > self._bytes_max):
            return False
        self.records += records
        self.bytes += size
        return True

    def release(self, records: int, size: int) -> None:
        """Give room back."""
        self.records -= records
        self.bytes -= size
