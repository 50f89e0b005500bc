"""A short campaign against each target, and campaigns that find what they should."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.fuzz import campaign, grpc_messages, heap, http, kafka, rest, text
from tests.fuzz.campaign import Opened, Target, run_campaign

from holdfast.gateways.kafka.connection import KafkaConnection

TARGETS: dict[str, Opened] = {
    "kafka": kafka.opened,
    "heap": heap.opened,
    "text": text.opened,
    "grpc": grpc_messages.opened,
    "http": http.opened,
}
INPUTS = {"kafka": 20_000, "heap": 2_000, "text": 4_000, "grpc": 1_000, "http": 1_000}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", TARGETS)
async def test_no_input_crashes_hangs_or_hurts_a_neighbour(name: str) -> None:
    findings = await run_campaign(TARGETS[name], seed=1, first=0, inputs=INPUTS[name])
    assert findings.clean, str(findings)
    assert findings.inputs == INPUTS[name]


async def test_a_handler_that_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a version that no handler expects."""
    received = KafkaConnection._frame_received

    def careless(connection: KafkaConnection, frame: memoryview) -> None:
        if frame[2] and not connection._closing:
            connection._fail(KeyError("a version"))
        else:
            received(connection, frame)

    monkeypatch.setattr(KafkaConnection, "_frame_received", careless)
    findings = await run_campaign(kafka.opened, seed=1, first=0, inputs=500)
    assert findings.crashes


async def test_a_target_that_hangs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck:
        def input(self, seed: int, number: int) -> bytes:
            return b""

        async def feed(self, inputs: Sequence[bytes], numbers: Sequence[int]) -> None:
            await asyncio.Event().wait()

        async def neighbour_is_served(self) -> bool:
            return True

    @asynccontextmanager
    async def opened(folder: Path) -> AsyncIterator[Target]:
        yield Stuck()

    monkeypatch.setattr(campaign, "HANG_S", 0.05)
    findings = await run_campaign(opened, seed=1, first=0, inputs=10)
    assert findings.hangs


@pytest.mark.timeout(300)
def test_requests_made_of_the_openapi_document_get_what_it_says(tmp_path: Path) -> None:
    with rest.secured_server(tmp_path) as (secured, key):
        options = ("--exclude-name", rest.ENDS_THE_KEY)
        found = rest.sent(
            secured.http, tmp_path, *options, caller="administrator", key=key, examples=1, coverage=False, seed=1
        )
    assert not found.failures, str(found)
    assert found.calls > 80


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_requests_of_every_caller_get_what_the_openapi_document_says(tmp_path: Path) -> None:
    for found in rest.run(tmp_path, examples=10, seed=1):
        assert not found.failures, str(found)
