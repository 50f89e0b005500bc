"""How to reach a cluster and log in: one value that `Producer`, `Consumer` and `Admin` share.

The one rule: it may hold a password, so its representation has none of them.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from holdfast.client.addresses import Bootstrap, parse_bootstrap
from holdfast.vocabulary.errors import InvalidError, UsageError
from holdfast.vocabulary.settings import check_at_least, check_one_of

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
API_KEY_USER: Final = "token"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Encryption. Empty: the system's certificate authorities, and no client certificate."""

    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    key_password: str = field(default="", repr=False)
    verify_hostname: bool = True

    def __post_init__(self) -> None:
        if bool(self.certificate_file) != bool(self.key_file):
            raise UsageError("a client certificate needs both certificate_file and key_file")

    def properties(self) -> dict[str, str]:
        """librdkafka's names for it."""
        named = {
            "ssl.ca.location": self.ca_file,
            "ssl.certificate.location": self.certificate_file,
            "ssl.key.location": self.key_file,
            "ssl.key.password": self.key_password,
            "ssl.endpoint.identification.algorithm": "" if self.verify_hostname else "none",
        }
        return {name: value for name, value in named.items() if value}


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Which brokers, and who is asking. A plain `"host:port"` does where nobody has to log in.

    `username` and `password` log in by `sasl_mechanism`: SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN. `api_key` logs in with an API key
    instead, which is PLAIN with the user name `token`. PLAIN sends the secret itself: use it with `tls`. `properties` are
    librdkafka's own, and win over everything else.
    """

    bootstrap_servers: str = "localhost:9092"
    _: KW_ONLY
    tls: bool | Tls = False
    username: str = ""
    password: str = field(default="", repr=False)
    sasl_mechanism: str = "SCRAM-SHA-512"
    api_key: str = field(default="", repr=False)
    client_id: str = "holdfast"
    request_timeout_ms: int = 10_000
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.bootstrap_servers, str):
            raise InvalidError("bootstrap_servers", self.bootstrap_servers, "host:port, several separated by commas")
        parse_bootstrap(self.bootstrap_servers, name="bootstrap_servers")
        check_one_of("sasl_mechanism", self.sasl_mechanism, MECHANISMS)
        check_at_least("request_timeout_ms", self.request_timeout_ms, 100)
        if bool(self.username) != bool(self.password):
            raise UsageError("a login needs both username and password")
        if self.api_key and self.username:
            raise UsageError("give either username and password, or api_key")

    def bootstrap(self) -> Bootstrap:
        """The same for librdkafka."""
        return Bootstrap(
            servers=self.bootstrap_servers,
            timeout_s=self.request_timeout_ms / 1_000,
            properties={"client.id": self.client_id, **self._security(), **self.properties},
        )

    def _security(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.tls:
            found |= self.tls.properties() if isinstance(self.tls, Tls) else {}
        if self.username:
            found |= _login(self.sasl_mechanism, self.username, self.password)
        elif self.api_key:
            found |= _login("PLAIN", API_KEY_USER, self.api_key)
        protocol = ("SASL_" if self.username or self.api_key else "") + ("SSL" if self.tls else "PLAINTEXT")
        return found if protocol == "PLAINTEXT" else {"security.protocol": protocol, **found}


def _login(mechanism: str, username: str, password: str) -> dict[str, str]:
    return {"sasl.mechanism": mechanism, "sasl.username": username, "sasl.password": password}


def connection_settings(given: str | ConnectionSettings) -> ConnectionSettings:
    """The settings, also where only addresses were given."""
    return given if isinstance(given, ConnectionSettings) else ConnectionSettings(given)
