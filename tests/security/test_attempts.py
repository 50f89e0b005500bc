"""Attacks on passwords that are decided in the authenticator: many tries at once, and finding out who exists."""

import asyncio
import hashlib
from collections import Counter

import pytest
from tests.security.conftest import PASSWORD, SETTINGS, SecurityWorld

from holdfast.security.attempt_limits import AttemptLimits, AttemptSettings
from holdfast.security.identity import AuthenticationError, Identity, TooManyAttemptsError
from holdfast.security.scram import ScramMechanism, credential_of
from holdfast.vocabulary.clock import RealClock
from holdfast.vocabulary.errors import UnavailableError

ALLOWED = SETTINGS.login_failures_max
ENOUGH = 16  # more of one address wait for no check


async def tried(world: SecurityWorld, *tries: tuple[str, str, str]) -> list[Identity | BaseException]:
    """All of them at once: user, password, address."""
    return await asyncio.gather(*(world.authenticator.password(*each) for each in tries), return_exceptions=True)


async def test_wrong_passwords_at_once_are_no_more_than_one_after_another(world: SecurityWorld) -> None:
    await world.user("ann")
    answers = await tried(world, *(("ann", f"wrong {number}", f"10.0.{number}.1") for number in range(100)))
    assert world.authenticator.checks.done == ALLOWED
    told = Counter(type(each) for each in answers)
    assert told == {AuthenticationError: ALLOWED, TooManyAttemptsError: 100 - ALLOWED}


async def test_an_address_tries_no_more_users_at_once_than_one_after_another(world: SecurityWorld) -> None:
    answers = await tried(world, *((f"user {number}", "wrong", "10.0.0.1") for number in range(100)))
    assert world.authenticator.checks.done == ALLOWED
    assert Counter(type(each) for each in answers) == {
        AuthenticationError: ALLOWED,
        TooManyAttemptsError: ENOUGH - ALLOWED,
        UnavailableError: 100 - ENOUGH,
    }


async def test_many_right_passwords_at_once_are_all_right(world: SecurityWorld) -> None:
    for number in range(ENOUGH):
        await world.user(f"user {number}")
    answers = await tried(world, *((f"user {number}", PASSWORD, "10.0.0.1") for number in range(ENOUGH)))
    assert [each for each in answers if not isinstance(each, Identity)] == []


async def test_who_hangs_up_has_tried_all_the_same(world: SecurityWorld) -> None:
    """Otherwise somebody else who has sent the same password would be told the result for nothing."""
    await world.user("ann")
    for number in range(ALLOWED):
        trying = [
            asyncio.ensure_future(world.authenticator.password("ann", f"wrong {number}", "10.0.0.1")) for _ in range(2)
        ]
        await RealClock().sleep_ms(0)
        trying[0].cancel()
        with pytest.raises(AuthenticationError):
            await trying[1]
    with pytest.raises(TooManyAttemptsError):
        await world.authenticator.password("ann", PASSWORD, "10.0.0.2")


def test_attempts_under_way_count_until_they_have_ended() -> None:
    limits = AttemptLimits(AttemptSettings(failures_max=2, window_ms=100, lock_ms=1_000))
    limits.begin("ann")
    assert limits.may_begin("ann", 0)
    limits.begin("ann")
    assert not limits.may_begin("ann", 0)
    assert limits.may_begin("bob", 0)
    limits.end("ann")
    limits.failed("ann", 0)
    assert not limits.may_begin("ann", 0)
    assert limits.may_begin("ann", 100), "a failure counts within its window"
    limits.end("ann")
    limits.failed("ann", 50)
    assert not limits.may_begin("ann", 1_049)
    assert limits.may_begin("ann", 1_050)


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Rounds of PBKDF2 by hash function."""
    counted: Counter[str] = Counter()
    derive = hashlib.pbkdf2_hmac

    def pbkdf2_hmac(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        counted[name] += iterations
        return derive(name, password, salt, iterations)

    monkeypatch.setattr(hashlib, "pbkdf2_hmac", pbkdf2_hmac)
    return counted


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
@pytest.mark.parametrize("iterations", [4_096, 8_192])
async def test_a_refusal_takes_the_same_work_whether_there_is_such_a_user_or_not(
    world: SecurityWorld, rounds: Counter[str], mechanism: ScramMechanism, iterations: int
) -> None:
    made = credential_of(mechanism, PASSWORD, salt=b"salt", iterations=iterations)
    await world.control.users_seen(await world.control.store.set_credentials("ann", [made]))
    spent = []
    for name in ("ann", "nobody"):
        rounds.clear()
        with pytest.raises(AuthenticationError):
            await world.authenticator.password(name, "wrong", "10.0.0.1")
        spent.append(dict(rounds))
    assert spent[0] == spent[1]
    assert set(spent[0]) == {"sha256", "sha512"}


async def test_a_right_password_takes_no_more_work_than_its_own(world: SecurityWorld, rounds: Counter[str]) -> None:
    await world.user("ann")
    rounds.clear()
    await world.authenticator.password("ann", PASSWORD, "10.0.0.1")
    assert rounds == {"sha256": 4_096}
