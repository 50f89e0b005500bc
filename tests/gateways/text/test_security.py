"""The text protocol with security: AUTH first, a rule for each verb, and nodes that forward."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.secured_server import allowed
from tests.support.secured_text import SecuredText, secured_text
from tests.support.waiting import async_until

from holdfast.gateways.text.requests import Verb
from holdfast.gateways.text.security import NODE_MARK, RULES, check_rules
from holdfast.gateways.text.settings import TextSettings
from holdfast.kernel.placement_requests import assign_partitions
from holdfast.security.acls import Acl, Operation, Permission, ResourcePattern, ResourceType
from holdfast.security.api_keys import Scope
from holdfast.security.principals import Principal

EXAMPLES = {
    Verb.REGISTER: "REGISTER logs",
    Verb.PUT: "PUT logs x",
    Verb.GET: "GET logs",
    Verb.FETCH: "FETCH logs 0 0",
    Verb.STATE: "STATE logs",
    Verb.METRICS: "METRICS",
    Verb.PUTS: "VIA 1 PUTS logs ",
    Verb.READ: "VIA 1 READ logs 0 0 1000",
    Verb.TAKE: "VIA 1 TAKE logs 1",
    Verb.SETTLE: "VIA 1 SETTLE 0",
}
REFUSED = (b"ERR not authorized", b"ERR authentication")


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[SecuredText]:
    async with secured_text(tmp_path) as made:
        yield made


def test_every_verb_has_a_rule_and_an_example() -> None:
    check_rules(RULES)
    with pytest.raises(LookupError, match="no rule for GET"):
        check_rules({verb: rule for verb, rule in RULES.items() if verb is not Verb.GET})
    assert set(EXAMPLES) == set(Verb) - {Verb.AUTH}


async def test_the_matrix_of_verbs_and_callers(secured: SecuredText) -> None:
    """Nobody, a wrong key, a key without ACLs, one with just what is needed, one with everything but that."""
    everything = [(Operation.ALL, ResourceType.TOPIC), (Operation.ALL, ResourceType.CLUSTER)]
    await secured.acls(*allowed("root", *everything))
    root = await secured.key("root")
    callers = {each: await secured.key(each) for each in ("nobody", "just", "lacks")}
    async with secured.client() as client:
        assert await client.one(f"AUTH {root}") == b"OK"
        assert await client.one("REGISTER logs") == b"OK"
    async with secured.client() as client:
        for request in EXAMPLES.values():
            assert (await client.one(request)).startswith(b"ERR authentication required")
        assert await client.one("AUTH hf_0123456789ab_" + "0" * 40) == b"ERR authentication failed"
        assert await client.one("AUTH") == b"ERR authentication failed"
        assert await client.one(f"AUTH {NODE_MARK}{'0' * 64}") == b"ERR authentication failed"
        assert (await client.one("PUT logs x")).startswith(b"ERR authentication required")
    for verb, request in EXAMPLES.items():
        rule = RULES[verb]
        needed = [(rule.operation, rule.kind)] if rule.operation is not None else []
        denied = [*needed, *([(Operation.CREATE, ResourceType.CLUSTER)] if verb is Verb.REGISTER else [])]
        await secured.acls(
            *allowed("root", *everything),
            *allowed("just", *needed),
            *allowed("lacks", *everything),
            *allowed("lacks", *denied, permission=Permission.DENY),
        )
        for caller, secret in callers.items():
            async with secured.client() as client:
                assert await client.one(f"AUTH {secret}") == b"OK"
                answer = await client.one(request)
                assert answer.startswith(REFUSED) == (caller != "just" or rule.node), (verb, caller, answer)
        async with secured.client() as client:  # even who may do everything is no node
            assert await client.one(f"AUTH {root}") == b"OK"
            assert (await client.one(f"VIA 1 {request.removeprefix('VIA 1 ')}")).startswith(b"ERR not authorized: only")


async def test_a_put_creates_its_topic_only_for_who_may(secured: SecuredText) -> None:
    await secured.acls(*allowed("ann", (Operation.WRITE, ResourceType.TOPIC)))
    secret = await secured.key("ann")
    async with secured.client() as client:
        assert await client.one(f"AUTH {secret}") == b"OK"
        assert (await client.one("PUT missing x")).startswith(b"ERR")
        await secured.acls(
            *allowed("ann", (Operation.WRITE, ResourceType.TOPIC), (Operation.CREATE, ResourceType.TOPIC))
        )
        assert await client.one("PUT missing x") == b"OK"


async def test_requests_that_were_sent_with_the_key_wait_for_it(secured: SecuredText) -> None:
    await secured.acls(*allowed("ann", (Operation.ALL, ResourceType.TOPIC)))
    secret = await secured.key("ann")
    async with secured.client() as client:
        assert await client.ask(f"AUTH {secret}", "PUT logs a", "PUT logs b", "GET logs") == [
            b"OK",
            b"OK",
            b"OK",
            b"OK a",
        ]


async def test_a_run_of_puts_is_appended_but_for_those_that_are_refused(secured: SecuredText) -> None:
    await secured.acls(*allowed("ann", (Operation.ALL, ResourceType.TOPIC)))
    denied = Acl(ResourcePattern(ResourceType.TOPIC, "secret"), Principal("ann"), Operation.WRITE, Permission.DENY)
    await secured.control.acls_seen(await secured.control.store.create_acls([denied]))
    secret = await secured.key("ann")
    async with secured.client() as client:
        answers = await client.ask(f"AUTH {secret}", "PUT logs a", "PUT secret b", "PUT logs c", "GET logs", "GET logs")
    assert [answer.split(b":")[0] for answer in answers] == [
        *(b"OK", b"OK", b"ERR not authorized", b"OK", b"OK a", b"OK c"),
    ]


async def test_a_scope_limits_what_a_key_may_do(secured: SecuredText) -> None:
    await secured.acls(*allowed("ann", (Operation.ALL, ResourceType.TOPIC)))
    writer, reader = await secured.key("ann", Scope.WRITE, Scope.ADMIN), await secured.key("ann", Scope.READ)
    async with secured.client() as client:
        assert await client.ask(f"AUTH {writer}", "PUT logs a") == [b"OK", b"OK"]
        assert (await client.one("GET logs")).startswith(b"ERR not authorized")
    async with secured.client() as client:
        assert (await client.ask(f"AUTH {reader}", "PUT logs a"))[1].startswith(b"ERR not authorized")
        assert await client.one("GET logs") == b"OK a"


async def test_a_connection_ends_with_its_key(secured: SecuredText) -> None:
    await secured.acls(*allowed("ann", (Operation.ALL, ResourceType.TOPIC)))
    secret = await secured.key("ann")
    async with secured.client() as client:
        assert await client.one(f"AUTH {secret}") == b"OK"
        await secured.control.keys_seen(await secured.control.key_store.revoke(secret.split("_")[1]))
        assert (await client.one("PUT logs x")).startswith(b"ERR authentication required")
        server = secured.cluster.text["ann"].server
        (connection,) = server.connections
        assert connection.close_reason(server.backend.clock.boot_ms()) == "its credentials were revoked"
        await async_until(lambda: not server.connections)


async def test_who_does_not_log_in_in_time_is_closed(tmp_path: Path) -> None:
    async with secured_text(tmp_path, settings=TextSettings(login_ms=1)) as secured, secured.client() as client:
        assert await client.reader.read() == b""


async def test_nodes_forward_what_they_have_authorised(tmp_path: Path) -> None:
    async with secured_text(tmp_path, "ann", "bob") as secured:
        await secured.acls(*allowed("cid", (Operation.ALL, ResourceType.TOPIC)))
        secret = await secured.key("cid")
        cluster = secured.cluster
        async with secured.client("ann") as ann, secured.client("bob") as bob:
            for client in (ann, bob):
                assert await client.one(f"AUTH {secret}") == b"OK"
            assert await ann.one("REGISTER logs") == b"OK"
            await assign_partitions(cluster.store, "logs", {0: ["bob"]}, clock=cluster.clock, random=cluster.random)
            await async_until(lambda: cluster.text["bob"].node.service.is_serving("logs", 0))
            for number in range(4):
                assert await (ann, bob)[number % 2].one(f"PUT logs {number}") == b"OK"
            assert [await (bob, ann)[n % 2].one("GET logs") for n in range(4)] == [b"OK %d" % n for n in range(4)]
        assert sum(each.server.counters.forwarded for each in cluster.text.values()) >= 2
