"""HTTP and the text protocol beyond this machine: with logins and TLS, and otherwise only if somebody insists."""

import ssl
from pathlib import Path

import httpx
import pytest
from tests.support.certificates import certificate
from tests.support.server_process import ServeProcess, refused, started

LOGINS = ("--sasl", "SCRAM-SHA-512", "--super-users", "User:root", "--roles", "api,agent")
NODE_TLS = ("--tls-cert", "--tls-key")


@pytest.mark.parametrize("port", ["http", "text"])
def test_a_port_beyond_loopback_needs_logins_and_tls(tmp_path: Path, port: str) -> None:
    data = ("--data", str(tmp_path / "data"), "--kafka", "127.0.0.1:0")
    for options in (LOGINS, ()):
        done = refused(*data, f"--{port}", "0.0.0.0:0", *options, cwd=tmp_path)
        assert done.returncode == 2
        assert f"--{port}-tls-cert" in done.stderr
        assert "--insecure" in done.stderr


def test_with_logins_and_tls_they_are_open_to_who_logs_in(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "node")
    tls = [each for pair in zip(NODE_TLS, map(str, (cert, key)), strict=True) for each in pair]
    node = ServeProcess(tmp_path / "node", *LOGINS, *tls, "--http", "0.0.0.0:0", "--text", "0.0.0.0:0")
    with started(node):
        assert "without authentication" not in node.log
        port = node.http.rpartition(":")[2]
        tls_context = ssl.create_default_context(cafile=cert)
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=tls_context, timeout=60) as client:
            assert client.get("/api/v1/topics").status_code == 401
            assert client.get("/live").status_code == 200
