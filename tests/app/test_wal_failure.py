"""A WAL that fails ends the process, with an exit code and one clear line, whatever else happens to it."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.support.failpoints import FailpointFolder
from tests.support.server_process import BROKER_ONLY, ServeProcess, create_topic, produce, read, started
from tests.support.waiting import until

from holdfast.contracts.validation import prefix_end
from holdfast.kernel.keys import members_prefix
from holdfast.stores.urls import open_store
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.random import SystemRandom

FAILED = "wal.group-synced"


async def end_sessions(node: ServeProcess) -> None:
    """As the store does with a session that was not renewed in time."""
    async with open_store(f"sqlite:///{node.data}/store.db", clock=RealClock(), random=SystemRandom()) as store:
        prefix = members_prefix("agent")
        for entry in (await store.scan(prefix, prefix_end(prefix))).entries:
            assert entry.session is not None
            await store.close_session(entry.session)


@pytest.mark.parametrize("session_ends", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_wal_that_fails_ends_the_process_also_together_with_its_session(tmp_path: Path, session_ends: bool) -> None:
    points = FailpointFolder(tmp_path / "failpoints")
    short = ("--set", "session.ttl_ms=1000", "--set", "session.renew_ms=200", "--set", "session.margin_ms=100")
    node = ServeProcess(tmp_path / "node", *BROKER_ONLY, *(short if session_ends else ()), env=points.environment)
    with started(node):
        create_topic(node.kafka, "orders")
        produce(node.kafka, "orders", "a")
        points.arm(FAILED, "fail")
        points.arm(FAILED, "pause")  # it stops in the middle of a write, and fails when it goes on
        producer = Producer({"bootstrap.servers": node.kafka, "log_level": 0})
        producer.produce("orders", b"b")
        producer.poll(0)
        pid = points.wait_taken(FAILED, "pause")
        if session_ends:
            os.waitpid(pid, os.WUNTRACED)
            asyncio.run(end_sessions(node))
            until_expired(1_200)
        os.kill(pid, signal.SIGCONT)
        assert node.ended() == 4
        assert node.log.count("the process must stop") == 1
        producer.purge()
        del producer
        node.start()
        assert read(node.kafka, "orders", 1)[0] == "a"


def until_expired(ttl_ms: int) -> None:
    """While the process stands still its session runs out."""
    clock = RealClock()
    until_ms = clock.boot_ms() + ttl_ms
    until(lambda: clock.boot_ms() > until_ms)
