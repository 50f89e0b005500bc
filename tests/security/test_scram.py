"""SCRAM against the vectors of RFC 7677 and against other people's clients."""

import base64

import pytest
from aiokafka.conn import ScramAuthenticator
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.security.scram import (
    ScramChallenge,
    ScramCredential,
    ScramError,
    ScramMechanism,
    challenge,
    credential_of,
    credential_of_salted,
    decoy,
    is_password,
    read_client_first,
    salted_password,
)
from holdfast.vocabulary.errors import InvalidError

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
# RFC 7677, section 3
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO" + SERVER_NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO" + SERVER_NONCE.encode() + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERIFIED = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def pencil(mechanism: ScramMechanism = SHA_256, password: str = "pencil") -> ScramCredential:
    return credential_of(mechanism, password, salt=SALT, iterations=4_096)


def challenged(nonce: str = SERVER_NONCE) -> ScramChallenge:
    return challenge(pencil(), read_client_first(FIRST), nonce=nonce)


def test_the_exchange_of_the_rfc() -> None:
    assert read_client_first(FIRST).user == "user"
    assert challenged().message == CHALLENGE
    assert challenged().verify(FINAL) == VERIFIED


def test_an_exchange_that_was_overheard_cannot_be_repeated() -> None:
    with pytest.raises(ScramError, match="nonce"):
        challenged("another").verify(FINAL)
    replayed = FINAL.replace(SERVER_NONCE.encode(), b"another")
    with pytest.raises(ScramError, match="wrong user or password"):
        challenged("another").verify(replayed)


def test_another_password_another_salt_and_another_user_are_refused() -> None:
    for credential in (
        pencil(password="pen"),
        credential_of(SHA_256, "pencil", salt=b"another salt", iterations=4_096),
        decoy(SHA_256, "user", b"secret"),
    ):
        with pytest.raises(ScramError, match="wrong user or password"):
            challenge(credential, read_client_first(FIRST), nonce=SERVER_NONCE).verify(FINAL)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,n=user",
        b"n,,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,m=x,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,,n=user,r=abc,tokenauth=true",
        b"n,,n=user,r=abc\xff",
        b"x,,n=user,r=abc",
    ],
)
def test_a_first_message_that_is_not_understood_is_refused(first: bytes) -> None:
    with pytest.raises(ScramError):
        read_client_first(first)


def test_names_may_have_commas_and_equals_signs() -> None:
    assert read_client_first(b"n,,n=a=2Cb=3Dc,r=abc").user == "a,b=c"
    assert read_client_first(b"y,a=a=2Cb,n=a=2Cb,r=abc,ext=1").user == "a,b"


@pytest.mark.parametrize(
    "final",
    [
        b"",
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"c=biws", b"c=***"),
        FINAL.partition(b",p=")[0],
        FINAL.partition(b",p=")[0] + b",p=dHzb",
        FINAL.partition(b",p=")[0] + b",p=***",
        b"\xff",
    ],
)
def test_a_final_message_that_is_not_understood_is_refused(final: bytes) -> None:
    with pytest.raises(ScramError):
        challenged().verify(final)


@given(st.binary(max_size=80))
def test_no_bytes_do_anything_else_than_fail(data: bytes) -> None:
    for read in (read_client_first, challenged().verify):
        with pytest.raises(ScramError):
            read(data)


names = st.text(st.characters(blacklist_categories=("Cc", "Cs")), min_size=1, max_size=20)


@settings(max_examples=25)
@given(names, names, st.sampled_from(ScramMechanism))
def test_a_client_that_has_the_password_is_verified(user: str, password: str, mechanism: ScramMechanism) -> None:
    # aiokafka keeps names as they are: commas and equals signs are the client's own business.
    user = user.replace(",", "").replace("=", "") or "user"
    client = ScramAuthenticator(
        loop=None, sasl_plain_password=password, sasl_plain_username=user, sasl_mechanism=mechanism
    )
    exchange = client.authenticator_scram()
    first, _ = next(exchange)
    credential = credential_of(mechanism, password, salt=b"salt", iterations=4_096)
    answer = challenge(credential, read_client_first(first), nonce="drawn")
    final, _ = exchange.send(answer.message)
    with pytest.raises(StopIteration):  # it has checked the server's signature
        exchange.send(answer.verify(final))


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_password_that_is_sent_is_compared_with_the_same_credential(mechanism: ScramMechanism) -> None:
    assert is_password(pencil(mechanism), "pencil")
    assert not is_password(pencil(mechanism), "Pencil")
    assert not is_password(decoy(mechanism, "user", b"secret"), "pencil")


def test_a_decoy_is_the_same_for_a_user_each_time_and_looks_like_a_credential() -> None:
    first, again = decoy(SHA_512, "user", b"secret"), decoy(SHA_512, "user", b"secret")
    assert first == again
    assert first.salt != decoy(SHA_512, "other", b"secret").salt
    assert len(first.stored_key) == 64


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"iterations": 4_095}, "iterations"),
        ({"iterations": 16_385}, "iterations"),
        ({"salt": b""}, "salt"),
        ({"salted": b"short"}, "salted password"),
    ],
)
def test_a_credential_that_is_too_weak_is_refused(changes: dict[str, object], what: str) -> None:
    given: dict[str, object] = {"salt": SALT, "iterations": 4_096, **changes}
    salted = given.pop("salted", salted_password(SHA_256, "pencil", SALT, 4_096))
    with pytest.raises(InvalidError, match=what):
        credential_of_salted(SHA_256, salted, **given)  # type: ignore[arg-type]
