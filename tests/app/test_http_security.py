"""Logins over HTTP at a real server, from the bootstrap token on: keys, passwords, sessions, revocation, the audit log."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.command_line import Run
from tests.support.command_line import run as run
from tests.support.secured_server import LOGINS, SecuredServer, allowed
from tests.support.server_process import started
from tests.support.waiting import WAIT_S, until

from holdfast.security.acls import Operation, ResourceType
from holdfast.security.api_keys import Scope

V1 = "/api/v1"
ADMIN = {"user": "admin", "password": "a long enough one"}
TOPIC = ResourceType.TOPIC


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    directory = tmp_path_factory.mktemp("secured")
    options = ("--text", "127.0.0.1:0", "--audit", str(directory / "audit.jsonl"))
    failures = ("--set", "security.login_failures_max=4", "--set", "security.login_address_failures_max=4")
    limits = (*failures, "--set", "security.login_lock_ms=600000")
    confirmed = ("--set", "confirmations.required=topic.delete")
    node = SecuredServer(directory, *LOGINS, *options, *limits, *confirmed)
    with started(node):
        yield node


@pytest.fixture(scope="module")
def admin(secured: SecuredServer) -> Iterator[httpx.Client]:
    """The first administrator, made with the token that the server has printed; and a topic."""
    found = re.search(r"token (hfb_\w+)", secured.out)
    assert found is not None
    with secured.anonymous() as anybody:
        wrong = anybody.post(f"{V1}/bootstrap", json={"token": "hfb_" + "0" * 40, **ADMIN})
        assert refused(wrong, 401, "unauthenticated")
        assert anybody.post(f"{V1}/bootstrap", json={"token": found[1], **ADMIN}).status_code == 204
        again = anybody.post(f"{V1}/bootstrap", json={"token": found[1], "user": "eve", "password": "x"})
        assert refused(again, 401, "unauthenticated")
    with httpx.Client(base_url=secured.http, timeout=WAIT_S, auth=(ADMIN["user"], ADMIN["password"])) as client:
        assert client.post(f"{V1}/topics", json={"name": "orders"}).status_code == 201
        yield client


def refused(answer: httpx.Response, status: int, name: str) -> Any:
    assert (answer.status_code, answer.json().get("type")) == (status, f"urn:holdfast:problem:{name}"), answer.text
    return answer.json()


def new_key(admin: httpx.Client, principal: str, *scopes: str) -> Any:
    body = {"name": "of a test", "principal": f"User:{principal}", **({"scopes": scopes} if scopes else {})}
    answer = admin.post(f"{V1}/keys", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def grant(admin: httpx.Client, user: str, *operations: str, topic: str = "orders") -> None:
    acls = [
        {"principal": f"User:{user}", "operation": each, "resourceType": "topic", "resourceName": topic}
        for each in operations
    ]
    assert admin.post(f"{V1}/acls", json=acls).status_code == 201


def test_a_key_does_what_its_principal_may_within_its_scopes(secured: SecuredServer, admin: httpx.Client) -> None:
    grant(admin, "ann", "read", "write")
    made = new_key(admin, "ann", "write")
    with secured.with_key(made["secret"]) as client:
        assert client.post(f"{V1}/produce", json={"topic": "orders", "value": 1}).status_code == 200
        said = refused(client.get(f"{V1}/consume", params={"topic": "orders"}), 403, "not-authorized")
        assert said["detail"] == "User:ann may not read topic 'orders'"
        assert [each["name"] for each in client.get(f"{V1}/topics").json()] == ["orders"]
        assert client.get(f"{V1}/session").json()["principal"] == "User:ann"
    listed = admin.get(f"{V1}/keys").json()
    assert made["secret"].rpartition("_")[2] not in str(listed)
    (shown,) = [each for each in listed if each["prefix"] == made["prefix"]]
    assert (shown["principal"], shown["scopes"]) == ("User:ann", ["write"])
    assert admin.delete(f"{V1}/keys/{made['prefix']}").status_code == 204
    assert refused(admin.delete(f"{V1}/keys/{made['prefix']}"), 404, "not-found")
    with secured.with_key(made["secret"]) as client:
        refused(client.get(f"{V1}/topics"), 401, "unauthenticated")


def test_a_key_that_is_revoked_ends_the_tail_and_the_long_poll_that_it_opened(
    secured: SecuredServer, admin: httpx.Client
) -> None:
    grant(admin, "tia", "read", "write")
    made = new_key(admin, "tia")
    polled: list[httpx.Response] = []

    def poll() -> None:
        with secured.with_key(made["secret"]) as client:
            query: dict[str, str | int] = {"topic": "orders", "offset": "latest", "waitMs": 50_000}
            polled.append(client.get(f"{V1}/consume", params=query))

    waiting = threading.Thread(target=poll)
    with secured.with_key(made["secret"]) as client, client.stream("GET", f"{V1}/topics/orders/tail") as stream:
        assert stream.status_code == 200
        lines = stream.iter_lines()
        assert next(lines).startswith("retry")
        waiting.start()
        until(lambda: "\nholdfast_http_waits 2\n" in admin.get("/metrics").text)
        assert admin.delete(f"{V1}/keys/{made['prefix']}").status_code == 204
        assert [line for line in lines if line.startswith("data")] == []
    waiting.join(WAIT_S)
    refused(polled[0], 401, "unauthenticated")


def test_a_permission_that_is_withdrawn_ends_a_tail(secured: SecuredServer, admin: httpx.Client) -> None:
    grant(admin, "una", "read")
    made = new_key(admin, "una")
    with secured.with_key(made["secret"]) as client, client.stream("GET", f"{V1}/topics/orders/tail") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("retry")
        assert len(admin.request("DELETE", f"{V1}/acls", json={"principal": "User:una"}).json()) == 1
        assert [line for line in lines if line.startswith("data")] == []


def test_a_confirmation_is_good_for_who_asked_for_it_alone(secured: SecuredServer, admin: httpx.Client) -> None:
    assert admin.post(f"{V1}/topics", json={"name": "doomed"}).status_code == 201
    asked = {"action": "topic.delete", "resource": "doomed"}
    with secured.anonymous() as anybody:
        refused(anybody.post("/v1/confirmations", json=asked), 401, "unauthenticated")
    grant(admin, "cat", "delete", topic="doomed")
    with secured.with_key(new_key(admin, "cat", *Scope)["secret"]) as client:
        tokens = [each.post("/v1/confirmations", json=asked).json()["confirmationToken"] for each in (client, admin)]
        of_cat, of_admin = ({"force": "true", "confirmation_token": token} for token in tokens)
        refused(client.delete(f"{V1}/topics/doomed", params=of_admin), 428, "unconfirmed")
        refused(admin.delete(f"{V1}/topics/doomed", params=of_cat), 428, "unconfirmed")
        assert client.delete(f"{V1}/topics/doomed", params=of_cat).status_code == 204


def test_a_session_is_a_cookie_that_changes_nothing_without_its_token(
    secured: SecuredServer, admin: httpx.Client
) -> None:
    with secured.anonymous() as browser:
        answer = browser.post(f"{V1}/login", json=ADMIN)
        assert answer.status_code == 200
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly; SameSite=Strict" in cookie
        assert "Secure" not in cookie, "over TLS alone"
        said = answer.json()
        assert browser.get(f"{V1}/session").json() == said

        def create(**headers: str) -> httpx.Response:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return browser.post(f"{V1}/topics", json={"name": "of-a-session"}, headers=named)

        refused(create(), 403, "csrf")
        refused(create(x_csrf_token="wrong"), 403, "csrf")
        assert create(x_csrf_token=said["csrfToken"]).status_code == 201
        assert browser.post(f"{V1}/logout").status_code == 204
        refused(browser.get(f"{V1}/session"), 401, "unauthenticated")


def test_a_new_password_ends_the_sessions_of_the_old_one(secured: SecuredServer, admin: httpx.Client) -> None:
    assert admin.post(f"{V1}/users", json={"name": "pat", "password": "first"}).status_code == 201
    assert admin.post(f"{V1}/users", json={"name": "pat", "password": "other"}).status_code == 422
    assert {"name": "pat", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]} in admin.get(f"{V1}/users").json()
    with secured.anonymous() as browser:
        assert browser.post(f"{V1}/login", json={"user": "pat", "password": "first"}).status_code == 200
        assert browser.get(f"{V1}/session").status_code == 200
        assert admin.put(f"{V1}/users/pat/password", json={"password": "second"}).status_code == 200
        refused(browser.get(f"{V1}/session"), 401, "unauthenticated")
    assert admin.delete(f"{V1}/users/pat").status_code == 204
    refused(admin.delete(f"{V1}/users/pat"), 404, "not-found")
    refused(admin.put(f"{V1}/users/pat/password", json={"password": "x"}), 404, "not-found")


def test_a_key_is_a_password_of_kafkas_plain_and_of_basic(
    secured: SecuredServer, admin: httpx.Client, run: Run
) -> None:
    grant(admin, "kim", "read", "write", "describe")
    made = new_key(admin, "kim")
    with httpx.Client(base_url=secured.http, timeout=WAIT_S, auth=("token", made["secret"])) as client:
        assert client.get(f"{V1}/session").json()["principal"] == "User:kim"
    login = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN", "-X", "sasl.username=token")
    command = ("topic", "list", "--bootstrap", secured.kafka, "--json", *login, "-X", f"sasl.password={made['secret']}")
    assert "orders" in [row["name"] for row in run(*command).rows]


def test_the_command_line_brings_a_key(secured: SecuredServer, admin: httpx.Client, tmp_path: Path, run: Run) -> None:
    secured.administer(acls=allowed("ops", (Operation.ALL, TOPIC), (Operation.ALL, ResourceType.CLUSTER)))
    prefix, secret = secured.create_key("ops", *Scope)
    file = tmp_path / "key"
    file.write_text(secret + "\n")
    until(lambda: prefix in [each["prefix"] for each in admin.get(f"{V1}/keys").json()])
    flags = ("--api-key-file", str(file))
    assert run("pipeline", "list", "--http", secured.http, *flags).code == 0
    without = run("pipeline", "list", "--http", secured.http)
    assert without.code == 2
    assert "authentication failed" in without.err
    assert run("text", secured.text, "PUT", "orders", "hello", *flags).text == "OK\n"
    assert run("text", secured.text, "PUT", "orders", "x").text.startswith("ERR authentication required")
    file.write_text("hf_0123456789ab_" + "0" * 40)
    assert "authentication failed" in run("text", secured.text, "METRICS", *flags).err


def test_administration_and_refusals_are_audited(secured: SecuredServer, admin: httpx.Client) -> None:
    made = new_key(admin, "zoe")
    with secured.with_key(made["secret"]) as client:
        said = client.delete(f"{V1}/topics/orders")
        refused(said, 403, "not-authorized")
    answer = admin.post(f"{V1}/topics", json={"name": "audited"})
    path = secured.directory / "audit.jsonl"

    def lines() -> dict[str, Any]:
        found = [json.loads(line) for line in path.read_text().splitlines()]
        return {line.get("request", ""): line for line in found}

    until(lambda: {said.headers["x-request-id"], answer.headers["x-request-id"]} <= set(lines()))
    no, yes = lines()[said.headers["x-request-id"]], lines()[answer.headers["x-request-id"]]
    assert (no["principal"], no["host"], no["action"], no["resource"], no["outcome"]) == (
        *("User:zoe", "127.0.0.1", "DELETE /api/v1/topics/{topic}", "/api/v1/topics/orders", "refused"),
    )
    assert no["detail"] == "User:zoe may not delete topic 'orders'"
    assert (yes["principal"], yes["action"], yes["outcome"]) == ("User:admin", "POST /api/v1/topics", "allowed")
    assert made["secret"] not in path.read_text()
    assert ADMIN["password"] not in path.read_text() + secured.log + secured.out


def test_logins_that_fail_lock_the_user_and_the_address(secured: SecuredServer, admin: httpx.Client) -> None:
    assert admin.post(f"{V1}/users", json={"name": "vic", "password": "right"}).status_code == 201

    def log_in(address: str, user: str, password: str) -> httpx.Response:
        from_there = httpx.HTTPTransport(local_address=address)
        with httpx.Client(base_url=secured.http, timeout=WAIT_S, transport=from_there) as browser:
            return browser.post(f"{V1}/login", json={"user": user, "password": password})

    tried = [log_in("127.0.0.2", "vic", f"wrong {number}") for number in range(5)]
    assert [each.status_code for each in tried] == [401, 401, 401, 401, 429]
    assert int(tried[-1].headers["retry-after"]) > 500
    refused(log_in("127.0.0.2", "another", "x"), 429, "too-many-attempts")
    refused(log_in("127.0.0.3", "vic", "right"), 429, "too-many-attempts")
    assert log_in("127.0.0.3", "admin", ADMIN["password"]).status_code == 200


def test_a_confirmation_of_somebody_else_is_refused(secured: SecuredServer, admin: httpx.Client) -> None:
    assert admin.post(f"{V1}/topics", json={"name": "precious"}).status_code == 201
    grant(admin, "kim", "delete", topic="precious")
    key = new_key(admin, "kim", "admin")["secret"]
    asked = {"action": "topic.delete", "resource": "precious"}
    with secured.anonymous() as nobody, secured.with_key(key) as kim:
        refused(nobody.post("/v1/confirmations", json=asked), 401, "unauthenticated")
        token = admin.post("/v1/confirmations", json=asked).json()["confirmationToken"]
        path = f"{V1}/topics/precious"
        said = refused(kim.delete(path, params={"force": "true", "confirmation_token": token}), 428, "unconfirmed")
        assert "for something else" in said["detail"]
        token = kim.post("/v1/confirmations", json=asked).json()["confirmationToken"]
        assert kim.delete(path, params={"force": "true", "confirmation_token": token}).status_code == 204
