"""The first answer of a broker: a dead address is an error soon, and a dead one among others costs little."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.support.broker import Broker

from holdfast.client.brokers import CONTACT_MS, BrokerClient
from holdfast.vocabulary.errors import UnavailableError

IN_TIME = f"no broker answered within {CONTACT_MS / 1_000:g} s"


@contextmanager
def silent_port() -> Iterator[socket.socket]:
    """A port whose connections are accepted, by the kernel, and never answered."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def connections(listening: socket.socket) -> int:
    """How many connections were made since the last look."""
    count = 0
    listening.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            listening.accept()[0].close()
            count += 1
    return count


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


async def failure_of(bootstrap: str) -> str:
    with pytest.raises(UnavailableError) as failed:
        async with asyncio.timeout(20):
            await BrokerClient.fetch_cluster_urls(bootstrap, contact_ms=CONTACT_MS)
    return str(failed.value)


def test_the_first_contact_takes_less_than_five_seconds() -> None:
    assert CONTACT_MS < 5_000


async def test_an_address_where_nobody_listens_fails_in_time() -> None:
    bootstrap = f"127.0.0.1:{closed_port()}"
    message = await failure_of(bootstrap)
    assert message.startswith(f"Kafka at {bootstrap} is unavailable: {IN_TIME}")
    assert "refused" in message.lower()


async def test_addresses_that_never_answer_fail_in_time() -> None:
    with silent_port() as one, silent_port() as two:
        addresses = (each.getsockname()[1] for each in (one, two))
        message = await failure_of(",".join(f"127.0.0.1:{port}" for port in addresses))
    assert IN_TIME in message


async def test_a_name_that_does_not_resolve_is_named() -> None:
    assert "broker.invalid:9092" in await failure_of("broker.invalid:9092")


async def test_one_address_that_answers_is_enough(broker: Broker) -> None:
    with silent_port() as silent:
        client = BrokerClient(f"127.0.0.1:{silent.getsockname()[1]},{broker.bootstrap}", contact_ms=2 * CONTACT_MS)
        try:
            assert (await client.urls()).store
            assert connections(silent) == 1
            await client.topics()
            assert connections(silent) == 0, "the silent one is not tried again"
        finally:
            await client.close()


FRESH_PROCESS = """
import asyncio, sys

def loaded_when_the_clock_starts(seconds, timeout=asyncio.timeout):
    print([name in sys.modules for name in ("kio.schema.metadata.v12.request", "kio.schema.metadata.v12.response", "kio.serial")])
    return timeout(seconds)

asyncio.timeout = loaded_when_the_clock_starts
from holdfast.client.brokers import BrokerClient
try:
    asyncio.run(BrokerClient.fetch_cluster_urls("127.0.0.1:1", contact_ms=1))
except Exception as error:
    print(error)
"""


def test_a_broker_is_not_blamed_for_the_time_that_our_own_imports_take() -> None:
    """The first request of a process imports and compiles its messages: seconds, on a busy machine, of the 3 s it may take."""
    done = subprocess.run([sys.executable, "-c", FRESH_PROCESS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[0] == "[True, True, True]"
