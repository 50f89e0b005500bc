"""Binding: every address of a name that this machine has, one port for all, and a clear error otherwise."""

import socket
from typing import Any

import pytest

from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.sockets import bind, bind_one, is_loopback, listen


def test_every_address_of_a_name_gets_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", 0)) for n in (1, 2)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    sockets = bind("name", 0)
    try:
        assert [each.getsockname()[0] for each in sockets] == ["127.0.0.1", "127.0.0.2"]
        assert len({each.getsockname()[1] for each in sockets}) == 1
    finally:
        for each in sockets:
            each.close()


def test_an_address_this_machine_does_not_have_is_left_out_unless_it_is_the_only_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elsewhere: Any = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("203.0.113.1", 0))
    here: Any = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [elsewhere, here])
    (made,) = bind("name", 0)
    assert made.getsockname()[0] == "127.0.0.1"
    made.close()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [elsewhere])
    with pytest.raises(UnavailableError, match="cannot listen there"):
        bind("name", 0)


def test_a_port_in_use_and_an_unknown_host_are_errors() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UnavailableError, match="in use"):
            bind("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(InvalidError, match="address to listen on"):
        bind("no.such.host.invalid", 0)


def test_a_port_in_use_names_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UnavailableError, match=r"in use; port \d+ is free") as refused:
            bind("127.0.0.1", taken.getsockname()[1])
    free = int(str(refused.value).split("port ")[1].split()[0])
    bind_one("127.0.0.1", free).close()


def test_a_bound_socket_queues_connections_once_it_listens() -> None:
    with bind_one("127.0.0.1", 0) as bound:
        address = bound.getsockname()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address, timeout=5)
        listen([bound])
        socket.create_connection(address, timeout=5).close()
        assert is_loopback(bound)
    with bind_one("0.0.0.0", 0) as bound:
        assert not is_loopback(bound)
