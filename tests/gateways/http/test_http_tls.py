"""HTTP over TLS: the same answers, limits that hold for the handshake, certificates that change without a restart."""

import asyncio
import json
import shutil
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.certificates import certificate
from tests.support.http_gateway import running_http_gateway
from tests.support.waiting import async_until

from holdfast.client.http_client import HttpClient
from holdfast.vocabulary.errors import UnavailableError


async def test_https_serves_and_a_new_certificate_is_used(tmp_path: Path) -> None:
    old, new = certificate(tmp_path, "old"), certificate(tmp_path, "new")
    used = tmp_path / "used.pem", tmp_path / "used.key"
    for source, target in zip(old, used, strict=True):
        shutil.copy(source, target)
    tls: dict[str, Any] = {"tls_cert": str(used[0]), "tls_key": str(used[1]), "tls_reload_ms": 20}
    async with running_http_gateway(**tls) as served:
        url = f"https://127.0.0.1:{served.port}"
        client = HttpClient(url, authorities=str(old[0]))
        assert (await asyncio.to_thread(client.get, "/live")) is not None
        for stranger in (HttpClient(url), HttpClient(url, authorities=str(new[0]))):
            with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
                await asyncio.to_thread(stranger.get, "/live")
        with pytest.raises(UnavailableError):
            await asyncio.to_thread(HttpClient(f"http://127.0.0.1:{served.port}").get, "/live")
        for source, target in zip(new, used, strict=True):
            shutil.copy(source, target)

        async def renewed() -> bool:
            try:
                await asyncio.to_thread(HttpClient(url, authorities=str(new[0])).get, "/live")
            except UnavailableError:
                return False
            return True

        await async_until(renewed)


async def test_a_request_in_flight_is_finished_at_the_end(tmp_path: Path) -> None:
    own, key = certificate(tmp_path, "node")
    async with running_http_gateway(tls_cert=str(own), tls_key=str(key)) as served:
        context = ssl.create_default_context(cafile=str(own))
        async with httpx.AsyncClient(verify=context, base_url=f"https://127.0.0.1:{served.port}") as client:
            answer = await client.get("/openapi.json")
            assert json.loads(answer.content)["openapi"].startswith("3.1")
            assert served.server.accepting
            await served.server.close_gracefully()
            assert not served.server.accepting


async def test_a_client_that_never_finishes_the_handshake_is_dropped(tmp_path: Path) -> None:
    own, key = certificate(tmp_path, "node")
    async with running_http_gateway(tls_cert=str(own), tls_key=str(key), head_ms=100) as served:
        with socket.create_connection(("127.0.0.1", served.port)) as silent:
            silent.settimeout(30)
            assert await asyncio.to_thread(silent.recv, 1) == b""
