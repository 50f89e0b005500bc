"""Attacks on the logins of a real server: passwords by the hundred, forged tokens, other people's cookies."""

import asyncio
import hmac
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.utils import base64url_encode
from tests.app.test_http_authorization_matrix import call
from tests.support.kafka_security import SecureClient
from tests.support.kafka_wire import WireClient
from tests.support.oauth import AUDIENCE, ISSUER, Issuer, bearer, ec_key, rsa_key, unsecured
from tests.support.secured_server import PASSWORD, SecuredServer
from tests.support.server_process import started
from tests.support.waiting import WAIT_S, until

from holdfast.gateways.http.route_rules import RULES
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.settings import SecuritySettings
from holdfast.v1.topic_service_pb2 import ListTopicsRequest
from holdfast.v1.topic_service_pb2_grpc import TopicServiceStub

V1, COOKIE = "/api/v1", "holdfast_session"
TRIES, ALLOWED = 100, SecuritySettings().login_failures_max
USERS = ("root", "eve", *(f"victim-{name}" for name in ("login", "basic", "grpc", "plain", "scram")))


@dataclass(frozen=True)
class Attacked:
    """A server whose users have the password `PASSWORD`; `root` may do everything."""

    server: SecuredServer
    issuer: Issuer

    def refusals(self, host: str) -> list[str]:
        """Why callers at this address were refused, by the audit log."""
        lines = map(json.loads, (self.server.directory / "audit.jsonl").read_text().splitlines())
        return [each["detail"] for each in lines if each["host"] == host and each["outcome"] == "refused"]

    async def kafka(self, host: str = "127.0.0.1") -> SecureClient:
        """A connection from this address."""
        name, _, port = self.server.kafka.rpartition(":")
        return SecureClient(WireClient(*await asyncio.open_connection(name, int(port), local_addr=(host, 0))))

    def browser(self) -> httpx.Client:
        return self.server.anonymous()


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    directory, issuer = tmp_path_factory.mktemp("attacked"), Issuer()
    issuer.keys["rsa"] = rsa_key()
    with issuer.serving():
        sasl = ("--roles", "api,agent", "--sasl", "SCRAM-SHA-512,PLAIN,OAUTHBEARER", "--super-users", "User:root")
        oauth = ("--oauth-jwks", f"{issuer.url}/keys", "--oauth-issuer", ISSUER, "--oauth-audience", AUDIENCE)
        audit = ("--audit", str(directory / "audit.jsonl"), "--set", "security.audit_refusals_per_s=100000")
        server = SecuredServer(directory, *sasl, *oauth, *audit, "--grpc", "127.0.0.1:0")
        with started(server):
            server.administer(USERS)
            with server.as_user(USERS[-1]) as last:
                until(lambda: last.get(f"{V1}/session").status_code == httpx.codes.OK, what="users are seen")
            yield Attacked(server, issuer)


# ── passwords ──


def address(gateway: int, number: int) -> str:
    """Many addresses: a limit of one of them is not what stops the attack."""
    return f"127.{gateway}.0.{number % 10 + 1}"


def client_at(attacked: Attacked, host: str) -> httpx.AsyncClient:
    from_there = httpx.AsyncHTTPTransport(local_address=host, verify=False)
    return httpx.AsyncClient(base_url=attacked.server.http, transport=from_there, timeout=WAIT_S)


async def over_login(attacked: Attacked, password: str, host: str) -> bool:
    async with client_at(attacked, host) as client:
        answer = await client.post(f"{V1}/login", json={"user": "victim-login", "password": password})
    return answer.status_code == httpx.codes.OK


async def over_basic(attacked: Attacked, password: str, host: str) -> bool:
    async with client_at(attacked, host) as client:
        answer = await client.get(f"{V1}/topics", auth=("victim-basic", password))
    return answer.status_code == httpx.codes.OK


async def over_kafka(attacked: Attacked, mechanism: str, user: str, password: str, host: str) -> bool:
    client = await attacked.kafka(host)
    try:
        return await client.log_in(mechanism, user, password) is ErrorCode.NONE
    finally:
        client.wire.close()


async def over_plain(attacked: Attacked, password: str, host: str) -> bool:
    return await over_kafka(attacked, "PLAIN", "victim-plain", password, host)


async def over_scram(attacked: Attacked, password: str, host: str) -> bool:
    return await over_kafka(attacked, "SCRAM-SHA-512", "victim-scram", password, host)


Login = Callable[[Attacked, str, str], Awaitable[bool]]


@pytest.mark.parametrize(
    ("number", "log_in"),
    [
        pytest.param(2, over_login, id="login"),
        pytest.param(3, over_basic, id="basic"),
        pytest.param(4, over_plain, id="plain"),
        pytest.param(5, over_scram, id="scram"),
    ],
)
async def test_a_hundred_wrong_passwords_at_once_are_checked_as_often_as_is_allowed(
    attacked: Attacked, number: int, log_in: Login
) -> None:
    tries = (log_in(attacked, f"wrong {each}", address(number, each)) for each in range(TRIES))
    assert not any(await asyncio.gather(*tries))
    found = [each for host in range(10) for each in attacked.refusals(address(number, host))]
    assert sum(each.startswith("wrong user or password") for each in found) == ALLOWED
    assert len(found) >= ALLOWED
    assert not await log_in(attacked, PASSWORD, address(number, 0)), "the right one comes too late"


async def test_a_hundred_wrong_passwords_at_once_over_grpc(attacked: Attacked) -> None:
    async with grpc.aio.insecure_channel(attacked.server.grpc) as channel:

        async def log_in(password: str) -> grpc.StatusCode:
            shown = httpx.BasicAuth("victim-grpc", password)._auth_header
            try:
                await TopicServiceStub(channel).ListTopics(
                    ListTopicsRequest(), metadata=(("authorization", shown),), timeout=WAIT_S
                )
            except grpc.aio.AioRpcError as error:
                return error.code()
            return grpc.StatusCode.OK

        codes = Counter(await asyncio.gather(*(log_in(f"wrong {number}") for number in range(TRIES))))
        found = attacked.refusals("127.0.0.1")
        assert sum(each.startswith("wrong user or password for 'victim-grpc'") for each in found) <= ALLOWED
        assert grpc.StatusCode.OK not in codes
        # One address has room for so many checks at a time; what is refused for that reason alone was not tried.
        while await log_in("wrong again") is grpc.StatusCode.UNAUTHENTICATED:
            pass
        found = attacked.refusals("127.0.0.1")
        assert sum(each.startswith("wrong user or password for 'victim-grpc'") for each in found) == ALLOWED
        assert await log_in(PASSWORD) is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_user_who_does_not_exist_is_refused_in_the_same_words(attacked: Attacked) -> None:
    def said(answer: httpx.Response) -> tuple[int, object, object]:
        problem = answer.json()
        return answer.status_code, problem["type"], problem.get("detail")

    with attacked.browser() as client:
        first, second = (
            said(client.post(f"{V1}/login", json={"user": name, "password": "x"})) for name in ("eve", "nobody")
        )
    assert first == second
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        told = set()
        for name in ("eve", "nobody"):
            wire = await attacked.kafka()
            told.add(await wire.log_in(mechanism, name, "wrong"))
            assert await wire.wire.hung_up()
            wire.wire.close()
        assert told == {ErrorCode.SASL_AUTHENTICATION_FAILED}


# ── tokens ──


def hmac_signed(claims: dict[str, Any], key: bytes, **header: str) -> str:
    """A token of HS256 under any key: PyJWT refuses some, an attacker does not ask it."""
    head = unsecured(claims, {"alg": "HS256", **header}).removesuffix(".")
    return f"{head}.{base64url_encode(hmac.digest(key, head.encode(), 'sha256')).decode()}"


def forged(issuer: Issuer) -> Iterator[tuple[str, str]]:
    """Tokens that must not count, and what is wrong with each."""
    claims = issuer.claims("root")
    for name in ("none", "None", "NONE", ""):
        yield f"alg {name!r}", unsecured(claims, {"alg": name, "kid": "rsa"})
    for kid, key in (("rsa", rsa_key()), ("ec", ec_key())):
        for encoding in (Encoding.PEM, Encoding.DER):
            public = key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo)
            yield f"HMAC with the public {kid} key", hmac_signed(claims, public, kid=kid)
    mine = rsa_key(1)
    jwk = jwt.algorithms.RSAAlgorithm.to_jwk(mine.public_key(), as_dict=True)
    for header in ({"kid": "rsa"}, {"jwk": jwk}, {"kid": "mine", "jku": "http://127.0.0.1:9/keys"}, {"kid": "../rsa"}):
        yield f"another key, header {header}", jwt.encode(claims, mine, "RS256", headers=header)
    yield "expired", issuer.token("root", exp=1)
    yield "without an end", issuer.token("root", exp=None)
    yield "not yet", issuer.token("root", nbf=claims["exp"] + 1_000)
    yield "another audience", issuer.token("root", aud="somebody else")
    yield "no audience", issuer.token("root", aud=None)
    yield "another issuer", issuer.token("root", iss="https://elsewhere.test")
    yield "another signature", issuer.token("root", key="rsa")[:-8] + "AAAAAAAA"


async def test_no_forged_token_logs_anybody_in(attacked: Attacked) -> None:
    async def log_in(token: str) -> tuple[ErrorCode, bool]:
        client = await attacked.kafka()
        try:
            assert await client.handshake("OAUTHBEARER") is ErrorCode.NONE
            code = ErrorCode((await client.authenticate(bearer(token))).error_code)
            return code, code is not ErrorCode.NONE and await client.wire.hung_up()
        finally:
            client.wire.close()

    tokens = list(forged(attacked.issuer))
    for what, token in tokens:
        assert await log_in(token) == (ErrorCode.SASL_AUTHENTICATION_FAILED, True), what
    for key in attacked.issuer.keys:
        assert (await log_in(attacked.issuer.token("root", key=key)))[0] is ErrorCode.NONE
    assert len(tokens) >= 18


def logged_in(client: httpx.Client, user: str) -> str:
    """The token of a new session, which the client has as its cookie from now on; its requests need the csrf token as well."""
    answer = client.post(f"{V1}/login", json={"user": user, "password": PASSWORD})
    assert answer.status_code == httpx.codes.OK, answer.text
    return str(answer.json()["csrfToken"])


def test_no_forged_session_counts(attacked: Attacked) -> None:
    with attacked.browser() as client:
        logged_in(client, "eve")
        real = client.cookies[COOKIE]
    head, body, signature = real.split(".")
    claims: dict[str, Any] = jwt.decode(real, options={"verify_signature": False})
    as_root = {**claims, "sub": "root"}
    changed = base64url_encode(json.dumps(as_root).encode()).decode()
    rs256 = jwt.encode(as_root, rsa_key(1), "RS256")
    for token in (
        *(unsecured(as_root, {"alg": name}) for name in ("none", "None", "")),
        *(hmac_signed(as_root, key) for key in (b"", b"holdfast", b"secret" * 8)),
        *(f"{head}.{changed}.{signature}", f"{head}.{body}.", f"{head}.{body}", rs256, attacked.issuer.token("root")),
    ):
        with attacked.browser() as client:
            client.cookies.set(COOKIE, token)
            assert client.get(f"{V1}/session").status_code == httpx.codes.UNAUTHORIZED, token


# ── cookies ──


def test_every_route_that_changes_something_refuses_a_cookie_without_its_token(attacked: Attacked) -> None:
    routes = [route for route, rule in RULES.items() if not rule.public and not route.startswith("GET ")]
    assert len(routes) > 50
    with attacked.browser() as root, attacked.browser() as eve:
        token, foreign = logged_in(root, "root"), logged_in(eve, "eve")
        for route in routes:
            for sent in ({}, {"x-csrf-token": ""}, {"x-csrf-token": foreign}, {"x-csrf-token": token[:-1]}):
                root.headers = httpx.Headers(sent)
                answer = call(root, route)
                problem = answer.json()["type"].rpartition(":")[2]
                assert (answer.status_code, problem) == (httpx.codes.FORBIDDEN, "csrf"), (route, sent, answer.text)
        root.headers = httpx.Headers({"x-csrf-token": token})
        assert root.post(f"{V1}/topics", json={"name": "made-with-a-token"}).status_code == httpx.codes.CREATED


def test_a_login_takes_over_no_cookie_that_was_there_before(attacked: Attacked) -> None:
    """Session fixation: whoever plants a cookie knows nothing of the session that is opened later."""
    with attacked.browser() as eve, attacked.browser() as victim:
        planted_csrf = logged_in(eve, "eve")
        planted = eve.cookies[COOKIE]
        answer = victim.post(
            f"{V1}/login", json={"user": "root", "password": PASSWORD}, headers={"cookie": f"{COOKIE}={planted}"}
        )
        assert answer.status_code == httpx.codes.OK
        assert answer.cookies[COOKIE] != planted
        assert answer.json()["csrfToken"] != planted_csrf
        assert eve.get(f"{V1}/session").json()["principal"] == "User:eve"
        first = answer.cookies[COOKIE]
        logged_in(victim, "root")
        assert victim.cookies[COOKIE] != first, "each login has a session of its own"


def test_a_session_ends_with_its_user(attacked: Attacked) -> None:
    attacked.server.administer(["leaver"])
    with attacked.browser() as leaver, attacked.server.as_user("root") as root:
        until(lambda: leaver.post(f"{V1}/login", json={"user": "leaver", "password": PASSWORD}).is_success)
        assert leaver.get(f"{V1}/session").json()["principal"] == "User:leaver"
        assert root.delete(f"{V1}/users/leaver").is_success
        assert leaver.get(f"{V1}/session").status_code == httpx.codes.UNAUTHORIZED
