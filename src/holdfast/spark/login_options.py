"""The options `kafka.security.protocol`, `kafka.sasl.*` and `kafka.ssl.*` of source and sink: the names of Spark's Kafka connector.

The one rule: an option that asks for security is taken or refused, never ignored; so is one whose secret Spark would show. Spark
hides an option in plans, logs and its UI if its name or its value contains `password`, so a private key is given as a file.
"""

import re
from collections.abc import Mapping
from typing import Final

from holdfast.client.broker_login import OAUTHBEARER, SYSTEM_CA, BrokerLogin
from holdfast.client.token_endpoint import check_token_url
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import SystemRandom

PREFIXES: Final = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")

_PROTOCOL: Final = "kafka.security.protocol"
_MECHANISM, _JAAS = "kafka.sasl.mechanism", "kafka.sasl.jaas.config"
_USER, _PASSWORD = "kafka.sasl.username", "kafka.sasl.password"
_TOKEN_URL, _HANDLER = "kafka.sasl.oauthbearer.token.endpoint.url", "kafka.sasl.login.callback.handler.class"
_TRUSTED, _CA = "kafka.ssl.truststore.location", "kafka.ssl.ca.location"
_STORED, _CERTIFICATE = "kafka.ssl.keystore.location", "kafka.ssl.certificate.location"
_KEY, _KEY_PASSWORD = "kafka.ssl.key.location", "kafka.ssl.key.password"
_TYPES: Final = ("kafka.ssl.truststore.type", "kafka.ssl.keystore.type")
_NAME_CHECK: Final = "kafka.ssl.endpoint.identification.algorithm"

_SASL: Final = (_MECHANISM, _JAAS, _USER, _PASSWORD, _TOKEN_URL, _HANDLER)
_TLS: Final = (_TRUSTED, _CA, _STORED, _CERTIFICATE, _KEY, _KEY_PASSWORD, *_TYPES, _NAME_CHECK)
LOGIN_OPTIONS: Final = (_PROTOCOL, *_SASL, *_TLS)

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", OAUTHBEARER)
_JAAS_ENTRY: Final = re.compile(
    r"""\s*org\.apache\.kafka\.common\.security\.(scram\.Scram|plain\.Plain|oauthbearer\.OAuthBearer)LoginModule\s+required"""
    r"""((?:\s+\w+\s*=\s*(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+))*)\s*;\s*"""
)
_JAAS_VALUE: Final = re.compile(r"""(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""")
_JAAS_FORM: Final = (
    "org.apache.kafka.common.security.scram.ScramLoginModule (or plain.PlainLoginModule) required "
    'username="…" password="…"; or oauthbearer.OAuthBearerLoginModule required clientId="…" clientSecret="…";'
)


def parse_login(options: Mapping[str, str]) -> BrokerLogin | None:
    """The login that options by lower-case name give; None: neither login nor TLS. Errors show no value that may be a secret."""
    given = {name: value for name, value in options.items() if name.startswith(PREFIXES) and value.strip()}
    for name in given:
        if name not in LOGIN_OPTIONS:
            raise InvalidError(f"option {name}", "…", "absent: it is none of " + ", ".join(sorted(LOGIN_OPTIONS)))
    protocol = given.get(_PROTOCOL, "PLAINTEXT").strip().upper()
    if protocol not in _PROTOCOLS:
        raise InvalidError(f"option {_PROTOCOL}", protocol, "one of " + ", ".join(_PROTOCOLS))
    tls, sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    for used, names, needed in ((tls, _TLS, "SSL or SASL_SSL"), (sasl, _SASL, "SASL_PLAINTEXT or SASL_SSL")):
        if not used and (unused := [name for name in names if name in given]):
            raise InvalidError(f"option {unused[0]}", "…", f"absent, unless {_PROTOCOL} is {needed}")
    if not tls and not sasl:
        return None
    mechanism, user, password = _credentials(given) if sasl else ("", "", "")
    certificate = _one(given, _STORED, _CERTIFICATE)
    if not certificate and (_KEY in given or _KEY_PASSWORD in given):
        raise InvalidError(f"option {_STORED}", "", "the client's certificate: a key is given")
    return BrokerLogin(
        random=SystemRandom(),
        mechanism=mechanism,
        user=user,
        password=password,
        token_url=_token_url(given, mechanism),
        ca=_trusted(given, options) if tls else "",
        certificate=certificate,
        key=given.get(_KEY, ""),
        key_password=given.get(_KEY_PASSWORD, ""),
        checks_name=not _is_off(options),
    )


def _credentials(given: Mapping[str, str]) -> tuple[str, str, str]:
    """Mechanism, user and password."""
    mechanism = given.get(_MECHANISM, "").strip().upper()
    if mechanism not in _MECHANISMS:
        raise InvalidError(f"option {_MECHANISM}", mechanism, "one of " + ", ".join(_MECHANISMS))
    if _JAAS in given:
        if _USER in given or _PASSWORD in given:
            raise InvalidError(f"options {_JAAS} and {_USER}", "both", "only one of the two")
        user, password = _from_jaas(given[_JAAS], mechanism)
    else:
        user, password = given.get(_USER, ""), given.get(_PASSWORD, "")
    if not user or not password:
        raise InvalidError(f"option {_USER}", user, f"a user, with {_PASSWORD}; or both as {_JAAS}")
    return mechanism, user, password


def _from_jaas(text: str, mechanism: str) -> tuple[str, str]:
    entry = _JAAS_ENTRY.fullmatch(text)
    kinds = {"PLAIN": "plain.Plain", OAUTHBEARER: "oauthbearer.OAuthBearer"}
    kind = kinds.get(mechanism, "scram.Scram")
    if entry is None or entry[1] != kind:
        raise InvalidError(f"option {_JAAS}", "…", f"for {mechanism}: {_JAAS_FORM}")
    values = {name: _unquoted(value) for name, value in _JAAS_VALUE.findall(entry[2])}
    if mechanism == OAUTHBEARER:
        return values.get("clientId", ""), values.get("clientSecret", "")
    return values.get("username", ""), values.get("password", "")


def _token_url(given: Mapping[str, str], mechanism: str) -> str:
    """Where a client gets its tokens. Java needs a handler beside it; ours is built in."""
    url, handler = given.get(_TOKEN_URL, "").strip(), given.get(_HANDLER, "").strip()
    if mechanism != OAUTHBEARER:
        for name in (_TOKEN_URL, _HANDLER):
            if name in given:
                raise InvalidError(f"option {name}", "…", f"absent, unless {_MECHANISM} is {OAUTHBEARER}")
        return ""
    if handler and not handler.endswith(".OAuthBearerLoginCallbackHandler"):
        raise InvalidError(f"option {_HANDLER}", handler, "Kafka's own OAuthBearerLoginCallbackHandler, or absent")
    check_token_url(f"option {_TOKEN_URL}", url)
    return url


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[0] in "\"'" else text


def _trusted(given: Mapping[str, str], options: Mapping[str, str]) -> str:
    for name in _TYPES:
        if options.get(name, "PEM").strip().upper() != "PEM":
            raise InvalidError(f"option {name}", options[name], "PEM: other stores are Java's alone")
    return _one(given, _TRUSTED, _CA) or SYSTEM_CA


def _is_off(options: Mapping[str, str]) -> bool:
    """Java's empty value and librdkafka's `none` have names not checked."""
    text = options.get(_NAME_CHECK, "https").strip().lower()
    if text not in ("https", "none", ""):
        raise InvalidError(f"option {_NAME_CHECK}", text, "https, or empty: a certificate may be for any name")
    return text != "https"


def _one(given: Mapping[str, str], name: str, other: str) -> str:
    if name in given and other in given:
        raise InvalidError(f"options {name} and {other}", "both", "only one of the two")
    return given.get(name) or given.get(other, "")


def login_options(login: BrokerLogin | None) -> dict[str, str]:
    """The options that give a login."""
    if login is None:
        return {}
    given = {
        _PROTOCOL: login.protocol,
        _MECHANISM: login.mechanism,
        _USER: login.user,
        _PASSWORD: login.password,
        _TOKEN_URL: login.token_url,
        _CA: "" if login.ca == SYSTEM_CA else login.ca,
        _CERTIFICATE: login.certificate,
        _KEY: login.key,
        _KEY_PASSWORD: login.key_password,
        _NAME_CHECK: "" if login.checks_name else "none",
    }
    return {name: value for name, value in given.items() if value}
