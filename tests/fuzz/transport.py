"""A connection without a socket: what is written is dropped but for its beginning; it is closed when the server says so."""

import asyncio
from typing import Any


class DiscardingTransport(asyncio.Transport):
    """Takes what is written, and is closed when it is told to."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self._protocol, self.closed = protocol, False
        self.first = b""  # what was written first

    def write(self, data: Any) -> None:
        self.first = self.first or bytes(data[:64])

    def writelines(self, list_of_data: Any) -> None:
        pass

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0
