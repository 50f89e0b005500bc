"""`holdfast top` at a real server, and in a real terminal."""

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios

import pytest
from tests.observability.conftest import READ, RECORDS, BusyServer
from tests.support.server_process import environment
from tests.support.waiting import WAIT_S, until

from holdfast.testing.server_process import free_port

pytestmark = pytest.mark.xdist_group("observability")

TOP = (sys.executable, "-m", "holdfast", "top", "--interval", "0.2")


def test_one_look_as_json_has_topics_lag_leases_and_the_node_that_does_not_answer(busy: BusyServer) -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    command = [*TOP, "--once", "--json", "--http", f"{busy.node.http},{gone}"]
    done = subprocess.run(command, capture_output=True, env=environment(), timeout=WAIT_S, check=True)
    found = json.loads(done.stdout)
    assert [(each["node"], each["up"]) for each in found["nodes"]] == [(busy.node.http, True), (gone, False)]
    assert {each["topic"] for each in found["topics"]} >= {"orders", "logs"}
    (group,) = found["groups"]
    assert (group["group"], group["lag"], group["worst"]) == ("billing", RECORDS + 2 - READ, "orders:0")
    assert found["agents"][0]["leases"] > 0
    assert found["leaderless"] == 0


def test_in_a_terminal_it_refreshes_until_it_is_interrupted(busy: BusyServer) -> None:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    command = [*TOP, "--http", busy.node.http]
    shown = b""

    def sees(count: int) -> bool:
        nonlocal shown
        shown += os.read(leader, 65_536)
        return shown.count(b"billing") >= count

    top = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment(TERM="xterm"))
    try:
        until(lambda: sees(2), what=lambda: shown.decode(errors="replace"))
        top.send_signal(signal.SIGINT)
        assert top.wait(WAIT_S) == 130
    finally:
        top.kill()
        os.close(follower)
        os.close(leader)
    assert b"1 of 1 nodes answer" in shown
    assert b"\x1b[?1049h" in shown, "a screen of its own, so that the shell's is back afterwards"
