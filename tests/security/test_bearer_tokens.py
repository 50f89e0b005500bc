"""Tokens that count, and every way in which one does not."""

import json
from base64 import urlsafe_b64encode
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.support.oauth import AUDIENCE, ISSUER, Issuer, bearer, ec_key, rsa_key, unsecured

from holdfast.security.bearer_tokens import UnknownSigningKeyError, verified
from holdfast.security.jwks import KeySet, parse_jwks
from holdfast.security.oauth_settings import OAuthSettings
from holdfast.security.oauthbearer import TokenError, read_bearer_message
from holdfast.vocabulary.errors import InvalidError

NOW_S = 1_700_000_000
SKEW_S = 30


def settings(**changed: Any) -> OAuthSettings:
    return OAuthSettings(**{"jwks": "keys.json", "issuer": ISSUER, "audience": AUDIENCE, **changed})


def issuer() -> Issuer:
    made = Issuer()
    made.keys["rsa"] = rsa_key()
    return made


def keys(of: Issuer) -> KeySet:
    return parse_jwks(json.dumps(of.jwks()).encode())


def check(token: str, now_s: float = NOW_S, **changed: Any) -> Any:
    return verified(token, keys(issuer()), settings(**changed), int(now_s * 1_000))


@pytest.mark.parametrize("key", ["rsa", "ec"])
def test_a_signed_token_says_who_it_is_about_and_until_when(key: str) -> None:
    found = check(issuer().token("ann", key=key, now_s=NOW_S))
    assert (found.name, found.expires_at_ms) == ("ann", (NOW_S + 300) * 1_000)


def test_another_claim_can_be_the_principal() -> None:
    token = issuer().token("x-1", now_s=NOW_S, preferred_username="ann")
    assert check(token, principal_claim="preferred_username").name == "ann"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": NOW_S - SKEW_S}, "expired"),
        ({"exp": None}, "never expires"),
        ({"exp": "soon"}, "no time"),
        ({"exp": True}, "no time"),
        ({"exp": 10**30}, "no time"),
        ({"nbf": NOW_S + SKEW_S + 1}, "not count yet"),
        ({"iat": NOW_S + SKEW_S + 1}, "not count yet"),
        ({"iss": "https://other.test"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "other"}, "another audience"),
        ({"aud": ["other", 1]}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": {AUDIENCE: 1}}, "another audience"),
        ({"sub": None}, "no name"),
        ({"sub": 7}, "no name"),
        ({"sub": ""}, "no name"),
        ({"sub": "*"}, "no name"),
        ({"sub": "a\nb"}, "no name"),
    ],
)
def test_a_claim_that_is_wrong_refuses_the_token(claims: dict[str, Any], why: str) -> None:
    of = issuer()
    token = jwt.encode({**of.claims(now_s=NOW_S, **claims)}, of.keys["ec"], "ES256", headers={"kid": "ec"})
    with pytest.raises(TokenError, match=why):
        check(token)


def test_clocks_may_differ_by_the_skew() -> None:
    of = issuer()
    assert check(of.token(now_s=NOW_S), NOW_S - SKEW_S).name == "ann"
    late = check(of.token(now_s=NOW_S), NOW_S + 300 + SKEW_S - 1)
    assert late.expires_at_ms == (NOW_S + 300 + SKEW_S) * 1_000


def test_an_audience_is_one_of_several_and_a_star_is_any() -> None:
    of = issuer()
    token = of.token(now_s=NOW_S, aud=["a", AUDIENCE])
    assert check(token, audience=f"b, {AUDIENCE}").name == "ann"
    assert check(of.token(now_s=NOW_S, aud="x", iss="y"), audience="*", issuer="*").name == "ann"


def test_an_unsigned_token_is_refused_whatever_its_header_says() -> None:
    for algorithm in ("none", "None", "NONE", "", None):
        with pytest.raises(TokenError, match="not allowed"):
            check(unsecured(issuer().claims(now_s=NOW_S), {"alg": algorithm, "kid": "ec"}))


def test_a_public_key_is_no_secret_to_sign_with() -> None:
    """The classic confusion: an HMAC whose key is the issuer's public one, which everybody has."""
    of = issuer()
    pem = of.keys["rsa"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    header, claims = ({"alg": "HS256", "kid": "rsa"}, of.claims(now_s=NOW_S))
    signed = ".".join(urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in (header, claims))
    from hashlib import sha256
    from hmac import digest

    mac = urlsafe_b64encode(digest(pem, signed.encode(), sha256)).rstrip(b"=").decode()
    with pytest.raises(TokenError, match="not allowed"):
        check(f"{signed}.{mac}")
    with pytest.raises(InvalidError, match="algorithms"):
        settings(algorithms="RS256,HS256")


def test_a_symmetric_key_in_the_set_is_none_of_the_issuers() -> None:
    of = issuer()
    shared = {"kty": "oct", "k": urlsafe_b64encode(b"k" * 32).decode(), "kid": "shared", "alg": "HS256"}
    mixed = parse_jwks(json.dumps({"keys": [shared, *of.jwks()["keys"]]}).encode())
    assert len(mixed) == 2
    assert mixed.find("shared", "HS256") is None


def test_a_key_counts_for_its_own_algorithms_alone() -> None:
    found = keys(issuer())
    assert found.find("rsa", "ES256") is None
    assert found.find("ec", "RS256") is None
    assert found.find("ec", "ES384") is None
    assert found.find("rsa", "PS512") is not None
    narrowed = {**issuer().jwks()["keys"][1], "alg": "PS256"}
    assert parse_jwks(json.dumps({"keys": [narrowed]}).encode()).find("rsa", "RS256") is None


def test_a_token_of_somebody_elses_key_is_refused() -> None:
    other = Issuer()
    other.keys = {"ec": ec_key(1), "new": ec_key(2)}
    with pytest.raises(TokenError, match="signature"):
        check(other.token(now_s=NOW_S))
    with pytest.raises(UnknownSigningKeyError):
        check(other.token(now_s=NOW_S, key="new"))


def test_a_token_without_a_key_id_needs_a_set_without_a_choice() -> None:
    of = issuer()
    token = jwt.encode(of.claims(now_s=NOW_S), of.keys["ec"], "ES256")
    assert check(token).name == "ann"  # the only key for ES256
    of.keys["ec2"] = ec_key(1)
    with pytest.raises(UnknownSigningKeyError):
        verified(token, keys(of), settings(), NOW_S * 1_000)


def test_every_changed_character_of_a_token_is_noticed() -> None:
    token = issuer().token(now_s=NOW_S)
    # The last character of a part may have bits that mean nothing: those before it have none.
    ends = {at - 1 for at, letter in enumerate(token + ".") if letter == "."}
    for at in (each for each in range(len(token)) if token[each] != "." and each not in ends):
        changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        with pytest.raises(TokenError):
            check(changed)


def test_critical_extensions_are_not_ignored() -> None:
    of = issuer()
    headers = {"kid": "ec", "crit": ["b64"], "b64": True}
    with pytest.raises(TokenError):
        check(jwt.encode(of.claims(now_s=NOW_S), of.keys["ec"], "ES256", headers=headers))


@pytest.mark.parametrize("token", ["", ".", "..", "a.b.c", "e30.e30.", "e30.e30.AA", "x" * 10_000])
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(TokenError):
        check(token)


def test_unsecured_tokens_count_only_where_that_is_set() -> None:
    test = OAuthSettings(unsecured=True)
    claims = issuer().claims(now_s=NOW_S)
    assert verified(unsecured(claims), KeySet(), test, NOW_S * 1_000).name == "ann"
    with pytest.raises(TokenError, match="signed"):
        verified(issuer().token(now_s=NOW_S), KeySet(), test, NOW_S * 1_000)
    with pytest.raises(TokenError, match="expired"):
        verified(unsecured(claims), KeySet(), test, (NOW_S + 1_000) * 1_000)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": []}', b'{"keys": [1]}', b"\xff", b"[" * 9_999]
)
def test_what_is_no_key_set_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidError, match="JWKS"):
        parse_jwks(data)


def test_weak_and_foreign_keys_are_left_out_and_private_parts_dropped() -> None:
    weak = jwt.algorithms.RSAAlgorithm.to_jwk(rsa.generate_private_key(65_537, 1_024).public_key(), as_dict=True)
    private = jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key(), as_dict=True)
    edwards = jwt.algorithms.OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate().public_key(), as_dict=True)
    encryption = {**Issuer().jwks()["keys"][0], "use": "enc"}
    found = parse_jwks(json.dumps({"keys": [weak, private, edwards, encryption, {"kty": "new"}]}).encode())
    assert len(found) == 2
    assert found.find(None, "EdDSA") is not None
    kept = found.find(None, "RS256")
    assert kept is not None
    assert isinstance(kept.key, rsa.RSAPublicKey)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"issuer": ""}, "issuer"),
        ({"audience": ""}, "audience"),
        ({"algorithms": ""}, "algorithms"),
        ({"algorithms": "none"}, "algorithms"),
        ({"principal_claim": ""}, "principal_claim"),
        ({"skew_ms": -1}, "skew_ms"),
        ({"refresh_min_ms": 0}, "refresh_min_ms"),
        ({"jwks": "http://issuer.test/keys"}, "jwks"),
        ({"unsecured": True}, "unsecured"),
    ],
)
def test_settings_that_would_let_everybody_in_are_refused(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidError, match=named):
        settings(**changed)


def test_a_message_has_one_token() -> None:
    message = read_bearer_message(bearer("a.b.c", "ann"))
    assert (message.token, message.authzid) == ("a.b.c", "ann")
    extended = b"n,,\x01auth=bearer  a.b.c\x01traceId=1\x01\x01"
    assert read_bearer_message(extended).token == "a.b.c"


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Bearer a\x01", b"p=x,,\x01auth=Bearer a\x01\x01"),
        *(b"n,,\x01auth=Basic a\x01\x01", b"n,,\x01auth=Bearer \x01\x01", b"n,,\x01auth=Bearer a b\x01\x01"),
        *(b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01", b"n,a=\xff,\x01auth=Bearer a\x01\x01", b"\x01"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(TokenError, match="malformed"):
        read_bearer_message(data)
