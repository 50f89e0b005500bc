"""The audit log is bounded; the first administrator is made once."""

import asyncio
import json
import stat
from pathlib import Path

import pytest
from tests.security.conftest import PASSWORD, SecurityWorld

from holdfast.security.acls import CLUSTER_NAME, Operation, ResourceType
from holdfast.security.attempt_limits import AttemptLimits, AttemptSettings
from holdfast.security.audit import AuditEvent, AuditLog, AuditOutcome, AuditSettings
from holdfast.security.bootstrap import BootstrapToken
from holdfast.security.cluster_secret import NODE, cluster_secret
from holdfast.security.identity import AuthenticationError
from holdfast.security.principals import Principal
from holdfast.security.scram import ScramMechanism, credential_of
from holdfast.vocabulary.clock import FakeClock, RealClock
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SystemRandom

CREDENTIAL = credential_of(ScramMechanism.SHA_256, PASSWORD, salt=b"salt", iterations=4_096)


def event(outcome: AuditOutcome = AuditOutcome.REFUSED, **more: str) -> AuditEvent:
    return AuditEvent(
        gateway="http", principal="User:ann", host="::1", action="delete", resource="topic:a", outcome=outcome, **more
    )


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_refusals_beyond_the_rate_are_counted_and_administration_is_always_written(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "audit.jsonl"
    with AuditLog(AuditSettings(to=str(path), refusals_per_s=5), clock=clock) as log:
        for _ in range(100):
            log.record(event())
        log.record(event(AuditOutcome.ALLOWED, request="r1"))
        clock.advance_ms(1_000)
        log.record(event())
        assert log.left_out_total == 95
    found = lines_of(path)
    assert len(found) == 7
    assert found[5] | {"at": ""} == {
        "at": "",
        "gateway": "http",
        "principal": "User:ann",
        "host": "::1",
        "action": "delete",
        "outcome": "allowed",
        "resource": "topic:a",
        "request": "r1",
        "left_out": 95,
    }
    assert found[0]["at"] == "2023-11-14T22:13:20.000+00:00"
    assert "left_out" not in found[6]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_full_is_continued_and_only_one_before_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for _ in range(6):
        with AuditLog(AuditSettings(to=str(path), bytes_max=600), clock=FakeClock()) as log:
            for _ in range(3):
                log.record(event(AuditOutcome.ALLOWED))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["audit.jsonl", "audit.jsonl.1"]
    assert path.stat().st_size <= 600


def test_an_audit_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="audit file"), AuditLog(AuditSettings(to=str(tmp_path)), clock=FakeClock()):
        pass


def test_what_was_tried_is_remembered_within_bounds() -> None:
    limits = AttemptLimits(AttemptSettings(failures_max=2, window_ms=100, lock_ms=50, kept_max=3))
    for number in range(10):
        limits.failed(f"user-{number}", 0)
    assert len(limits) == 3
    limits.failed("user-9", 10)
    assert limits.locked_ms("user-9", 10) == 50
    assert limits.locked_ms("user-9", 60) == 0
    limits.failed("slow", 0)
    limits.failed("slow", 100)
    assert limits.locked_ms("slow", 100) == 0


async def test_one_of_two_who_have_the_token_becomes_administrator(world: SecurityWorld) -> None:
    tokens = BootstrapToken(world.store, clock=RealClock(), random=SystemRandom())
    token = await tokens.offer()
    assert token
    assert await tokens.offer() == ""
    with pytest.raises(AuthenticationError):
        await tokens.use("hfb_" + "0" * 40, "eve", [CREDENTIAL])
    tried = await asyncio.gather(
        *(tokens.use(token, name, [CREDENTIAL]) for name in ("ann", "bob")), return_exceptions=True
    )
    (version,) = [each for each in tried if isinstance(each, int)]
    assert sum(isinstance(each, AuthenticationError) for each in tried) == 1
    await world.control.acls_seen(version)
    (user,) = await world.control.store.users()
    decide = world.control.authorizer.authorize
    assert decide(Principal(user.name), "::1", Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    assert decide(Principal(user.name), "::1", Operation.DELETE, ResourceType.TOPIC, "any")
    assert await tokens.offer("another-token-of-a-file") == ""
    with pytest.raises(AuthenticationError):
        await tokens.use(token, "eve", [CREDENTIAL])


async def test_a_token_of_a_file_takes_the_place_of_one_that_was_lost(world: SecurityWorld) -> None:
    tokens = BootstrapToken(world.store, clock=RealClock(), random=SystemRandom())
    lost = await tokens.offer()
    assert await tokens.offer("a-token-of-my-own\n") == "a-token-of-my-own"
    with pytest.raises(AuthenticationError):
        await tokens.use(lost, "ann", [CREDENTIAL])
    await tokens.use("a-token-of-my-own", "ann", [CREDENTIAL])
    with pytest.raises(InvalidError, match="at least 16"):
        await tokens.offer("short")


async def test_nodes_share_a_secret_and_nobody_can_be_called_a_node(world: SecurityWorld) -> None:
    first, second = [await cluster_secret(world.store, clock=RealClock(), random=SystemRandom()) for _ in range(2)]
    assert first.text_token == second.text_token != first.node_password != first.session_key
    assert first.is_text_token(second.text_token)
    assert not first.is_text_token("x")
    assert world.control.authorizer.is_super_user(NODE)
    with pytest.raises(InvalidError, match="does not begin with __holdfast_"):
        await world.control.store.set_credentials(NODE.name, [CREDENTIAL])
    with pytest.raises(InvalidError):
        Principal.parse("principal", str(NODE))
    assert not world.control.authorizer.is_super_user(Principal(NODE.name))
