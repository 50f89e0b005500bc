"""Two real servers with logins on one store: who a caller is, is decided once, at either of them."""

import asyncio
from collections.abc import Iterator

import grpc
import httpx
import pytest
from tests.support.secured_nodes import PARTITIONS, TOPIC, V1, Nodes, two_secured_nodes
from tests.support.secured_server import PASSWORD, SecuredServer, allowed
from tests.support.waiting import WAIT_S, until

from holdfast.security.acls import Operation, ResourceType
from holdfast.security.settings import SecuritySettings
from holdfast.v1.produce_service_pb2 import ProduceRequest
from holdfast.v1.produce_service_pb2_grpc import ProduceServiceStub
from holdfast.v1.record_pb2 import NewRecord

HEAP = "jobs"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with two_secured_nodes(tmp_path_factory.mktemp("two")) as both:
        yield both


def over_http(node: SecuredServer, key: str, partition: int) -> int:
    with node.with_key(key) as client:
        body = {"topic": TOPIC, "value": "x", "partition": partition}
        return client.post(f"{V1}/produce", json=body).status_code


def until_answered(node: SecuredServer, key: str, status: int) -> None:
    """Return when a produce with the key gets this answer: a node sees changes of another one a moment later."""
    until(lambda: over_http(node, key, 0) == status)


def over_grpc(node: SecuredServer, key: str, partition: int) -> grpc.StatusCode:
    with grpc.insecure_channel(node.grpc) as channel:
        request = ProduceRequest(topic=TOPIC, records=[NewRecord(value=b"x", partition=partition)])
        metadata = (("authorization", f"Bearer {key}"),)
        try:
            ProduceServiceStub(channel).Produce(request, metadata=metadata, timeout=WAIT_S)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
    return grpc.StatusCode.OK


def written(nodes: Nodes) -> int:
    found = nodes.root[0].get(f"{V1}/topics/{TOPIC}/partitions").json()
    return sum(each["endOffset"] for each in found)


def test_either_node_decides_about_a_caller_and_takes_the_request_to_the_leader(nodes: Nodes) -> None:
    """The caller has no way into the Kafka port of the other node but that of the node which was asked."""
    nodes.ann.administer(
        acls=allowed("kim", (Operation.WRITE, ResourceType.TOPIC))
        + allowed("lee", (Operation.READ, ResourceType.TOPIC))
    )
    (_, kim), (_, lee) = nodes.ann.create_key("kim"), nodes.ann.create_key("lee")
    everywhere = [(node, number) for node in nodes.both for number in range(PARTITIONS)]
    for node in nodes.both:
        until_answered(node, kim, httpx.codes.OK)
        until_answered(node, lee, httpx.codes.FORBIDDEN)
    before = written(nodes)
    assert {over_http(node, kim, number) for node, number in everywhere} == {httpx.codes.OK}
    assert {over_grpc(node, kim, number) for node, number in everywhere} == {grpc.StatusCode.OK}
    assert written(nodes) == before + 2 * len(everywhere)
    assert {over_http(node, lee, number) for node, number in everywhere} == {httpx.codes.FORBIDDEN}
    assert {over_grpc(node, lee, number) for node, number in everywhere} == {grpc.StatusCode.PERMISSION_DENIED}
    assert written(nodes) == before + 2 * len(everywhere), "what was refused left nothing behind"


def test_what_one_node_withdraws_the_other_refuses(nodes: Nodes) -> None:
    nodes.ann.administer(acls=allowed("mia", (Operation.WRITE, ResourceType.TOPIC)))
    _, denied = nodes.ann.create_key("mia")
    prefix, revoked = nodes.ann.create_key("mia")
    for key in (denied, revoked):
        until_answered(nodes.bob, key, httpx.codes.OK)
        assert over_grpc(nodes.bob, key, 0) is grpc.StatusCode.OK
    root = nodes.root[0]
    assert root.delete(f"{V1}/keys/{prefix}").status_code == httpx.codes.NO_CONTENT
    until_answered(nodes.bob, revoked, httpx.codes.UNAUTHORIZED)
    assert over_grpc(nodes.bob, revoked, 0) is grpc.StatusCode.UNAUTHENTICATED
    assert over_http(nodes.bob, denied, 0) == httpx.codes.OK
    rule = {"principal": "User:mia", "operation": "write", "resourceType": "topic", "resourceName": TOPIC}
    answer = root.post(f"{V1}/acls", json=[{**rule, "permission": "deny"}])
    assert answer.status_code == httpx.codes.CREATED, answer.text
    until_answered(nodes.bob, denied, httpx.codes.FORBIDDEN)
    assert over_grpc(nodes.bob, denied, 0) is grpc.StatusCode.PERMISSION_DENIED


def test_a_session_of_one_node_holds_at_the_other(nodes: Nodes) -> None:
    with nodes.ann.anonymous() as browser:
        answer = browser.post(f"{V1}/login", json={"user": "root", "password": PASSWORD})
        assert answer.status_code == httpx.codes.OK, answer.text
        cookie, csrf = answer.cookies["holdfast_session"], answer.json()["csrfToken"]
    with nodes.bob.anonymous() as browser:
        browser.cookies.set("holdfast_session", cookie)
        assert browser.get(f"{V1}/session").json()["csrfToken"] == csrf
        assert browser.post(f"{V1}/topics", json={"name": "of-bob"}).status_code == httpx.codes.FORBIDDEN
        made = browser.post(f"{V1}/topics", json={"name": "of-bob"}, headers={"x-csrf-token": csrf})
        assert made.status_code == httpx.codes.CREATED


def test_a_confirmation_of_one_node_is_good_once_at_the_other(nodes: Nodes) -> None:
    first, second = nodes.root
    assert first.post("/v1/heaps", json={"topic": HEAP, "durability": "local"}).status_code == httpx.codes.CREATED
    token = first.post("/v1/confirmations", json={"action": "heap.purge", "resource": HEAP}).json()["confirmationToken"]
    body = {"topic": HEAP, "force": True, "confirmation_token": token}
    assert second.post("/v1/purge", json=body).status_code == httpx.codes.OK
    for client in nodes.root:
        assert client.post("/v1/purge", json=body).status_code == httpx.codes.PRECONDITION_REQUIRED


async def test_each_node_checks_as_many_wrong_passwords_as_are_allowed(nodes: Nodes) -> None:
    """Nodes count by themselves. What is tried at one does not make the other try more."""
    allowed_failures = SecuritySettings().login_failures_max

    async def log_in(client: httpx.AsyncClient, number: int) -> int:
        return (await client.post(f"{V1}/login", json={"user": "victim", "password": f"wrong {number}"})).status_code

    checked = []
    for node in nodes.both:
        async with httpx.AsyncClient(base_url=node.http, timeout=WAIT_S, verify=False) as client:
            told: list[int] = []
            while httpx.codes.TOO_MANY_REQUESTS not in told:  # an address has room for so many at a time: 503
                told += await asyncio.gather(*(log_in(client, len(told) + number) for number in range(50)))
            checked.append(told.count(httpx.codes.UNAUTHORIZED))
    assert checked == [allowed_failures, allowed_failures]
