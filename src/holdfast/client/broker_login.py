"""How a client logs in to brokers, and checks that they are the ones: for both clients, our own and librdkafka.

The one rule: where there is TLS, nothing is sent to a broker before its certificate was checked.
"""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from holdfast.client.own_thread import on_own_thread
from holdfast.client.token_endpoint import fetch_token
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.scram import ScramMechanism
from holdfast.security.scram_client import ScramExchange
from holdfast.vocabulary.errors import InvalidError, UnavailableError
from holdfast.vocabulary.random import Random

SYSTEM_CA: Final = "system"
"""The authorities that the system trusts."""
_PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"


class LoginRefusedError(UnavailableError):
    """A broker refused a login. The same login again is refused again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLogin:
    """`mechanism` is empty without SASL; `ca` is empty without TLS. `certificate` and `key`: the client's own, if it needs one.

    It is part of the address of a cluster, so it is pickled, compared by what it is, and never shown.
    """

    random: Random = field(repr=False, compare=False)
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    token_url: str = ""
    """Of OAUTHBEARER: where user and password, a client id and its secret, are exchanged for a token."""
    ca: str = ""
    """A file in PEM, or `SYSTEM_CA`."""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)
    checks_name: bool = True
    """Whether a broker's certificate has to be for the name that it is reached by."""

    @property
    def protocol(self) -> str:
        """Kafka's name of it."""
        return ("SASL_" if self.mechanism else "") + ("SSL" if self.ca else "PLAINTEXT")

    def properties(self) -> dict[str, str]:
        """The properties of librdkafka."""
        sasl = {"sasl.mechanism": self.mechanism, "sasl.username": self.user, "sasl.password": self.password}
        if self.mechanism == OAUTHBEARER:
            sasl = {
                "sasl.mechanism": OAUTHBEARER,
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": self.user,
                "sasl.oauthbearer.client.secret": self.password,
                "sasl.oauthbearer.token.endpoint.url": self.token_url,
            }
        own = {"ssl.certificate.location": self.certificate, "ssl.key.location": self.key or self.certificate}
        password = {"ssl.key.password": self.key_password} if self.key_password else {}
        return {
            "security.protocol": self.protocol,
            **(sasl if self.mechanism else {}),
            **({"ssl.ca.location": self.ca} if self.ca and self.ca != SYSTEM_CA else {}),
            **({} if self.checks_name or not self.ca else {"ssl.endpoint.identification.algorithm": "none"}),
            **({**own, **password} if self.ca and self.certificate else {}),
        }

    async def context(self) -> ssl.SSLContext | None:
        """The TLS of a connection; None: it has none. Files are read for each, so that new ones count."""
        return await on_own_thread(self._context) if self.ca else None

    def _context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=None if self.ca == SYSTEM_CA else self.ca)
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.check_hostname = self.checks_name
            if self.certificate:
                # Never an empty password: without one, Python would ask for it on the terminal.
                context.load_cert_chain(self.certificate, self.key or None, lambda: self.key_password)
        except OSError as error:
            raise InvalidError("TLS files of brokers", self.ca, f"readable PEM files ({error})") from None
        return context

    async def log_in(self, request: Callable[[Any], Awaitable[Any]]) -> float | None:
        """Log in over a connection, whose requests are sent by `request`; for how many ms, None: for ever. `LoginRefusedError`."""
        if not self.mechanism:
            return None
        from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
        from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

        lifetime_ms: float | None = None

        async def say(data: bytes) -> bytes:
            nonlocal lifetime_ms
            answer = await request(SaslAuthenticateRequest(auth_bytes=data))
            if answer.error_code != ErrorCode.NONE:
                raise LoginRefusedError("login to a broker", answer.error_message or answer.error_code.name)
            lifetime_ms = answer.session_lifetime / timedelta(milliseconds=1) or None
            return bytes(answer.auth_bytes)

        shaken = await request(SaslHandshakeRequest(mechanism=self.mechanism))
        if shaken.error_code != ErrorCode.NONE:
            raise LoginRefusedError("login to a broker", f"{self.mechanism} is refused: {shaken.error_code.name}")
        if self.mechanism == _PLAIN:
            await say(f"\0{self.user}\0{self.password}".encode())
            return lifetime_ms
        if self.mechanism == OAUTHBEARER:
            token = await on_own_thread(fetch_token, self.token_url, self.user, self.password)
            await say(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
            return lifetime_ms
        nonce = self.random.token() + self.random.token()
        exchange = ScramExchange(ScramMechanism(self.mechanism), self.user, self.password, nonce=nonce)
        challenge = await say(exchange.first())
        exchange.verify(await say(await on_own_thread(exchange.final, challenge)))
        return lifetime_ms
