"""How a heap client logs in, from plain options.

The one rule: options that contradict each other are refused before anything is sent.
"""

from typing import Final

from holdfast.client.broker_login import BrokerLogin
from holdfast.security.scram import ScramMechanism
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import check_one_of

_PLAIN: Final = "PLAIN"
_KEY_USER: Final = "token"  # by custom: a password that is an API key is checked as one, whatever the name


def heap_login(
    *,
    user: str,
    password: str,
    api_key: str,
    mechanism: str,
    tls_ca: str,
    tls_cert: str,
    tls_key: str,
    random: Random,
) -> BrokerLogin | None:
    """The login for these options of `connect`; None: without one, and without TLS. `InvalidError`."""
    check_one_of("mechanism", mechanism, (_PLAIN, *ScramMechanism))
    if api_key and user:
        raise InvalidError("user", user, "empty beside api_key")
    if bool(user) != bool(password):
        raise InvalidError("user", user, "given with a password, and only then")
    if bool(tls_cert) != bool(tls_key):
        raise InvalidError("tls_cert", tls_cert, "given with tls_key, and only then")
    if tls_cert and not tls_ca:
        raise InvalidError("tls_cert", tls_cert, "empty without tls_ca")
    if not (user or api_key or tls_ca):
        return None
    sasl = _PLAIN if api_key else mechanism if user else ""
    return BrokerLogin(
        random=random,
        mechanism=sasl,
        user=_KEY_USER if api_key else user,
        password=api_key or password,
        ca=tls_ca,
        certificate=tls_cert,
        key=tls_key,
    )
