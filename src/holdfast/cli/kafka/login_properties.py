"""A login from librdkafka's properties, for our own client: what `-X` says means the same to both."""

from collections.abc import Mapping
from typing import Any, Final

from holdfast.client.broker_login import SYSTEM_CA, BrokerLogin
from holdfast.security.scram import ScramMechanism
from holdfast.vocabulary.errors import InvalidError
from holdfast.vocabulary.random import Random
from holdfast.vocabulary.settings import check_one_of

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", *ScramMechanism)
_FIELDS: Final = {
    "sasl.mechanism": "mechanism",
    "sasl.mechanisms": "mechanism",
    "sasl.username": "user",
    "sasl.password": "password",
    "ssl.ca.location": "ca",
    "ssl.certificate.location": "certificate",
    "ssl.key.location": "key",
    "ssl.key.password": "key_password",
}
_PROTOCOL: Final = "security.protocol"


def login_of(properties: Mapping[str, str], *, random: Random) -> BrokerLogin | None:
    """How to log in; None: nobody needs to. `InvalidError`: a property that says nothing about it, or not what it may."""
    fields: dict[str, Any] = {_FIELDS[name]: value for name, value in properties.items() if name in _FIELDS}
    for name in properties.keys() - _FIELDS.keys() - {_PROTOCOL}:
        raise InvalidError("-X", name, "one of " + ", ".join((_PROTOCOL, *_FIELDS)))
    protocol = properties.get(_PROTOCOL, "PLAINTEXT").upper()
    check_one_of(_PROTOCOL, protocol, _PROTOCOLS)
    if protocol == "PLAINTEXT":
        if fields:
            raise InvalidError(_PROTOCOL, protocol, "with TLS or SASL, which other properties are about")
        return None
    if protocol.startswith("SASL"):
        check_one_of("sasl.mechanism", fields.get("mechanism", ""), _MECHANISMS)
    else:
        fields.pop("mechanism", None)
    fields["ca"] = fields.get("ca", SYSTEM_CA) if protocol.endswith("SSL") else ""
    return BrokerLogin(random=random, **fields)
