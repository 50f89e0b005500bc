"""A client that resets its connection has no address when the server looks: what it has sent is not served.

uvloop asks the socket for the address of the other end, and a socket that was reset has none; what arrived before can be read all
the same. No quota of an address would count for it.
"""

import socket
import struct
from pathlib import Path

from tests.gateways.kafka.test_connection_throttle import Run, asked, burst, connected, run, throttled_gateway
from tests.support.kafka_wire import PRODUCE, KafkaGateway, produce_request, request_frame
from tests.support.partitions import batch
from tests.support.waiting import async_until

__all__ = ["run"]

ORDERS = {"orders": 1}
RESET = struct.pack("ii", 1, 0)


def unanswered_produce() -> bytes:
    given = produce_request("orders", {0: batch("x")}, acks=0)
    frame = request_frame(PRODUCE, 9, given, correlation=1, client_id="tests")
    return len(frame).to_bytes(4, "big") + frame


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    sock.close()


async def written(gateway: KafkaGateway) -> int:
    return (await gateway.backend.log.describe("orders", 0)).high_watermark


def test_a_connection_that_was_reset_does_not_evade_the_rate_of_its_address(run: Run, tmp_path: Path) -> None:
    async def body() -> None:
        async with throttled_gateway(tmp_path, topics=ORDERS) as gateway:
            await burst(gateway)
            for _ in range(40):  # in one turn of the loop: they are reset before they are accepted
                sock = socket.create_connection(("127.0.0.1", gateway.port))
                sock.sendall(unanswered_produce())
                reset(sock)
            await asked(await connected(gateway, "127.0.0.2"))
            await async_until(lambda: len(gateway.server.connections) <= 12)
            await gateway.backend.clock.sleep_ms(200)
            assert await written(gateway) <= 1  # the one that may wait

    run(body())
