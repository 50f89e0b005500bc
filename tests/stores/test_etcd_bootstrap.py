"""Opening a store on etcd: its URL, and what is refused or noted."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from holdfast.contracts.store import Store
from holdfast.stores.etcd import etcd_pb2 as pb
from holdfast.stores.etcd.bootstrap import check_servers
from holdfast.stores.etcd.client import EtcdClient
from holdfast.stores.etcd.rpc_methods import MEMBER_LIST, STATUS
from holdfast.stores.etcd.settings import parse_url
from holdfast.stores.urls import open_store, parse_store_url
from holdfast.testing.server_process import free_port
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import SystemRandom

CLOCK, RANDOM = RealClock(), SystemRandom()


@pytest.fixture
def engine() -> str:
    return "etcd"


# The URL


def test_a_url_names_endpoints_prefix_login_and_certificates() -> None:
    text = "etcd://ann:s%40fe@one,two:2400,[::1]:7/team/a?ca=/ca.pem&cert=/c.pem&key=/k.pem&timeout_ms=700"
    address, settings = parse_url(parse_store_url(text))
    assert address.endpoints == ("one:2379", "two:2400", "[::1]:7")
    assert (address.prefix, address.user, address.password) == ("team/a", "ann", "s@fe")
    assert (address.tls, address.ca_path, address.cert_path, address.key_path) == (True, "/ca.pem", "/c.pem", "/k.pem")
    assert settings.timeout_ms == 700
    assert "s@fe" not in address.shown


@pytest.mark.parametrize(("url", "tls"), [("etcd://one", False), ("etcds://one", True), ("etcd://one?ca=/x", True)])
def test_tls_is_enabled_by_scheme_or_certificate(url: str, tls: bool) -> None:
    address, _ = parse_url(parse_store_url(url))
    assert (address.tls, address.prefix) == (tls, "holdfast")


@pytest.mark.parametrize(
    "url",
    [
        "etcd:///prefix",
        "etcd://one:port",
        "etcd://one:70000",
        "etcd://one?cert=/c.pem",
        "etcd://ann@one",
        "etcd://one?timeout_ms=soon",
        "etcd://one?timeout_ms=1",
        "etcd://one?tiemout_ms=1000",
    ],
)
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidError):
        parse_url(parse_store_url(url))


async def test_a_certificate_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InvalidError, match=r"/no/such/ca\.pem"):
        async with open_store("etcds://127.0.0.1:1?ca=/no/such/ca.pem", clock=CLOCK, random=RANDOM):
            pass


# What is checked at open


async def test_facts_name_the_server_with_notes(store: Store) -> None:
    assert store.facts.engine == "etcd"
    assert store.facts.server.startswith("etcd 3.")
    assert "1 of 1" in store.facts.durability
    assert any("single member" in note for note in store.facts.notes)
    if "etcd 3.5.1," in store.facts.server:
        assert any("3.5.6" in note for note in store.facts.notes)


@asynccontextmanager
async def claiming(status: pb.StatusResponse | None) -> AsyncIterator[str]:
    """A server that returns `status`, or denies it to this user; the URL of a store on it."""

    async def say(question: pb.StatusRequest, context: Any) -> pb.StatusResponse:
        if status is None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied")
        return status or pb.StatusResponse()

    async def list_members(question: pb.MemberListRequest, context: Any) -> pb.MemberListResponse:
        return pb.MemberListResponse(members=[pb.Member(name="alone")])

    server, port = grpc.aio.server(), free_port()
    for method, answer in ((STATUS, say), (MEMBER_LIST, list_members)):
        _, service, name = method.path.split("/")
        handler = grpc.unary_unary_rpc_method_handler(
            answer, method.request.FromString, method.response.SerializeToString
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: handler}),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield f"etcd://127.0.0.1:{port}?"
    finally:
        await server.stop(None)


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (pb.StatusResponse(version="3.3.27"), "3.4 or newer"),
        (pb.StatusResponse(version="3.5.9", isLearner=True), "voting member"),
        (pb.StatusResponse(version="3.5.9", errors=["memberID:1 alarm:CORRUPT "]), "corruption alarm"),
    ],
)
async def test_a_server_that_cannot_keep_the_contract_is_refused(status: pb.StatusResponse, why: str) -> None:
    async with claiming(status) as url:
        with pytest.raises(InvalidError, match=why):
            async with open_store(url, clock=CLOCK, random=RANDOM):
                pass


@pytest.mark.parametrize(
    ("status", "noted"),
    [
        (pb.StatusResponse(version="3.3.27"), "unsafe: etcd 3.3.27 is older than 3.4"),
        (pb.StatusResponse(version="3.6.0", errors=["alarm:CORRUPT"]), "alarm: alarm:CORRUPT"),
        (None, "version hidden"),
    ],
)
async def test_what_unsafe_accepts_is_noted(status: pb.StatusResponse | None, noted: str) -> None:
    async with claiming(status) as url:
        address, settings = parse_url(parse_store_url(f"{url}&unsafe=1"))
        async with EtcdClient.open(address, settings, clock=CLOCK, random=RANDOM) as client:
            checked = await check_servers(client)
    assert any(note.startswith(noted) for note in checked.notes)


async def test_an_unreachable_endpoint_is_named_in_the_error() -> None:
    port = free_port()
    with pytest.raises(UnavailableError, match=f"127.0.0.1:{port}"):
        async with open_store(f"etcd://127.0.0.1:{port}?timeout_ms=300", clock=CLOCK, random=RANDOM):
            pass
