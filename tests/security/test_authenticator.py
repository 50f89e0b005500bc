"""Credentials in, an identity or a refusal out."""

import asyncio
import hmac
from dataclasses import replace
from typing import Any

import pytest
from argon2 import low_level
from tests.security.conftest import PASSWORD, SETTINGS, SecurityWorld

from holdfast.security.acls import Acl, Operation, ResourcePattern, ResourceType
from holdfast.security.api_keys import DEFAULT_SCOPES, NewKey, Scope, new_key, parse_scopes, prefix_of
from holdfast.security.identity import AuthenticationError, ForbiddenError, TooManyAttemptsError
from holdfast.security.principals import Principal
from holdfast.security.secret_checks import SecretChecks
from holdfast.security.sessions import LoginSession, encode_session
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import SystemRandom

ANN = Principal("ann")
HOST = "10.0.0.1"


async def key_of(world: SecurityWorld, *scopes: Scope, expires_at_ms: int = 0) -> NewKey:
    made, version = await world.control.key_store.create(
        "report", ANN, frozenset(scopes or DEFAULT_SCOPES), expires_at_ms=expires_at_ms
    )
    await world.control.keys_seen(version)
    return made


async def test_a_key_gives_the_identity_of_its_principal(world: SecurityWorld) -> None:
    made = await key_of(world)
    found = await world.authenticator.api_key(made.secret, HOST)
    assert (found.principal, found.host, found.method) == (ANN, HOST, "api-key")
    assert made.secret.startswith(f"hf_{made.key.prefix}_")
    entry = await world.store.get(f"security/key/{made.key.prefix}")
    assert entry is not None
    stored = entry.value.decode()
    assert made.secret.rpartition("_")[2] not in stored
    assert "$argon2id$" in stored


@pytest.mark.parametrize("text", ["", "hf_", "hf_0123456789ab", "nonsense", "hf_0123456789ab_" + "0" * 40])
async def test_what_is_no_key_is_refused_without_a_check(world: SecurityWorld, text: str) -> None:
    with pytest.raises(AuthenticationError):
        await world.authenticator.api_key(text, HOST)
    assert world.authenticator.checks.done == 0


async def test_a_wrong_secret_under_a_known_prefix_is_refused(world: SecurityWorld) -> None:
    made = await key_of(world)
    with pytest.raises(AuthenticationError):
        await world.authenticator.api_key(made.secret[:-1] + ("0" if made.secret[-1] != "0" else "1"), HOST)
    assert world.authenticator.checks.done == 1


async def test_a_key_is_checked_once_and_again_when_its_time_in_the_cache_is_over(world: SecurityWorld) -> None:
    made = await key_of(world)
    for _ in range(3):
        await world.authenticator.api_key(made.secret, HOST)
    assert world.authenticator.checks.done == 1
    world.clock.advance_ms(SETTINGS.cache_ms - 1)
    await world.authenticator.api_key(made.secret, HOST)
    assert world.authenticator.checks.done == 1
    world.clock.advance_ms(1)
    await world.authenticator.api_key(made.secret, HOST)
    assert world.authenticator.checks.done == 2


async def test_the_cache_holds_no_secret(world: SecurityWorld) -> None:
    made = await key_of(world)
    await world.user("ann")
    await world.authenticator.api_key(made.secret, HOST)
    await world.authenticator.password("ann", PASSWORD, HOST)
    kept = repr(vars(world.authenticator))
    assert made.secret.rpartition("_")[2] not in kept
    assert PASSWORD not in kept


async def test_a_revoked_key_counts_for_nothing_although_it_is_cached(world: SecurityWorld) -> None:
    made = await key_of(world)
    found = await world.authenticator.api_key(made.secret, HOST)
    await world.control.keys_seen(await world.control.key_store.revoke(made.key.prefix))
    assert not world.authenticator.is_valid(found)
    with pytest.raises(AuthenticationError):
        await world.authenticator.api_key(made.secret, HOST)
    with pytest.raises(InvalidError, match="does not exist"):
        await world.control.key_store.revoke(made.key.prefix)


async def test_a_key_ends_when_it_expires(world: SecurityWorld) -> None:
    made = new_key("short", ANN, frozenset(Scope), now_ms=1, expires_at_ms=2, random=SystemRandom())
    assert made.key.is_expired(2)
    lasting = await key_of(world, expires_at_ms=(1 << 45))
    found = await world.authenticator.api_key(lasting.secret, HOST)
    world.clock.step_wall_ms(1 << 45)
    assert not world.authenticator.is_valid(found)
    with pytest.raises(AuthenticationError):
        await world.authenticator.api_key(lasting.secret, HOST)
    with pytest.raises(InvalidError, match="future"):
        new_key("past", ANN, frozenset(Scope), now_ms=5, expires_at_ms=5, random=SystemRandom())


async def test_a_flood_of_wrong_keys_does_not_hold_up_another_key(world: SecurityWorld) -> None:
    flooded, neighbour = await key_of(world), await key_of(world)
    wrong = [f"{flooded.secret[:-3]}{number:03x}" for number in range(100)]
    tries = [asyncio.ensure_future(world.authenticator.api_key(each, HOST)) for each in wrong]
    found = await world.authenticator.api_key(neighbour.secret, HOST)
    assert found.principal == ANN
    refused = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(each, UnavailableError) for each in refused) >= 80
    assert world.authenticator.checks.done <= 16 + 4 + 1


async def test_many_who_bring_the_same_key_at_once_are_checked_once(world: SecurityWorld) -> None:
    made = await key_of(world)
    found = await asyncio.gather(*(world.authenticator.api_key(made.secret, HOST) for _ in range(100)))
    assert {each.principal for each in found} == {ANN}
    assert world.authenticator.checks.done == 1


async def test_checks_are_bounded_whoever_asks() -> None:
    checks = SecretChecks()
    tried = await asyncio.gather(
        *(checks.run(f"host-{number}", b"%d" % number, lambda: True) for number in range(200)), return_exceptions=True
    )
    assert sum(each is True for each in tried) == 128
    checks.close()


async def test_wrong_passwords_lock_the_user_and_the_address_for_a_while(world: SecurityWorld) -> None:
    await world.user("ann")
    await world.user("bob")
    for _ in range(SETTINGS.login_failures_max):
        with pytest.raises(AuthenticationError):
            await world.authenticator.password("ann", "wrong", HOST)
    for name, host in (("ann", HOST), ("ann", "10.0.0.2"), ("bob", HOST)):
        with pytest.raises(TooManyAttemptsError) as locked:
            await world.authenticator.password(name, PASSWORD, host)
        assert locked.value.retry_after_ms == SETTINGS.login_lock_ms
    assert (await world.authenticator.password("bob", PASSWORD, "10.0.0.2")).principal.name == "bob"
    world.clock.advance_ms(SETTINGS.login_lock_ms)
    assert (await world.authenticator.password("ann", PASSWORD, HOST)).principal == ANN


async def test_an_unknown_user_costs_what_a_wrong_password_costs(world: SecurityWorld) -> None:
    with pytest.raises(AuthenticationError):
        await world.authenticator.password("nobody", PASSWORD, HOST)
    assert world.authenticator.checks.done == 1


async def test_a_changed_password_ends_what_the_old_one_has_opened(world: SecurityWorld) -> None:
    await world.user("ann")
    identity = await world.authenticator.password("ann", PASSWORD, HOST)
    token, session = world.authenticator.open_session(identity)
    assert world.authenticator.session(token, HOST).principal == ANN
    await world.user("ann", "another")
    for each in (identity, session):
        assert not world.authenticator.is_valid(each)
    with pytest.raises(AuthenticationError):
        world.authenticator.session(token, HOST)
    with pytest.raises(AuthenticationError):
        await world.authenticator.password("ann", PASSWORD, HOST)


async def test_a_session_ends_after_its_time_and_only_its_own_key_signs_it(world: SecurityWorld) -> None:
    await world.user("ann")
    token, identity = world.authenticator.open_session(await world.authenticator.password("ann", PASSWORD, HOST))
    user = world.control.user("ann")
    assert user is not None
    forged = LoginSession(user="ann", version=user.version, csrf="x", ends_at_ms=identity.ends_at_ms)
    unsigned = "eyJhbGciOiJub25lIn0." + token.split(".")[1] + "."
    for bad in (encode_session(forged, "another key of enough length, really"), unsigned, token[:-2], "", "a.b.c"):
        with pytest.raises(AuthenticationError):
            world.authenticator.session(bad, HOST)
    world.clock.advance_ms(SETTINGS.session_ms)
    with pytest.raises(AuthenticationError):
        world.authenticator.session(token, HOST)
    assert not world.authenticator.is_valid(identity)


async def test_a_key_opens_no_session(world: SecurityWorld) -> None:
    made = await key_of(world)
    with pytest.raises(AuthenticationError):
        world.authenticator.open_session(await world.authenticator.api_key(made.secret, HOST))


async def test_a_key_may_do_what_its_principal_may_within_its_scopes(world: SecurityWorld) -> None:
    topic = ResourcePattern(ResourceType.TOPIC, "orders")
    acls = [Acl(topic, ANN, each) for each in (Operation.READ, Operation.WRITE)]
    await world.control.acls_seen(await world.control.store.create_acls(acls))
    reader = await world.authenticator.api_key((await key_of(world, Scope.READ)).secret, HOST)
    both = await world.authenticator.api_key((await key_of(world)).secret, HOST)
    ask = world.authenticator.allows
    assert ask(reader, Operation.READ, ResourceType.TOPIC, "orders")
    assert ask(reader, Operation.DESCRIBE, ResourceType.TOPIC, "orders")
    assert not ask(reader, Operation.WRITE, ResourceType.TOPIC, "orders")
    assert ask(both, Operation.WRITE, ResourceType.TOPIC, "orders")
    assert not ask(both, Operation.WRITE, ResourceType.TOPIC, "others")
    with pytest.raises(ForbiddenError, match="User:ann may not write topic 'others'"):
        world.authenticator.require(both, Operation.WRITE, ResourceType.TOPIC, "others")


async def test_a_decision_lasts_until_an_acl_changes(world: SecurityWorld) -> None:
    made = await key_of(world)
    found = await world.authenticator.api_key(made.secret, HOST)
    assert not world.authenticator.allows(found, Operation.READ, ResourceType.TOPIC, "orders")
    acl = Acl(ResourcePattern(ResourceType.TOPIC, "orders"), ANN, Operation.READ)
    await world.control.acls_seen(await world.control.store.create_acls([acl]))
    assert world.authenticator.allows(found, Operation.READ, ResourceType.TOPIC, "orders")


async def test_uses_are_noted_and_written_apart_from_the_keys(world: SecurityWorld) -> None:
    made = await key_of(world)
    await world.authenticator.api_key(made.secret, HOST)
    before = world.control.version
    used = dict(world.authenticator.used_at_ms)
    assert used == {made.key.prefix: world.clock.now_ms()}
    await world.control.key_store.record_uses(used)
    (listed,) = await world.control.key_store.keys()
    assert listed == replace(made.key, last_used_at_ms=world.clock.now_ms())
    assert world.control.version == before


async def test_secrets_are_compared_in_constant_time_by_construction(
    world: SecurityWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No secret meets `==`: Argon2 compares keys itself, passwords go through `compare_digest`."""
    compared, verified = [], []
    compare, verify = hmac.compare_digest, low_level.verify_secret

    def compare_digest(left: bytes, right: bytes) -> bool:
        compared.append(left)
        return compare(left, right)

    def verify_secret(*given: Any) -> bool:
        verified.append(given)
        return bool(verify(*given))

    made = await key_of(world)
    await world.user("ann")
    monkeypatch.setattr(hmac, "compare_digest", compare_digest)
    monkeypatch.setattr(low_level, "verify_secret", verify_secret)
    await world.authenticator.api_key(made.secret, HOST)
    await world.authenticator.password("ann", PASSWORD, HOST)
    assert (len(verified), len(compared)) == (1, 1)


def test_scopes_are_named_or_refused() -> None:
    assert parse_scopes("scopes", "read, ADMIN") == {Scope.READ, Scope.ADMIN}
    for bad in ("", "root", "read,all"):
        with pytest.raises(InvalidError, match="of read, write, admin"):
            parse_scopes("scopes", bad)
    assert prefix_of("hf_0123456789ab_" + "f" * 40) == "0123456789ab"
