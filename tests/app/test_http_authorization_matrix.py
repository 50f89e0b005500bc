"""Every route of the table × every kind of caller, at a real server: who is let in is what the table says, and nobody else."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.support.secured_server import LOGINS, Pair, SecuredServer, allowed
from tests.support.server_process import started
from tests.support.waiting import until

from holdfast.gateways.http.route_rules import RULES, NameSource, Need, RouteRule
from holdfast.security.acls import Operation, Permission, ResourceType

ALL = tuple((Operation.ALL, kind) for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER))
RECORD = {"topic": "t", "value": 1}
# What handlers look at before they can say who may: everything else is refused before its body is.
BODIES = {
    "POST /api/v1/topics": {"name": "made/by/nobody"},
    "PATCH /api/v1/topics/{topic}": {"partitions": 2, "replicationFactor": 1, "config": {"retention.ms": 1_000}},
    "POST /api/v1/produce": RECORD,
    "POST /api/v1/produce/batch": {"topic": "t", "records": [{"value": 1}]},
    "POST /api/v1/consumer-groups/{group}/reset": {"topics": ["t"], "to": "earliest", "dryRun": True},
    "POST /api/v1/consumer-groups/{group}/seek": {"topic": "t", "partition": 0, "offset": 0},
    "POST /api/v1/consumer-groups/commit": {
        "groupId": "g",
        "offsets": [{"topic": "t", "partition": 0, "offset": 0}],
    },
    "POST /v1/heaps": {"topic": "made/by/nobody"},
    "POST /v1/enqueue": {"topic": "t", "payload": "x"},
    "POST /v1/enqueue:batch": {"topic": "t", "messages": [{"payload": "x"}]},
    "POST /v1/pop": {"topic": "t"},
    "POST /v1/ack": {"topic": "t", "lease_token": "AAAA"},
    "POST /v1/nack": {"topic": "t", "lease_token": "AAAA"},
    "POST /v1/release": {"topic": "t", "lease_token": "AAAA"},
    "POST /v1/extend": {"topic": "t", "lease_token": "AAAA", "extension_ms": 1_000},
    "POST /v1/reprioritise": {"topic": "t", "message_id": "0" * 26, "priority": 1},
    "POST /v1/cancel": {"topic": "t", "message_id": "0" * 26},
    "POST /v1/dlq/replay": {"topic": "t"},
    "POST /v1/dlq/move": {"topic": "t", "message_id": "0" * 26},
    "POST /v1/dlq/delete": {"topic": "t"},
    "POST /v1/purge": {"topic": "t"},
}
QUERIES = {key: {"topic": "t"} for key in ("GET /api/v1/consume", "GET /v1/peek", "GET /v1/dlq", "GET /v1/dlq/peek")}
CREATING = ("POST /api/v1/topics", "POST /v1/heaps")  # on the cluster or on the topic: one is as good as the other
NOT_LET_IN = (401, 403)


def lacking(pair: Pair) -> str:
    return f"lacks-{pair[0]}-{pair[1]}"


def only(rule: RouteRule) -> str:
    return "only-" + "-".join(sorted({f"{need.operation}-{need.kind}" for need in rule.needs}))


def pairs(rule: RouteRule) -> list[Pair]:
    return [(need.operation, need.kind) for need in rule.needs]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    """A topic, and users: one who may do everything, one nothing; for each need one who lacks it, and one who has no more."""
    node = SecuredServer(tmp_path_factory.mktemp("matrix"), *LOGINS, "--audit", "off", "--super-users", "User:root")
    with started(node):
        needed = {pair for rule in RULES.values() for pair in pairs(rule)}
        acls = [
            *(acl for pair in needed for acl in allowed(lacking(pair), *ALL)),
            *(acl for pair in needed for acl in allowed(lacking(pair), pair, permission=Permission.DENY)),
            *(acl for rule in RULES.values() for acl in allowed(only(rule), *pairs(rule))),
        ]
        users = {*map(lacking, needed), *map(only, RULES.values()), "nobody"}
        node.administer([*sorted(users), "root"], acls)
        with node.as_user("root") as root:
            until(lambda: root.post("/api/v1/topics", json={"name": "t"}).status_code in (201, 409))
        yield node


def call(client: httpx.Client, route: str) -> httpx.Response:
    method, path = route.split(" ")
    for name, value in (("topic", "t"), ("group", "g"), ("pipeline", "p"), ("what", "source"), ("generation", "1")):
        path = path.replace(f"{{{name}}}", value)
    path = path.replace("{agent}", "a").replace("{prefix}", "0123456789ab").replace("{user}", "missing")
    if path.endswith("/tail"):  # it would last
        path += "?partition=99"
    body = (
        BODIES.get(route, {}) if method in ("POST", "PUT", "PATCH") or ("acls" in path and method == "DELETE") else None
    )
    return client.request(method, path, json=body, params=QUERIES.get(route))


def is_asked_alone(route: str, need: Need) -> bool:
    """Whether a handler refuses who lacks just this: not where another need is as good, nor where a listing leaves things out."""
    if need.source is not NameSource.HANDLER:
        return True
    return need.operation is not Operation.DESCRIBE and route not in CREATING


def is_refused_to_nobody(route: str, rule: RouteRule) -> bool:
    return route in CREATING or any(is_asked_alone(route, need) for need in rule.needs)


UNKNOWN_KEY = "Bearer hf_0123456789ab_" + "0" * 40
WRONG = ("Bearer x", "Digest x", "Basic !", "Basic YW5u", "Bearer hf_0123456789ab_" + "0" * 39)


@pytest.mark.parametrize("header", [None, UNKNOWN_KEY])
def test_who_has_no_valid_credentials_gets_401_wherever_they_are_needed(
    secured: SecuredServer, header: str | None
) -> None:
    with secured.anonymous() as client:
        client.headers = httpx.Headers({"authorization": header} if header else {})
        for route, rule in RULES.items():
            answer = call(client, route)
            if rule.public:
                assert answer.status_code in (200, 204, 400, 503), (route, answer.text)
                continue
            assert answer.status_code == 401, (route, answer.text)
            assert answer.json()["type"] == "urn:holdfast:problem:unauthenticated"
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_whatever_is_no_credential_gets_401(secured: SecuredServer) -> None:
    with secured.anonymous() as client:
        odd: Any = {"authorization": b"Basic \xe9"}  # not ASCII
        for headers in ({"cookie": "holdfast_session=a.b.c"}, odd, *({"authorization": each} for each in WRONG)):
            answer = client.get("/api/v1/topics", headers=headers)
            assert answer.status_code == 401, (headers, answer.text)


def test_who_may_do_nothing_is_refused_or_shown_nothing(secured: SecuredServer) -> None:
    with secured.as_user("nobody") as client:
        for route, rule in RULES.items():
            answer = call(client, route)
            if is_refused_to_nobody(route, rule):
                assert answer.status_code == 403, (route, answer.text)
                said = answer.json()
                assert said["type"] == "urn:holdfast:problem:not-authorized"
                assert "User:nobody may not" in said["detail"]
                assert "an ACL that allows" in said["errors"][0]["allowed"]
            else:
                assert answer.status_code not in NOT_LET_IN or rule.public, (route, answer.text)
        for listing in ("/api/v1/topics", "/api/v1/consumer-groups"):
            assert client.get(listing).json() == []


def test_who_lacks_one_permission_is_refused_just_what_needs_it(secured: SecuredServer) -> None:
    cells = 0
    for pair in sorted({pair for rule in RULES.values() for pair in pairs(rule)}):
        with secured.as_user(lacking(pair)) as client:
            for route, rule in RULES.items():
                asked = [need for need in rule.needs if (need.operation, need.kind) == pair]
                if not asked and cells % 4 and pair not in ALL:
                    cells += 1  # each pair meets a quarter of the routes that do not need it
                    continue
                answer = call(client, route)
                refused = any(is_asked_alone(route, need) for need in asked)
                assert (answer.status_code == 403) == refused, (pair, route, answer.text)
                cells += 1
    assert cells > 500


def test_who_has_just_what_a_route_needs_is_let_in(secured: SecuredServer) -> None:
    for route, rule in RULES.items():
        if rule.public:
            continue
        with secured.as_user(only(rule)) as client:
            answer = call(client, route)
        assert answer.status_code not in NOT_LET_IN, (route, answer.text)
        assert answer.status_code < 500, (route, answer.text)


def test_a_super_user_is_let_in_everywhere(secured: SecuredServer) -> None:
    with secured.as_user("root") as client:
        for route, rule in RULES.items():
            answer = call(client, route)
            assert answer.status_code not in NOT_LET_IN or rule.public, (route, answer.text)
