"""The first answer of a broker: a dead address is an error soon, and a dead one among others costs little."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.broker import Broker

from holdfast.client.brokers import CONTACT_MS, BrokerClient
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError

CLOCK = RealClock()
WITHIN_MS = 5_000


@contextmanager
def silent_port() -> Iterator[int]:
    """A port whose connections are accepted, by the kernel, and never answered."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


async def fails_within(bootstrap: str) -> tuple[str, int]:
    begun_ms = CLOCK.boot_ms()
    with pytest.raises(UnavailableError) as failed:
        async with asyncio.timeout(20):
            await BrokerClient.fetch_cluster_urls(bootstrap, contact_ms=CONTACT_MS)
    return str(failed.value), CLOCK.boot_ms() - begun_ms


async def test_an_address_where_nobody_listens_fails_within_five_seconds() -> None:
    bootstrap = f"127.0.0.1:{closed_port()}"
    message, took_ms = await fails_within(bootstrap)
    assert message.startswith(f"Kafka at {bootstrap} is unavailable: no broker answered within ")
    assert "refused" in message.lower()
    assert took_ms < WITHIN_MS


async def test_addresses_that_never_answer_fail_within_five_seconds() -> None:
    with silent_port() as one, silent_port() as two:
        message, took_ms = await fails_within(f"127.0.0.1:{one},127.0.0.1:{two}")
    assert "no broker answered within " in message
    assert took_ms < WITHIN_MS


async def test_a_name_that_does_not_resolve_is_named() -> None:
    message, took_ms = await fails_within("broker.invalid:9092")
    assert "broker.invalid:9092" in message
    assert took_ms < WITHIN_MS


async def test_one_address_that_answers_is_enough(broker: Broker) -> None:
    with silent_port() as silent:
        client = BrokerClient(f"127.0.0.1:{silent},{broker.bootstrap}", contact_ms=CONTACT_MS)
        try:
            begun_ms = CLOCK.boot_ms()
            assert (await client.urls()).store
            assert CLOCK.boot_ms() - begun_ms < WITHIN_MS
            begun_ms = CLOCK.boot_ms()
            await client.topics()  # the silent one is not tried again
            assert CLOCK.boot_ms() - begun_ms < 2_000
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
