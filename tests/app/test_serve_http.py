"""`holdfast serve --http` as an operator meets it: real processes, a real store that goes away, real signals."""

import http.client
import json
import signal
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.server_process import ServeProcess, produce, refused, started
from tests.support.store_engines.redis import ValkeyServer
from tests.support.waiting import WAIT_S, until

from holdfast.app.addresses import address_or_off
from holdfast.vocabulary.errors import InvalidError


def ready(node: ServeProcess) -> tuple[int, dict[str, Any]]:
    answer = httpx.get(f"{node.http}/ready", timeout=WAIT_S)
    return answer.status_code, answer.json()


def test_a_node_is_ready_as_long_as_its_store_answers(tmp_path: Path) -> None:
    (tmp_path / "valkey").mkdir()
    with ValkeyServer(tmp_path / "valkey").running() as valkey:
        node = ServeProcess(tmp_path / "node", "--roles", "api", "--store", f"redis://127.0.0.1:{valkey.port}/0")
        with started(node):
            assert ready(node)[0] == 200
            valkey.freeze()
            status, said = ready(node)
            assert (status, said["type"]) == (503, "urn:holdfast:problem:not-ready")
            (check,) = said["checks"]
            assert (check["name"], check["ok"], bool(check["reason"])) == ("store", False, True)
            assert httpx.get(f"{node.http}/live", timeout=WAIT_S).status_code == 200
            assert "holdfast_metrics_missing 1" in httpx.get(f"{node.http}/metrics", timeout=WAIT_S).text
            listing = httpx.get(f"{node.http}/api/pipelines", timeout=2 * WAIT_S)
            assert listing.status_code in (503, 504), "what needs the store says so, in bounded time"
            assert listing.headers["content-type"] == "application/problem+json"
            valkey.thaw()
            until(lambda: ready(node)[0] == 200, what="it is ready again")


def test_an_agent_that_has_lost_its_session_is_not_ready(tmp_path: Path) -> None:
    (tmp_path / "valkey").mkdir()
    brief = ("--set", "session.ttl_ms=3000", "--set", "session.renew_ms=500", "--set", "session.margin_ms=500")
    with ValkeyServer(tmp_path / "valkey").running() as valkey:
        node = ServeProcess(
            tmp_path / "node", "--roles", "api,agent", "--store", f"redis://127.0.0.1:{valkey.port}/0", *brief
        )
        with started(node):
            assert [each["name"] for each in ready(node)[1]["checks"]] == ["store", "agent"]
            valkey.freeze()
            until(lambda: not ready(node)[1]["checks"][1]["ok"], what="the agent stops by itself")
            assert "lost its session" in ready(node)[1]["checks"][1]["reason"]
            valkey.thaw()
            until(lambda: ready(node)[0] == 200, what="it has joined again")


def test_it_listens_beyond_this_machine_only_when_told_to(tmp_path: Path) -> None:
    done = refused("--data", str(tmp_path / "data"), "--kafka", "127.0.0.1:0", "--http", "0.0.0.0:0", cwd=tmp_path)
    assert done.returncode == 2
    assert "anyone who can reach it can read and delete everything" in done.stderr
    node = ServeProcess(tmp_path / "node", "--roles", "api", "--http", "0.0.0.0:0", "--insecure")
    with started(node):
        assert node.log.count("without authentication: anyone who can reach it has full access") == 1
        port = int(node.http.rpartition(":")[2])
        for host, status in (("node-1", 200), ("rebound.example", 421)):
            answer = httpx.get(f"http://127.0.0.1:{port}/live", headers={"host": host}, timeout=WAIT_S)
            assert answer.status_code == status, "a name that a stranger has pointed here is not ours"


def test_an_address_that_is_taken_is_unavailable_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        done = refused("--data", str(tmp_path / "data"), "--kafka", "127.0.0.1:0", "--http", place, cwd=tmp_path)
    assert done.returncode == 3
    assert f"{place} is unavailable: already in use; try --http 127.0.0.1:" in done.stderr
    assert not (tmp_path / "data").exists(), "nothing is left behind"


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    node = ServeProcess(tmp_path / "node", "--roles", "api,agent", "--http", "off")
    with started(node):
        assert json.loads(node.addresses.read_text()) == {"kafka": node.kafka}
        assert "http       off: --http off" in node.out
        assert produce(node.kafka, "orders", "a") == [0]


def test_an_address_may_be_off_and_nothing_else() -> None:
    assert address_or_off("http.listen", "OFF", usual_port=8080) is None
    assert str(address_or_off("http.listen", "[::1]:0", usual_port=8080)) == "[::1]:0"
    for wrong in ("8080", "http://127.0.0.1:8080", "", "127.0.0.1:99999"):
        with pytest.raises(InvalidError):
            address_or_off("http.listen", wrong, usual_port=8080)


def test_a_request_under_way_is_answered_after_sigterm(tmp_path: Path) -> None:
    node = ServeProcess(tmp_path / "node", "--roles", "api,agent")
    with started(node):
        host, _, port = node.http.partition("//")[2].partition(":")
        httpx.get(f"{node.http}/live", timeout=WAIT_S)
        asking = http.client.HTTPConnection(host, int(port), timeout=WAIT_S)
        body = b'{"name": "late"}'
        asking.putrequest("POST", "/api/pipelines")
        asking.putheader("content-type", "application/json")
        asking.putheader("content-length", str(len(body)))
        asking.endheaders(body[:5])
        until(lambda: "under_way 2" in httpx.get(f"{node.http}/metrics", timeout=WAIT_S).text, what="it is under way")
        node.process.send_signal(signal.SIGTERM)
        until(lambda: "stopping" in node.log, what="it stops")
        asking.send(body[5:])
        answer = asking.getresponse()
        assert (answer.status, json.loads(answer.read())["name"]) == (201, "late")
        asking.close()
        assert node.ended() == 0
