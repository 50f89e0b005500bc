"""`host:port`, as every flag, option, URL and record gives it."""

import pytest

from holdfast.vocabulary.host_port import HostPort, join_host_port, resolvable, split_host_port


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("localhost:9092", "localhost", 9092),
        ("10.0.0.1:0", "10.0.0.1", 0),
        ("broker-1.example.org", "broker-1.example.org", None),
        (":9092", "", 9092),
        ("", "", None),
        ("[::1]:9092", "::1", 9092),
        ("[fe80::1%eth0]:9092", "fe80::1%eth0", 9092),
        ("[2001:db8::7]", "2001:db8::7", None),
        ("bücher.example:65535", "bücher.example", 65535),
    ],
)
def test_a_host_and_a_port_are_taken_apart_and_put_together(text: str, host: str, port: int | None) -> None:
    found = split_host_port(text)
    assert found == HostPort(host, port)
    if port is not None:
        assert join_host_port(host, port) == str(found) == text


@pytest.mark.parametrize(
    "text",
    [
        *("::1:9092", "[::1", "::1]:1", "[]:1", "[localhost]:9092"),
        *("host:65536", "host:123456", "host:", "host:x", "host:-1", "host:٣", "host:1 ", "a b:1"),
        *("http://host:1", "user@host:1", "host:1/path", "a:1,b:2"),
    ],
)
def test_what_is_no_host_and_port_is_refused(text: str) -> None:
    assert split_host_port(text) is None


@pytest.mark.parametrize(
    ("host", "does"),
    [*((host, False) for host in ("", "a..b", ".a", "a" * 64, "ü" * 60)), ("a.example.", True), ("my_host", True)],
)
def test_whether_a_resolver_takes_a_host(host: str, does: bool) -> None:
    assert resolvable(host) is does
