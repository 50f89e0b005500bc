"""Who may call what: every API of the gateway's table of rules × principals with none, all, some and denied permissions.

Each API has requests here, each with the permissions it needs: all lines of them, and of a line any. The test fails if an API has
no request, if its requests do not use exactly what its rule names, or if a cell is answered otherwise than these say.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.kafka_requests import PREFIXES, REQUESTS, TOPIC, Need, Request
from tests.support.kafka_security import ROOT, SecureClient, SecureGateway, allow, secure_gateway

from holdfast.agent.access_control import AccessControl
from holdfast.gateways.kafka.api import RequestContext
from holdfast.gateways.kafka.api_rules import RULES
from holdfast.gateways.kafka.connection_access import ConnectionAccess
from holdfast.gateways.kafka.login import Login
from holdfast.kafka.api_keys import ApiKey
from holdfast.security.acls import CLUSTER_NAME, Acl, Operation, Permission, ResourceType


def test_the_requests_use_exactly_what_the_rules_name() -> None:
    used: dict[ApiKey, set[Need]] = {}
    for each in REQUESTS:
        used.setdefault(each.key, set()).update(each.every_need)
    ours = {ApiKey.HEAP, ApiKey.HEAP_POP}  # no messages of Kafka's: tests/gateways/heap/test_permissions.py has them
    others = {key: rule for key, rule in RULES.items() if not rule.before_login and key not in ours}
    assert used == {key: set(rule.needs) for key, rule in others.items()}


def acl(need: Need, permission: Permission = Permission.ALLOW) -> Acl:
    operation, kind = need
    prefix = PREFIXES.get(kind)
    return allow("ann", operation, kind, prefix or CLUSTER_NAME, prefixed=prefix is not None, permission=permission)


def cells(needs: set[Need]) -> Iterator[tuple[set[Need], set[Need]]]:
    """What is granted, and what is denied: nothing, everything, one, all but one, everything with one denied."""
    yield set(), set()
    yield needs, set()
    for need in needs if len(needs) > 1 else ():
        yield {need}, set()
        yield needs - {need}, set()
    for need in needs:
        yield needs, {need}


async def prepared(secure: SecureGateway) -> tuple[SecureClient, SecureClient]:
    """Ann, and the super user; the group has an offset."""
    root, ann = await secure.logged_in(ROOT.name), await secure.logged_in("ann")
    await root.ask("OffsetCommit", 9, **next(each for each in REQUESTS if each.key is ApiKey.OFFSET_COMMIT).given())
    return root, ann


async def failures(secure: SecureGateway, requests: list[Request]) -> tuple[int, list[str]]:
    """How many cells there are, and those that were answered otherwise than expected."""
    root, ann = await prepared(secure)
    count, failed = 0, []
    for each in requests:
        for client, granted, denied in (
            (root, set[Need](), set[Need]()),
            *((ann, granted, denied) for granted, denied in cells(each.every_need)),
        ):
            await secure.set_acls([*map(acl, granted), *(acl(need, Permission.DENY) for need in denied)])
            answer = await client.ask(each.key.api_name, each.version, **each.given())
            allowed = client is root or each.allowed_with(granted, denied)
            count += 1
            if each.denied(answer) == allowed:
                who = "root" if client is root else f"ann with {sorted(granted)} without {sorted(denied)}"
                failed.append(f"{each.key.api_name} by {who}: {answer}")
    return count, failed


async def test_every_cell_of_the_matrix_is_as_the_rules_say(tmp_path: Path) -> None:
    async with secure_gateway(tmp_path, topics={TOPIC: 1}) as secure:
        count, failed = await failures(secure, REQUESTS)
        assert not failed
        assert count > 200


async def test_a_decision_that_is_kept_for_ever_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the cache of decisions is never cleared."""
    async with secure_gateway(tmp_path, topics={TOPIC: 1}) as secure:
        monkeypatch.setattr(AccessControl, "version", 0)
        _, failed = await failures(secure, [each for each in REQUESTS if each.key in (ApiKey.PRODUCE, ApiKey.FETCH)])
        assert failed


async def test_a_handler_that_does_not_ask_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a handler that lets everybody in."""

    def lenient(call: RequestContext, operation: Operation, kind: ResourceType, name: str) -> bool:
        return call.api.key is ApiKey.DELETE_RECORDS or asked(call, operation, kind, name)

    asked = RequestContext.allows
    async with secure_gateway(tmp_path, topics={TOPIC: 1}) as secure:
        monkeypatch.setattr(RequestContext, "allows", lenient)
        _, failed = await failures(secure, [each for each in REQUESTS if each.key is ApiKey.DELETE_RECORDS])
        assert failed


async def test_a_connection_that_never_logged_in_may_do_nothing(tmp_path: Path) -> None:
    """Whatever reached a handler without a login would be refused there once more."""
    async with secure_gateway(tmp_path) as secure:
        access = ConnectionAccess(Login(secure.security, "127.0.0.1"))
        for rule in RULES.values():
            assert not any(access.allows(rule, operation, kind, TOPIC) for operation, kind in rule.needs)


async def test_names_that_no_resource_can_have_are_not_kept(tmp_path: Path) -> None:
    """Who has logged in may ask for names of 32 KiB: 20,000 of them would be 640 MB for one connection."""
    async with secure_gateway(tmp_path) as secure:
        access = ConnectionAccess(Login(secure.security, "127.0.0.1"))
        rule = RULES[ApiKey.METADATA]
        for name in ("x" * 32_000, "x" * 300):
            assert not access.allows(rule, Operation.DESCRIBE, ResourceType.TOPIC, name)
        assert [len(name) for _, _, name in access._decisions] == [300]
