"""How the client of a connection proves who it is: SASL (PLAIN and SCRAM), or its certificate.

The one rule: until a client has logged in, its connection answers ApiVersions, SaslHandshake and SaslAuthenticate, nothing else. A
login that fails ends the connection. It also ends when the session is over and the client has not logged in again (KIP-368), and
when the user's credential is changed or deleted: no later than the request after this node has seen that.

PLAIN is checked against the credentials of SCRAM, of which a user has at least one: slow, and so on a thread, two at a time.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.agent.access_control import AccessControl
from holdfast.gateways.kafka.settings import PLAIN, KafkaSettings
from holdfast.kafka.error_codes import ErrorCode
from holdfast.security.acls import canonical_host
from holdfast.security.principals import Principal, PrincipalMapping, distinguished_name
from holdfast.security.scram import (
    ScramChallenge,
    ScramCredential,
    ScramError,
    ScramMechanism,
    challenge,
    decoy,
    is_password,
    read_client_first,
)
from holdfast.vocabulary.clock import Clock
from holdfast.vocabulary.random import Random

_log: Final = logging.getLogger(__name__)

_PASSWORDS_AT_ONCE: Final = 2
_FAILED_TEXT: Final = "Authentication failed: invalid credentials with SASL mechanism {}"


@dataclass(frozen=True, slots=True)
class SaslAnswer:
    """What a SaslAuthenticate request gets. `lifetime_ms`: after which the client has to log in again; 0: never."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None
    data: bytes = b""
    lifetime_ms: int = 0


class ListenerSecurity:
    """How clients of a listener log in; what the logins of all its connections share."""

    def __init__(self, control: AccessControl, settings: KafkaSettings, *, clock: Clock, random: Random) -> None:
        self.control, self.settings, self.clock, self.random = control, settings, clock, random
        self.mechanisms = settings.sasl_mechanisms
        self.decoy_secret = bytes.fromhex(random.token() + random.token())
        self.passwords = asyncio.Semaphore(_PASSWORDS_AT_ONCE)
        self.failed_logins = 0
        self._mapping = PrincipalMapping("kafka.principal_rules", settings.principal_rules)

    def login(self, host: str, certificate: dict[str, Any] | None) -> "Login":
        """The login of a new connection."""
        host = canonical_host(host)
        if self.mechanisms:
            return Login(self, host)
        name = distinguished_name((certificate or {}).get("subject", ()))
        principal = self._mapping.mapped(name) if name else None
        if principal is None:
            _log.info("connection from %s refused: no principal for certificate %r", host, name)
        return Login(self, host, principal=principal, refused=principal is None)


@dataclass(slots=True)
class _Exchange:
    """A login under way: the mechanism, and with SCRAM the challenge that was sent."""

    mechanism: str
    challenge: ScramChallenge | None = None


@dataclass(slots=True)
class Login:
    """Who the client of a connection is. `refused`: it failed to prove it, and its connection is to be closed."""

    security: ListenerSecurity
    host: str
    principal: Principal | None = None
    refused: bool = False
    started_at_ms: int = field(init=False)
    _exchange: _Exchange | None = field(default=None, init=False)
    _mechanism: str = field(default="", init=False)  # of the last login that succeeded
    _credential: ScramCredential | None = field(default=None, init=False)
    _expires_at_ms: int = field(default=0, init=False)  # 0: never
    _checked_at: int = field(default=-1, init=False)  # the version of users at which the credential was the user's

    def __post_init__(self) -> None:
        self.started_at_ms = self.security.clock.boot_ms()

    def refusal(self) -> str | None:
        """Why a request that needs a login is not answered; None: the client is logged in."""
        if self.principal is None:
            return "not authenticated"
        if self._expires_at_ms and self.security.clock.boot_ms() >= self._expires_at_ms:
            return f"the session of {self.principal} has expired"
        control = self.security.control
        if self._credential is not None and self._checked_at != control.version:
            user = control.user(self.principal.name)
            if user is None or self._credential not in user.credentials:
                return f"the credentials of {self.principal} have changed"
            self._checked_at = control.version
        return None

    def handshake(self, mechanism: str) -> ErrorCode:
        """Begin a login, the first one or the next."""
        if mechanism not in self.security.mechanisms:
            self.refused = True
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if self._mechanism not in ("", mechanism):
            self.refused = True
            return ErrorCode.ILLEGAL_SASL_STATE
        self._exchange = _Exchange(mechanism)
        return ErrorCode.NONE

    async def authenticate(self, data: bytes) -> SaslAnswer:
        """The next message of the login."""
        exchange = self._exchange
        if exchange is None:
            self.refused = True
            return SaslAnswer(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate without SaslHandshake")
        try:
            if exchange.mechanism == PLAIN:
                return await self._plain(data)
            if exchange.challenge is None:
                return self._challenged(exchange, data)
            verified = exchange.challenge.verify(data)
            return self._logged_in(exchange.challenge.client.user, exchange.challenge.credential, verified)
        except ScramError as error:
            return await self._failed(exchange.mechanism, str(error))

    def _challenged(self, exchange: _Exchange, data: bytes) -> SaslAnswer:
        security = self.security
        mechanism, first = ScramMechanism(exchange.mechanism), read_client_first(data)
        user = security.control.user(first.user)
        credential = user.credential(mechanism) if user is not None else None
        if credential is None:
            credential = decoy(mechanism, first.user, security.decoy_secret)
        nonce = security.random.token() + security.random.token()
        exchange.challenge = challenge(credential, first, nonce=nonce)
        return SaslAnswer(data=exchange.challenge.message)

    async def _plain(self, data: bytes) -> SaslAnswer:
        security = self.security
        try:
            acting_as, name, password = data.decode().split("\0")
        except ValueError:
            return await self._failed(PLAIN, "malformed PLAIN message")
        user = security.control.user(name) if acting_as in ("", name) else None
        # An unknown user takes as long as a wrong password.
        found = user.credentials[0] if user is not None else decoy(ScramMechanism.SHA_256, name, security.decoy_secret)
        async with security.passwords:
            matches = await asyncio.to_thread(is_password, found, password)
        if not matches:
            return await self._failed(PLAIN, f"wrong user or password for {name!r}")
        return self._logged_in(name, found, b"")

    def _logged_in(self, name: str, credential: ScramCredential, data: bytes) -> SaslAnswer:
        assert self._exchange is not None
        security, principal = self.security, Principal(name)
        if self.principal not in (None, principal):
            self.refused = True
            return SaslAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, "the principal of a connection cannot be changed")
        lifetime_ms = security.settings.sasl_session_ms
        self.principal, self._credential, self._mechanism = principal, credential, self._exchange.mechanism
        self._expires_at_ms = security.clock.boot_ms() + lifetime_ms if lifetime_ms else 0
        self._checked_at, self._exchange = -1, None
        return SaslAnswer(data=data, lifetime_ms=lifetime_ms)

    async def _failed(self, mechanism: str, reason: str) -> SaslAnswer:
        """Refuse, after a pause: whoever tries passwords waits for each."""
        security = self.security
        self.refused, self._exchange = True, None
        security.failed_logins += 1
        _log.info("login from %s failed: %s: %s", self.host, mechanism, reason)
        await security.clock.sleep_ms(security.settings.failed_login_delay_ms)
        return SaslAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, _FAILED_TEXT.format(mechanism))
