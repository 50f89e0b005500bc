"""Where gRPC is served: nobody has to ask for it, and what nobody asked for stops nothing."""

import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from tests.support.server_process import ServeProcess, started

from holdfast.app import grpc_gateway
from holdfast.app.addresses import Address
from holdfast.app.config import ServeSettings
from holdfast.app.grpc_gateway import bound_grpc
from holdfast.gateways.grpc import server as grpc_server
from holdfast.gateways.grpc.settings import GrpcSettings
from holdfast.vocabulary.errors import InvalidError, UnavailableError, UsageError
from holdfast.vocabulary.installation import NotInstalledError


@pytest.fixture
def taken() -> Iterator[Address]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield Address("127.0.0.1", server.getsockname()[1])


def settings(at: Address | None, *, default: bool = False) -> ServeSettings:
    return ServeSettings(data=Path("/data"), store="", objects="", grpc_listen=at, grpc_default=default)


async def test_a_default_address_that_is_taken_is_done_without(taken: Address) -> None:
    async with bound_grpc(settings(taken, default=True)) as gateway:
        assert gateway.address is None
        assert "in use" in gateway.disabled
    with pytest.raises(UnavailableError, match="try --grpc"):
        async with bound_grpc(settings(taken)):
            pass


@pytest.mark.slow
def test_of_two_servers_that_start_at_once_one_does_without(tmp_path: Path) -> None:
    """Both reserve the default address, which the kernel allows; the loser hears of it when it listens."""
    nodes = [
        ServeProcess(tmp_path / str(number), "--roles", "api,agent", "--http", "off", "--grpc", "auto")
        for number in range(3)
    ]
    with started(*nodes):
        served = [node for node in nodes if "grpc" in json.loads(node.addresses.read_text())]
        assert len(served) <= 1  # none: another process of this machine has it
        for node in nodes:
            assert (node in served) != ("gRPC is not served" in node.log)


async def test_an_address_that_somebody_takes_after_it_was_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def lost(*_: object) -> AsyncIterator[None]:
        raise UnavailableError("address", "cannot listen there")
        yield

    monkeypatch.setattr(grpc_server, "serving_grpc", lost)
    monkeypatch.setattr(grpc_gateway, "GrpcBackend", lambda **_: None)
    node = MagicMock()
    at = Address("127.0.0.1", 0)
    async with bound_grpc(settings(at, default=True)) as gateway, gateway.serving(node):
        assert (gateway.address, gateway.disabled) == (None, "address is unavailable: cannot listen there")
    with pytest.raises(UnavailableError, match="cannot listen there"):
        async with bound_grpc(settings(at)) as gateway, gateway.serving(node):
            pass


async def test_without_grpcio_only_who_asks_for_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpc_gateway, "find_spec", lambda name: None)
    at = Address("127.0.0.1", 0)
    async with bound_grpc(settings(at, default=True)) as gateway:
        assert "grpc is not installed" in gateway.disabled
    with pytest.raises(NotInstalledError, match="needs grpc"):
        async with bound_grpc(settings(at)):
            pass


async def test_beyond_loopback_it_needs_logins_and_tls() -> None:
    reachable = settings(Address("0.0.0.0", 0))
    with pytest.raises(UsageError, match="--sasl"):
        async with bound_grpc(reachable):
            pass
    async with bound_grpc(replace(reachable, insecure=True)) as gateway:
        assert gateway.address is not None


def test_certificate_and_key_come_together() -> None:
    for given in ({"tls_cert": "a"}, {"tls_key": "a"}, {"client_ca": "a"}):
        with pytest.raises(InvalidError):
            GrpcSettings(**given)  # type: ignore[arg-type]
