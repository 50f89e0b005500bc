"""`holdfast heap` as people meet it, against a real server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.command_line import Ran, Run
from tests.support.server_process import ServeProcess, started
from tests.support.waiting import until


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    made = ServeProcess(tmp_path_factory.mktemp("server"), "--roles", "api,agent", "--grpc", "127.0.0.1:0")
    with started(made):
        yield made


@pytest.fixture
def heap(run: Run, node: ServeProcess, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `holdfast heap …`, which finds the server through the environment."""
    monkeypatch.setenv("HOLDFAST_HTTP_URL", node.http)
    return lambda *argv, **more: run("heap", *argv, **more)


def rows(ran: Ran) -> list[dict[str, Any]]:
    assert ran.code == 0, ran.err
    return ran.rows


def test_from_a_heap_to_an_acknowledged_message_and_its_end(heap: Run) -> None:
    made = heap("create", "jobs", "--partitions", "2", "--mode", "max", "--set", "max_retries=1", "--json")
    assert (rows(made)[0]["mode"], made.rows[0]["max_retries"]) == ("max", 1)
    assert "jobs" in heap("list").text
    updated = rows(heap("update", "jobs", "--set", "dlq=true", "--reset", "max_retries", "--json"))
    assert updated[0]["max_retries"] == 3
    assert "jobs: partitions = 3" in heap("update", "jobs", "--partitions", "3").text
    fewer = heap("update", "jobs", "--partitions", "2")
    assert (fewer.code, "currently has 3 partition(s)" in fewer.err) == (2, True)
    assert "top_k_bound" in heap("describe", "jobs").text
    assert heap("enqueue", "jobs", "low", "--priority", "-5").text.count("in partition") == 1
    assert len(rows(heap("enqueue", "jobs", "--priority", "7", "--json", stdin=b"a\nb\n"))) == 2
    assert {each["priority"] for each in rows(heap("peek", "jobs", "--json"))} == {-5, 7}
    [best] = rows(heap("pop", "jobs", "--wait-ms", "30000", "--json"))
    assert best["priority"] == 7
    token = best["lease_token"]
    assert heap("extend", "jobs", token, "--ms", "60000").code == 0
    assert "1 of 1 leases: ack" in heap("ack", "jobs", token).text
    late = heap("release", "jobs", token)
    assert (late.code, "is lost" in late.text) == (1, True)
    table = heap("pop", "jobs", "--wait-ms", "30000", "--ack").text
    assert "payload" in table
    [figures] = rows(heap("stats", "jobs", "--json"))
    assert (figures["acks"], figures["enqueues"]) == (2, 3)
    [left] = rows(heap("peek", "jobs", "--json"))
    assert heap("reprioritise", "jobs", left["message_id"], "--priority", "-9").code == 0
    assert heap("cancel", "jobs", left["message_id"]).text.strip().endswith("is withdrawn")
    refused = heap("purge", "jobs")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert "0 messages of jobs withdrawn" in heap("purge", "jobs", "--yes").text
    assert heap("delete", "jobs", "--yes").text.strip() == "jobs deleted"
    assert heap("describe", "jobs").code == 2


def test_dead_letters_are_listed_replayed_and_deleted(heap: Run) -> None:
    rows(heap("create", "risky", "--set", "max_retries=0", "--json"))
    for name in ("a", "b"):
        heap("enqueue", "risky", name)
    [first] = rows(heap("pop", "risky", "--wait-ms", "30000", "--json"))
    assert heap("nack", "risky", first["lease_token"], "--reason", "too late").code == 0
    [second] = rows(heap("peek", "risky", "--json"))
    assert heap("dlq", "move", "risky", second["message_id"]).code == 0
    until(lambda: len(heap("dlq", "list", "risky", "--json").rows) == 2)
    assert "too late" in heap("dlq", "list", "risky").text
    [late] = rows(heap("dlq", "peek", "risky", "--reason", "late", "--json"))
    assert json.loads(heap("dlq", "replay", "risky", "--dry-run", "--json").text)["matched"] == 2
    replayed = rows(heap("dlq", "replay", "risky", "--id", late["message_id"], "--rate", "100", "--json"))
    assert replayed == [{"matched": 1, "changed": 1, "dry_run": False}]
    assert "1 match, 1 deleted" in heap("dlq", "delete", "risky", "--yes").text


def test_a_heap_that_is_fair_to_keys(heap: Run) -> None:
    made = heap("create", "fair", "--set", "fairness=true", "--set", "fairness_weights=gold=2,free=1", "--json")
    assert rows(made)[0]["fairness_weights"] == "gold=2,free=1"
    for key in ("free", "free", "free", "gold", "gold"):
        assert heap("enqueue", "fair", key, "--fairness-key", key).code == 0
    popped = rows(heap("pop", "fair", "--max", "3", "--wait-ms", "30000", "--json"))
    assert sorted(each["fairness_key"] for each in popped) == ["free", "gold", "gold"]
    assert heap("delete", "fair", "--yes").code == 0
