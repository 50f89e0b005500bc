"""The access policy: programs on this machine are accepted, web pages in a browser on it are not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.http_gateway import behind_middleware, echo, problem_of, running_http_gateway

from holdfast.gateways.http.access_policy import HostPolicy, duplicate_header_problem
from holdfast.gateways.http.settings import HttpSettings

LOOPBACK = HostPolicy.of(HttpSettings(), loopback=True)


def status(access_policy: HostPolicy, method: str, **headers: str) -> int:
    said = access_policy.refusal(method, {name.replace("_", "-"): value for name, value in headers.items()})
    return 200 if said is None else said.status


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1",
        "127.0.0.1:8080",
        "[::1]:8080",
        "127.9.9.9",
        "a.localhost",
        "localhost.",
    ],
)
def test_a_loopback_name_is_ours(host: str) -> None:
    assert status(LOOPBACK, "GET", host=host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "10.0.0.1",
        "localhost@evil.example",
        "localhost/x",
        "evil.example#localhost",
        "[::2]",
        "[",
        "localhost:x",
        "127.0.0.1:99999",
        "notlocalhost",
    ],
)
def test_another_name_is_not_for_reading_either(host: str) -> None:
    assert status(LOOPBACK, "GET", host=host) == 421


def test_a_name_in_the_settings_is_ours_too() -> None:
    access_policy = HostPolicy.of(HttpSettings(hosts="holdfast.internal, Other.Example"), loopback=True)
    assert status(access_policy, "GET", host="holdfast.internal:8080") == 200
    assert status(access_policy, "GET", host="other.example") == 200
    assert status(access_policy, "GET", host="evil.example") == 421


def test_beyond_loopback_a_page_that_rebinds_its_name_is_no_client() -> None:
    exposed = HostPolicy.of(HttpSettings(), loopback=False, own=("Node-1.Example.com",))
    ours = ("10.0.0.7:8080", "[2001:db8::7]:8080", "node-1:8080", "holdfast.prod.svc.cluster.local", "localhost")
    assert {status(exposed, "GET", host=each) for each in (*ours, "node-1.example.com")} == {200}
    for host in ("evil.example", "rebound.evil.example:8080", "10.0.0.7.evil.example", "node-1.local.evil.example", ""):
        for method in ("GET", "POST", "DELETE"):
            assert status(exposed, method, host=host) == 421
    page = {"host": "node-1:8080", "origin": "http://evil.example"}
    assert [status(exposed, each, **page) for each in ("GET", "POST", "PUT", "PATCH", "DELETE")] == [200, *[403] * 4]


def test_names_that_are_listed_are_the_only_ones() -> None:
    listed = HostPolicy.of(HttpSettings(hosts="node-1"), loopback=False)
    assert [status(listed, "GET", host=each) for each in ("node-1:8080", "node-2", "localhost")] == [200, 421, 200]


def test_a_foreign_page_may_not_write() -> None:
    own = {"host": "localhost:8080", "origin": "http://localhost:8080"}
    assert status(LOOPBACK, "POST", **own) == 200
    for origin in (
        "http://evil.example",
        "null",
        "http://localhost:9999",
        "https://localhost.evil:8080",
        "file://localhost:8080",
    ):
        assert status(LOOPBACK, "POST", host="localhost:8080", origin=origin) == 403
    assert status(LOOPBACK, "POST", host="localhost:8080", sec_fetch_site="cross-site") == 403
    assert status(LOOPBACK, "POST", host="localhost:8080", sec_fetch_site="same-site") == 403
    assert status(LOOPBACK, "POST", host="localhost:8080", sec_fetch_site="same-origin") == 200
    allowed = HostPolicy.of(HttpSettings(origins="http://console.example"), loopback=True)
    assert status(allowed, "DELETE", host="localhost:8080", origin="http://console.example") == 200


def test_a_body_that_a_form_could_send_is_refused() -> None:
    for media in (
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
    ):
        assert status(LOOPBACK, "POST", host="localhost", content_length="2", content_type=media) == 415
    for media in ("application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"):
        assert status(LOOPBACK, "POST", host="localhost", content_length="2", content_type=media) == 200
    assert status(LOOPBACK, "POST", host="localhost", content_length="0") == 200
    assert status(LOOPBACK, "POST", host="localhost", transfer_encoding="chunked") == 415


def test_a_repeated_header_is_refused() -> None:
    assert duplicate_header_problem(["host", "origin", "origin"]) is not None
    assert duplicate_header_problem(["host", "accept", "accept"]) is None


@given(st.text(max_size=50), st.text(max_size=50))
def test_any_text_is_judged(host: str, origin: str) -> None:
    status(LOOPBACK, "POST", host=host, origin=origin)


async def test_the_server_applies_its_access_policy() -> None:
    async with running_http_gateway(factory=behind_middleware(echo)) as served:
        said = problem_of(await served.client.get("/", headers={"host": "evil.example"}), 421, "misdirected")
        assert said["errors"] == [
            {
                "detail": "unknown host name",
                "header": "host",
                "allowed": "localhost, a loopback address, or a name in the setting http.hosts",
            }
        ]
        problem_of(await served.client.post("/", headers={"origin": "http://evil.example"}), 403, "foreign-origin")
        problem_of(await served.client.post("/", content=b"{}"), 415, "media-type")
        answer = await served.client.get("/")
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["x-content-type-options"] == "nosniff"
        twice = b"GET / HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n"
        assert (await served.raw(twice)).startswith(b"HTTP/1.1 400 ")
